"""Points as metrics of an MLflow run: on a server, or in `mlflow/` of the run's folder.

    mlflow ui --backend-store-uri sqlite:///runs/first/mlflow/mlflow.db

The step is the version. The time of a point is when the run began plus its seconds, virtual or not.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from pisces.record.trackers.base import Point, Scalar, Subject, Tracker, needing, outcome
from pisces.record.writer import MODEL, refuse_links

FOLDER = "mlflow"
ID = "pisces.id"  # the tag by which a run that goes on is found again
REACH_S = 10.0  # for a server to answer at all
MOST_NAME = 240
MOST_METRICS, MOST_PARAMETERS = 1000, 100  # in one request
_REFUSED = re.compile(r"[^\w\-. /:]", re.ASCII)  # in names


class MLflow(Tracker):
    """Metrics, parameters and, at the end, the summary; the `model` file too, where asked for.

    `uri` is that of a tracking server or a database; without it `MLFLOW_TRACKING_URI` is taken, and
    without that a database in the run's folder. A run that is resumed goes on as the same MLflow
    run. It is sent all its points again: databases, and servers over them, keep one of each.
    """

    name = "mlflow"

    def __init__(
        self, uri: str | None = None, *, experiment: str = "pisces", model: bool = False
    ) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
        with needing("MLflow", "mlflow"):
            from mlflow.tracking import MlflowClient

        self._make = MlflowClient
        self._uri = uri or os.environ.get("MLFLOW_TRACKING_URI")
        self._experiment, self._sends_model = experiment, model
        self.needs_folder = self._uri is None
        self._client: Any = None
        self._run_id = ""
        self._run: Subject | None = None

    def begin(self, run: Subject) -> None:
        """Make the run, or find the one it was."""
        self._run = run
        self._client, place = self._opened(run)
        experiment = self._experiment_id(place)
        self._run_id = self._found(experiment, run.id) or self._made(experiment, run)
        self._say_parameters(run.parameters)

    def track(self, points: Sequence[Point]) -> None:
        """Send metrics, many at a time."""
        from mlflow.entities import Metric

        assert self._run is not None
        metrics = [
            Metric(
                _named(name),
                float(value),
                int(self._run.seen_at(point) * 1000),
                point.version,
            )
            for point in points
            for name, value in [*point.values.items(), ("seconds", point.at)]
        ]
        for first in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[first : first + MOST_METRICS])

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Send what came of it: numbers as metrics, words as tags."""
        if summary is None:
            self._client.set_terminated(self._run_id, "FAILED")
            return
        assert self._run is not None
        told = outcome(summary)
        numbers = {f"summary/{k}": v for k, v in told.items() if not isinstance(v, str)}
        at, version = float(summary["at"]), int(summary["versions"])
        self.track([Point(-1, version, at, {name: float(v) for name, v in numbers.items()})])
        for name, value in told.items():
            if isinstance(value, str):
                self._client.set_tag(self._run_id, f"summary.{_named(name)}", value)
        if self._sends_model and self._run.folder is not None:
            self._client.log_artifact(self._run_id, str(self._run.folder / MODEL))
        is_cut = summary.get("reason") == "interrupted"
        self._client.set_terminated(self._run_id, "KILLED" if is_cut else "FINISHED")

    def _opened(self, run: Subject) -> tuple[Any, str | None]:
        """A client, and where artefacts of a new experiment go if that is for us to say."""
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # it tells of each try
        if self._uri is not None:
            reach(self._uri)
            return self._make(tracking_uri=self._uri), None
        folder = (run.folder or Path()) / FOLDER
        refuse_links(folder, folder / "mlflow.db")
        folder.mkdir(exist_ok=True)
        for name in ("mlflow.store.db.utils", "alembic"):  # they tell of every table they make
            logging.getLogger(name).setLevel(logging.WARNING)
        client = self._make(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
        return client, (folder / "artifacts").as_uri()

    def _experiment_id(self, place: str | None) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(self._experiment)
        if found is None:
            try:
                made = self._client.create_experiment(self._experiment, artifact_location=place)
                return str(made)
            except MlflowException:  # another run was quicker
                found = self._client.get_experiment_by_name(self._experiment)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _found(self, experiment: str, id: str) -> str | None:
        runs = self._client.search_runs([experiment], f"tags.`{ID}` = '{id}'", max_results=1)
        if not runs:
            return None
        run_id = str(runs[0].info.run_id)
        self._client.update_run(run_id, status="RUNNING")
        return run_id

    def _made(self, experiment: str, run: Subject) -> str:
        began_ms = int(run.began_at * 1000)
        made = self._client.create_run(
            experiment, start_time=began_ms, tags={ID: run.id}, run_name=run.name
        )
        return str(made.info.run_id)

    def _say_parameters(self, parameters: Mapping[str, Scalar]) -> None:
        """A parameter is said once; what is another one after a resume becomes a tag."""
        from mlflow.entities import Param

        known = self._client.get_run(self._run_id).data.params
        told = {_named(name): str(value) for name, value in parameters.items()}
        new = [Param(name, value) for name, value in told.items() if name not in known]
        for first in range(0, len(new), MOST_PARAMETERS):
            self._client.log_batch(self._run_id, params=new[first : first + MOST_PARAMETERS])
        for name, value in told.items():
            if known.get(name, value) != value:
                self._client.set_tag(self._run_id, f"resumed.{name}", value)


def reach(uri: str) -> None:
    """Is there a server at all? MLflow's client would try for minutes before it says so."""
    if not uri.startswith(("http://", "https://")):
        return
    try:
        urlopen(f"{uri.rstrip('/')}/health", timeout=REACH_S).close()
    except HTTPError:
        pass  # it answers, if only that it wants to know who asks
    except OSError as error:
        why = error.reason if isinstance(error, URLError) else error
        raise ConnectionError(f"cannot reach {uri}: {why}") from error


def _named(name: str) -> str:
    """A name that MLflow takes."""
    return _REFUSED.sub("_", name)[:MOST_NAME]

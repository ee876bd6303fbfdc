"""MLflow's database, read back by MLflow."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from trackedruns import OFTEN, killed, points_of, series_of, simulated

import pisces
from pisces.record.trackers.mlflow import MLflow, reach

pytest.importorskip("mlflow")
pytest.importorskip("alembic")  # MLflow makes its database with it


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def read(uri: str) -> tuple[Any, Any]:
    """A client, and the only run."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("pisces")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def metrics_of(uri: str) -> dict[str, list[tuple[int, float]]]:
    client, run = read(uri)
    return {
        name: sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, name))
        for name in run.data.metrics
        if name != "seconds" and not name.startswith("summary/")
    }


def worst(outputs: Any, targets: Any) -> float:
    return float(outputs.abs().max())


def test_everything_is_there_and_once_also_of_a_run_that_was_killed(tmp_path: Path) -> None:
    run, changes = tmp_path / "r", {"metrics": {"it's 5%": worst}}
    killed(run, 12, trackers=[MLflow()], **changes)
    model = [MLflow(model=True)]
    result = simulated(run, trackers=model, resume=True, checkpoints=OFTEN, **changes)
    uri, series = f"sqlite:///{run / 'mlflow' / 'mlflow.db'}", series_of(points_of(run))
    series["it_s 5_"] = series.pop("it's 5%")  # as MLflow takes it
    assert metrics_of(uri) == series
    client, found = read(uri)
    assert (found.info.run_name, found.info.status) == ("r", "FINISHED")
    assert found.data.params["protocol"] == "pisces"
    assert found.data.params["concurrency"] == "3"
    assert found.data.tags["summary.reason"] == "time"
    assert found.data.metrics["summary/num_updates"] == result.summary["num_updates"]
    files = [file.path for file in client.list_artifacts(found.info.run_id)]
    assert files == ["model.safetensors"]
    history = client.get_metric_history(found.info.run_id, "it_s 5_")
    times = sorted(one.timestamp for one in history)
    seconds = [line["at"] for line in pisces.load(run).events("evaluated")]
    assert [t - times[0] for t in times] == pytest.approx([1000 * s for s in seconds], abs=1)


def test_it_says_nothing_to_its_makers() -> None:
    from mlflow.telemetry.utils import is_telemetry_disabled

    MLflow()
    assert is_telemetry_disabled()


def test_a_server_that_is_not_there_is_told_of_at_once(tmp_path: Path, caplog: Any) -> None:
    with socket.socket() as nobody:  # a port at which nobody answers
        nobody.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        simulated(tmp_path / "r", trackers=[MLflow(uri)])
    said = [record.getMessage() for record in caplog.records]
    assert [f"cannot reach {uri}" in text for text in said] == [True]


def test_a_server_that_wants_to_know_who_asks_is_there() -> None:
    class Locked(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(401)

        def log_message(self, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Locked) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        reach(f"http://127.0.0.1:{server.server_port}/")
        thread.join()

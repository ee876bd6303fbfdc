"""Points as the history of a Weights & Biases run: offline, in `wandb/` of the run's folder.

    wandb sync runs/first/wandb/offline-run-*

`version` is the axis of all charts, and `seconds` can be chosen in its place. Online only where
`mode` or the environment (`WANDB_MODE`) says so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pisces.record.trackers.base import Point, Subject, Tracker, needing, outcome
from pisces.record.writer import MODEL, refuse_links

FOLDER = "wandb"  # its own choice


class WandB(Tracker):
    """History, config and, at the end, the summary; the `model` file too, where asked for.

    A run that is resumed goes on under its id. Offline its data is written anew, in place of what
    was there; online it is sent what the server has not.
    """

    name = "wandb"

    def __init__(
        self, *, project: str = "pisces", mode: str | None = None, model: bool = False
    ) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when it is imported
        with needing("Weights & Biases", "wandb"):
            import wandb

        self._wandb: Any = wandb
        self._project, self._sends_model = project, model
        self._mode = mode or os.environ.get("WANDB_MODE") or "offline"
        self._run: Any = None
        self._folder: Path | None = None
        self._next = 0  # the number of the first point that is not known there

    def begin(self, run: Subject) -> None:
        """Make the run, or go on with the one it was."""
        self._folder = run.folder
        if run.folder is not None:
            refuse_links(run.folder / FOLDER)
            if run.is_resumed and self._mode == "offline":
                for old in (run.folder / FOLDER).glob(f"offline-run-*-{run.id}"):
                    shutil.rmtree(old)
        self._run = self._wandb.init(
            project=self._project,
            dir=None if run.folder is None else str(run.folder),
            id=run.id,
            name=run.name,
            config=dict(run.parameters),
            mode=self._mode,
            resume="allow",
            reinit="create_new",  # others in this process are left alone
            allow_val_change=True,  # a later stop
            settings=self._wandb.Settings(
                silent=True, console="off", disable_git=True, disable_code=True
            ),
        )
        self._next = self._run.step if self._run.resumed else 0
        self._run.define_metric("version", hidden=True)
        self._run.define_metric("*", step_metric="version")

    def track(self, points: Sequence[Point]) -> None:
        """Log rows; those that are known there already are left out."""
        for point in points:
            if point.number >= self._next:
                row = {**point.values, "version": point.version, "seconds": point.at}
                self._run.log(row, step=point.number)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Say what came of it, and wait until all is written, or sent."""
        if summary is not None:
            self._run.summary.update(outcome(summary))
            if self._sends_model and self._folder is not None:
                path, name = self._folder / MODEL, f"model-{self._run.id}"
                self._run.log_artifact(str(path), name=name, type="model")
        self._run.finish(exit_code=0 if summary is not None else 1)

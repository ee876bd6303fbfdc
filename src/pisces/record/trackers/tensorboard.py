"""Points as TensorBoard's event files, in `tensorboard/` of the run's folder.

    tensorboard --logdir runs

The step is the version. The wall time of a point is when the run began plus its seconds, virtual or
not, so that "relative" is the run's own clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pisces.record.trackers.base import Point, Scalar, Subject, Tracker, needing, outcome
from pisces.record.writer import refuse_links

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"
SUFFIX = ".pisces"  # of our files: no others are removed


class TensorBoard(Tracker):
    """Scalars, the settings as text and, at the end, the summary and a row of "HParams".

    A run that is resumed has its file written anew.
    """

    name = "tensorboard"

    def __init__(self, folder: str | Path | None = None) -> None:
        with needing("TensorBoard", "tensorboard"):
            from tensorboard.compat.proto.summary_pb2 import Summary
            from torch.utils.tensorboard import SummaryWriter

        self.needs_folder = folder is None
        self._given = None if folder is None else Path(folder)
        self._make, self._summary = SummaryWriter, Summary
        self._writer: SummaryWriter | None = None
        self._run: Subject | None = None
        self._last: dict[str, float] = {}  # of evaluations

    def begin(self, run: Subject) -> None:
        """Open a file, and say what the settings are."""
        folder = self._given or (run.folder or Path()) / FOLDER
        refuse_links(folder)
        for file in folder.glob(f"events.out.tfevents.*{SUFFIX}") if run.is_resumed else ():
            file.unlink()
        # A TensorBoard that is open forgets what it read of the files before.
        purge = 0 if run.is_resumed else None
        self._run, self._last = run, {}
        self._writer = self._make(str(folder), purge_step=purge, filename_suffix=SUFFIX)
        self._writer.add_text("settings", _table(run.parameters), 0, run.began_at)
        self._writer.flush()

    def track(self, points: Sequence[Point]) -> None:
        """Write scalars."""
        assert self._writer is not None
        assert self._run is not None
        for point in points:
            # All values of a point in one event: a tenth of what one event each would cost.
            values = [*point.values.items(), ("seconds", point.at)]
            parts = [self._summary.Value(tag=_tag(n), simple_value=value) for n, value in values]
            file = self._writer._get_file_writer()
            file.add_summary(self._summary(value=parts), point.version, self._run.seen_at(point))
            if point.is_evaluation:
                self._last |= point.values
        self._writer.flush()

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Say what came of it."""
        assert self._writer is not None
        assert self._run is not None
        if summary is not None:
            at = self._run.began_at + summary["at"]
            self._writer.add_text("summary", _table(outcome(summary)), summary["versions"], at)
            self._compare()
        self._writer.close()

    def _compare(self) -> None:
        """A row of the table in which TensorBoard compares runs by their settings."""
        from torch.utils.tensorboard.summary import hparams

        assert self._writer is not None
        assert self._run is not None
        for part in hparams(dict(self._run.parameters), dict(self._last)):
            self._writer._get_file_writer().add_summary(part)


def _tag(name: str) -> str:
    """A name as TensorBoard takes it."""
    return re.sub(r"[^-/\w. ]", "_", name).lstrip("/")


def _table(values: Mapping[str, Scalar]) -> str:
    """As Markdown."""
    rows = [f"| {name} | {str(value).replace('|', '&#124;')} |" for name, value in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])

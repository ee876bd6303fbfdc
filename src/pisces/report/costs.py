"""What runs cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from pisces.record.writer import MODEL
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import ReadRun
from pisces.report.settings import told_apart

Unit: TypeAlias = Literal["seconds", "bytes", "number"]
QUANTITIES: Mapping[str, tuple[str, Unit]] = {  # what is told of a cost, and in what
    "time_s": ("time", "seconds"),
    "wall_s": ("wall time", "seconds"),
    "versions": ("versions", "number"),
    "tasks": ("tasks", "number"),
    "updates": ("updates", "number"),
    "aggregated": ("aggregated", "number"),
    "wasted": ("wasted", "number"),
    "samples": ("samples", "number"),
    "model_bytes": ("model bytes", "bytes"),
    "bytes": ("bytes", "bytes"),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run cost; None is what is not known.

    `samples` counts the examples of every update that arrived, once however many epochs it had.
    `model_bytes` is the size of the model's file, which is there when the run is over, and `bytes`
    what goes over the wire if each task fetches the model and each update brings one back, without
    compression.
    """

    name: str
    protocol: str
    seed: int | None
    reason: str | None
    time_s: float
    wall_s: float | None
    versions: int
    tasks: int
    updates: int
    aggregated: int
    wasted: int
    samples: int | None
    model_bytes: int | None
    bytes: int | None


def costs(ledgers: Sequence[Ledger]) -> list[Cost]:
    """What each run cost."""
    return [_cost(run) for run in told_apart([ReadRun.of(ledger) for ledger in ledgers])]


def _cost(run: ReadRun) -> Cost:
    ledger = run.ledger
    with ledger.lock:
        sizes = ledger.notes.tasks["num_examples"]
        counts, model_bytes = run.counts, _model_bytes(ledger)
        messages = counts.num_started + counts.num_updates
        return Cost(
            name=run.name,
            protocol=run.protocol,
            seed=run.seed,
            reason=counts.reason,
            time_s=counts.at,
            wall_s=run.wall_s,
            versions=counts.versions,
            tasks=counts.num_started,
            updates=counts.num_updates,
            aggregated=counts.num_aggregated,
            wasted=counts.num_started - counts.num_aggregated - _num_open(ledger),
            samples=int(np.maximum(sizes, 0).sum()) if np.any(sizes >= 0) else None,
            model_bytes=model_bytes,
            bytes=None if model_bytes is None else messages * model_bytes,
        )


def _num_open(ledger: Ledger) -> int:
    """Tasks that may still come to something: none when the run is over."""
    notes = ledger.notes
    return 0 if notes.reason is not None else notes.num_running + notes.num_waiting


def _model_bytes(ledger: Ledger) -> int | None:
    with suppress(OSError):
        return (ledger.path / MODEL).stat().st_size
    return None

"""What runs cost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from pisces.record.writer import MODEL
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import ReadRun


def costs(ledgers: Sequence[Ledger]) -> list[dict[str, Any]]:
    """What each run cost, a row each; None is what is not known.

    `samples` counts the examples of every update that arrived, once however many epochs it had.
    `model_bytes` is the size of the model's file, which is there when the run is over, and `bytes`
    what goes over the wire if each task fetches the model and each update brings one back, without
    compression.
    """
    return [_cost(ledger) for ledger in ledgers]


def _cost(ledger: Ledger) -> dict[str, Any]:
    with ledger.lock:
        run, tasks = ReadRun.of(ledger), ledger.notes.tasks
        summary = run.summary
        sizes = tasks["num_examples"]
        model_bytes = _model_bytes(ledger)
        messages = summary["num_started"] + summary["num_updates"]
        return {
            "run": str(ledger.path),
            "name": run.name,
            "protocol": run.protocol,
            "seed": run.seed,
            "reason": summary["reason"],
            "time_s": summary["at"],
            "wall_s": summary["wall_s"],
            "versions": summary["versions"],
            "tasks": summary["num_started"],
            "updates": summary["num_updates"],
            "aggregated": summary["num_aggregated"],
            "wasted": summary["num_started"] - summary["num_aggregated"],
            "samples": int(np.maximum(sizes, 0).sum()) if np.any(sizes >= 0) else None,
            "model_bytes": model_bytes,
            "bytes": None if model_bytes is None else messages * model_bytes,
        }


def _model_bytes(ledger: Ledger) -> int | None:
    with suppress(OSError):
        return (ledger.path / MODEL).stat().st_size
    return None

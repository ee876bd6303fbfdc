"""Run folders written by hand."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pisces.record.reader import Run

MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A run of `protocol` and `seed` with these accuracies by instant, over at `end`.

    One that is over for no `reason` is not over.
    """

    def make(
        protocol: str,
        seed: int,
        accuracies: Mapping[float, float | None],
        *,
        end: float = 100.0,
        reason: str | None = "time limit",
        lines: Sequence[Mapping[str, Any]] = (),
        **summary: Any,
    ) -> Run:
        path = tmp_path / "runs" / f"{protocol}-{seed}"
        path.mkdir(parents=True)
        (path / "config.toml").write_text(f'seed = {seed}\nprotocol = "{protocol}"\n')
        evaluated = [
            {"kind": "evaluated", "at": at, "version": 0, "accuracy": value}
            for at, value in accuracies.items()
        ]
        stopped = [{"kind": "stopped", "at": end, "reason": reason}] if reason else []
        text = "".join(json.dumps(line) + "\n" for line in [*lines, *evaluated, *stopped])
        (path / "events.jsonl").write_text(text)
        if summary:
            counted = Run.open(path).summary
            (path / "summary.json").write_text(json.dumps({**counted, **summary}))
        return Run.open(path)

    return make

"""A small study and records of it written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pisces.study import plan
from pisces.study.records import Clients, Losses, Record

STUDY = """
title = "Speed"
paper = "Figure 0"
says = "Fast is faster than slow."
reference = "fast"
axis = "clients"
figures = ["curves", "bars", "sweep", "aggregations", "involvement", "staleness", "losses"]

[[variant]]
name = "fast"
protocol = "pisces"

[[variant]]
name = "slow"
protocol = "fedavg"
set = ["train.epochs=2"]

[[point]]
x = 10
set = ["clients.count=10"]

[[point]]
x = 20
set = ["clients.count=20"]

[[case]]
name = "small"
target = 0.9
seeds = 2

[[case]]
name = "large"
config = "small.toml"
set = ["clients.count=30", "clients.concurrency=7"]
target = 0.8

[[claim]]
text = "fast is faster"
case = ["small", "large"]
measure = "time_to_target"
compare = "speedup"
of = "fast"
over = "slow"
at = 10
paper = "2x"
holds = ">= 1.5"
partly = ">= 1.0"
"""
CONFIG = "[clients]\nconcurrency = 5\n[stop]\ntime_s = 50\n"

MakeRecord = Callable[..., Record]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the study."""
    made = tmp_path / "speed"
    made.mkdir()
    (made / "study.toml").write_text(STUDY)
    (made / "small.toml").write_text(CONFIG)
    return made


@pytest.fixture
def study(folder: Path) -> plan.Study:
    """The study."""
    return plan.load(folder)


@pytest.fixture
def record() -> MakeRecord:
    """A record of a run that took `time` seconds to its target."""

    def make(variant: str, seed: int, time: float | tuple[float, float], **changes: Any) -> Record:
        ends = time if isinstance(time, tuple) else (time, time)
        values: dict[str, Any] = {
            "case": "small",
            "variant": variant,
            "x": 10.0,
            "seed": seed,
            "digest": "0123",
            "metric": "accuracy",
            "target": 0.9,
            "measures": {"time_to_target": ends, "final": (0.95, 0.95), "late_sd": (0.0, 0.0)},
            "times": (0, 10, 20.5),
            "values": (0.1, None, 0.95),
            "versions_at": (5, 15),
            "versions": (1, 2),
            "made_with": "pisces 0, torch 0",
            "trained_by": "sequential on cpu",
            "wall_s": 2.5,
            "clients": Clients((3, 5), (1, 2), (0, None), (0.5, None), (1, None)),
            "losses": Losses((5, 15), (1.5, 1.0), (None, 2.5)),
        }
        return Record(**{**values, **changes})

    return make

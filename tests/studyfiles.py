"""A study of two small runs, and what `pisces reproduce` has made of it."""

from __future__ import annotations

from pathlib import Path

STUDY = """
title = "Speed"
paper = "Figure 0"
says = "Pisces is faster than FedAvg."
reference = "pisces"
figures = ["curves"]

[[variant]]
name = "pisces"
protocol = "pisces"

[[variant]]
name = "fedavg"
protocol = "fedavg"

[[case]]
name = "small"
config = "../../small.toml"
target = 0.5
seeds = 1

[[claim]]
text = "Pisces is faster"
case = "small"
measure = "time_to_target"
compare = "speedup"
of = "pisces"
over = "fedavg"
paper = "2x"
holds = ">= 1.5"
"""
NO_DATA = '\n[[case]]\nname = "mnist"\ntarget = 0.9\nseeds = 1\n'


def change(study: Path, old: str, new: str) -> None:
    """Other words in a study's file."""
    file = study / "study.toml"
    file.write_text(file.read_text().replace(old, new))


def folders() -> list[Path]:
    """The runs that have ended."""
    return sorted(path.parent for path in Path("runs").rglob("summary.json"))


def made_at() -> list[int]:
    """When each of them did."""
    return [(path / "summary.json").stat().st_mtime_ns for path in folders()]

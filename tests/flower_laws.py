"""What must be true of a run over Flower's own processes, whatever happened to them."""

from __future__ import annotations

import numpy as np
from flower_processes import Run
from flower_tiny import START, step_of
from journals import fates, in_time
from runs import assert_lawful, of_kind
from safetensors.numpy import load_file

from pisces.record.lines import Line

INTERRUPTED = "the run stopped"  # why tasks end with a run, which is forgotten if it goes on


def assert_sound(run: Run, concurrency: int = 4) -> list[Line]:
    """Hold the log and the model of a run that is over against each other."""
    lines = run.lines
    assert_lawful(in_time(lines), concurrency)
    became = fates(lines)
    assert all(len(fate) == 1 for fate in became.values())  # none twice
    assert became.keys() == {line["task"] for line in of_kind(lines, "arrived")}  # none lost
    return lines


def assert_moved(run: Run, numbers: list[int]) -> None:
    """Of FedBuff: is the model what the log says came of these nodes' steps?"""
    steps = {run.client(number): step_of(number) for number in numbers}
    (saved,) = load_file(run.folder / "model.safetensors").values()
    np.testing.assert_allclose(saved, START + moved(run.lines, steps), atol=1e-6)


def moved(lines: list[Line], steps: dict[int, float]) -> float:
    """How far, by the plainest loop."""
    sent = {line["task"]: steps[line["client"]] for line in of_kind(lines, "arrived")}
    return sum(
        weight * sent[task]
        for line in of_kind(lines, "aggregated")
        for task, weight in zip(line["tasks"], line["weights"], strict=True)
    )


def lasting(lines: list[Line]) -> list[Line]:
    """What stays in the log if the run goes on: not that it was ended from outside.

    Without evaluations: those come in when they are done, before or after something else.
    """
    if lines[-1]["kind"] == "stopped" and lines[-1]["reason"] == "interrupted":
        lines = [line for line in lines[:-1] if line.get("reason") != INTERRUPTED]
    return [line for line in lines if line["kind"] != "evaluated"]

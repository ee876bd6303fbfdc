"""Lines of a log as the events and tasks they were written about."""

from __future__ import annotations

from pisces.record.lines import Line
from pisces.types import Arrived, Event, Failed, Joined, Left, Plan, Report, Task, Weights

_STEPS = "num_steps"  # to be done, and done, where the log tells: older ones do not


def event_of(line: Line, weights: Weights) -> Event | None:
    """What happened; None: something that changed nothing."""
    at, client = line["at"], line.get("client")
    if type(client) is not int:  # of whom nobody knows
        return None
    match line["kind"]:
        case "joined":
            return Joined(at, client, line["num_examples"])
        case "arrived":
            return Arrived(at, line["task"], client, weights, _report(line))
        case "failed" if "task" in line:
            return Failed(at, client, line["reason"], line["task"])
        case "left":
            return Left(at, client, line.get("reason", ""), line.get("task"))
        case _:
            return None


def _report(line: Line) -> Report:
    return Report(
        line.get("num_examples", 1),
        line.get("loss"),
        line.get("loss_rms"),
        line.get(_STEPS) or 0,
        line.get("loss_left"),
    )


def task_of(line: Line, version: int, weights: Weights) -> Task:
    """The task that was started, from whatever version is the newest here."""
    plan = Plan(max_steps=line.get(_STEPS))
    return Task(line["task"], line["client"], version, weights, plan, seed=0)

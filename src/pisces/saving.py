"""Tasks and updates as saved state: their facts as values, their weights as named arrays.

Weights of a version are stored under the version's number, once, however many tasks need them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from pisces.types import Layout, Plan, Report, State, Task, Update, Weights


def save_task(task: Task, state: State) -> dict[str, Any]:
    """The task's values; its weights go to `state` under its version."""
    state.arrays[f"version/{task.version}"] = task.weights.flat
    values = {f: getattr(task, f) for f in ("id", "client", "version", "seed", "deadline_s")}
    return {**values, "plan": asdict(task.plan)}


def load_task(values: dict[str, Any], state: State, layout: Layout) -> Task:
    """The task saved as `values`."""
    weights = Weights(state.arrays[f"version/{values['version']}"], layout)
    return Task(**{**values, "plan": Plan(**values["plan"]), "weights": weights})


def save_update(update: Update, state: State) -> dict[str, Any]:
    """The update's values; its weights and its base version's go to `state`."""
    state.arrays[f"version/{update.version}"] = update.base.flat
    state.arrays[f"update/{update.task_id}"] = update.weights.flat
    names = ("task_id", "client", "version", "arrived_at", "latency_s")
    return {**{f: getattr(update, f) for f in names}, "report": asdict(update.report)}


def load_update(values: dict[str, Any], state: State, layout: Layout) -> Update:
    """The update saved as `values`."""
    base = Weights(state.arrays[f"version/{values['version']}"], layout)
    weights = Weights(state.arrays[f"update/{values['task_id']}"], layout)
    report = Report(**values["report"])
    return Update(**{**values, "report": report, "base": base, "weights": weights})


def save_generator(rng: np.random.Generator) -> dict[str, Any]:
    """Where a generator stands."""
    return dict(rng.bit_generator.state)


def load_generator(rng: np.random.Generator, values: dict[str, Any]) -> None:
    """Set a generator to where the saved one stood."""
    rng.bit_generator.state = values

"""Pisces: asynchronous federated learning that does not wait for stragglers.

    import pisces

    result = pisces.simulate("pisces", model=net, clients=shards, test=held_out,
                             stop=pisces.Stop(time_s=1000))
    run = pisces.load("runs/my-run")

Names are imported when first used, so that `import pisces` is quick and does not need torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pisces.build import protocol
    from pisces.clients.checks import Limits
    from pisces.clients.view import View
    from pisces.evaluate import Schedule
    from pisces.execute.availability import Diurnal, Late, Markov
    from pisces.execute.failures import Failures
    from pisces.execute.latency import PerClient
    from pisces.policy import (
        Aggregator,
        Assignment,
        Judge,
        Pacer,
        Policies,
        Selector,
        Trait,
        Verdict,
    )
    from pisces.record.checkpoint import Checkpoints
    from pisces.record.reader import Run, load
    from pisces.record.trackers.base import Tracker
    from pisces.resuming import resume
    from pisces.simulation import Result, simulate
    from pisces.stop import Stop
    from pisces.train.base import Recipe
    from pisces.types import Plan

_HOMES = {
    "Aggregator": "pisces.policy",
    "Assignment": "pisces.policy",
    "Checkpoints": "pisces.record.checkpoint",
    "Diurnal": "pisces.execute.availability",
    "Failures": "pisces.execute.failures",
    "Judge": "pisces.policy",
    "Late": "pisces.execute.availability",
    "Limits": "pisces.clients.checks",
    "Markov": "pisces.execute.availability",
    "Pacer": "pisces.policy",
    "PerClient": "pisces.execute.latency",
    "Plan": "pisces.types",
    "Policies": "pisces.policy",
    "Recipe": "pisces.train.base",
    "Result": "pisces.simulation",
    "Run": "pisces.record.reader",
    "Schedule": "pisces.evaluate",
    "Selector": "pisces.policy",
    "Tracker": "pisces.record.trackers.base",
    "Trait": "pisces.policy",
    "Verdict": "pisces.policy",
    "Stop": "pisces.stop",
    "View": "pisces.clients.view",
    "load": "pisces.record.reader",
    "protocol": "pisces.build",
    "resume": "pisces.resuming",
    "simulate": "pisces.simulation",
}

__all__ = [
    "Aggregator",
    "Assignment",
    "Checkpoints",
    "Diurnal",
    "Failures",
    "Judge",
    "Late",
    "Limits",
    "Markov",
    "Pacer",
    "PerClient",
    "Plan",
    "Policies",
    "Recipe",
    "Result",
    "Run",
    "Schedule",
    "Selector",
    "Stop",
    "Tracker",
    "Trait",
    "Verdict",
    "View",
    "__version__",
    "load",
    "protocol",
    "resume",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pisces' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

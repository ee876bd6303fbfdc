"""How a task is put to a ClientApp: a message as Flower's own strategies write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pisces.execute.flower.api import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from pisces.types import Plan, Task


@dataclass(frozen=True, slots=True)
class Letters:
    """Where arrays and settings are found, and the settings of one's own."""

    arrays: str = "arrays"
    config: str = "config"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_train(self, task: Task, node: int, arrays: ArrayRecord) -> Message:
        """The task as ClientApps know it: a round of training is one more than the version."""
        number = task.version + 1
        content = self._content(arrays, {**_about(task.plan), "server-round": number})
        kind, ttl = MessageType.TRAIN, task.deadline_s
        return Message(content, node, kind, ttl=ttl, group_id=str(number))

    def to_evaluate(self, version: int, node: int, arrays: ArrayRecord, ttl: float) -> Message:
        """The question how good a version is."""
        content = self._content(arrays, {"server-round": version})
        return Message(content, node, MessageType.EVALUATE, ttl=ttl, group_id=str(version))

    def _content(self, arrays: ArrayRecord, told: Mapping[str, Any]) -> RecordDict:
        config = ConfigRecord({**self.settings, **told})
        return RecordDict({self.arrays: arrays, self.config: config})


def _about(plan: Plan) -> dict[str, float | int]:
    """What protocols ask of a client beside the app's own settings, named as FedProx names it."""
    told: dict[str, float | int] = {}
    if plan.proximal:
        told["proximal-mu"] = plan.proximal
    if plan.max_steps is not None:
        told["max-steps"] = plan.max_steps
    return told

"""One client: what it did, and why it was picked or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pisces.report.ledger.book import Ledger
from pisces.report.ledger.rows import ClientRow

Fate: TypeAlias = Literal["picked", "passed over", "running", "waiting", "gone", "distrusted"]
Outcome: TypeAlias = Literal[
    "running", "waiting", "aggregated", "dropped", "failed", "called off", "left"
]


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task of the client."""

    task: int
    version: int | None
    started_at: float
    ended_at: float | None
    outcome: Outcome
    reason: str | None
    staleness: int | None
    loss: float | None
    loss_left: float | None
    weight: float | None  # in the aggregation
    into_version: int | None
    is_outlier: bool
    credits: int | None  # left, where it cost one


@dataclass(frozen=True, slots=True)
class Decision:
    """One selection, as this client fared in it.

    `terms` are the parts of its score then, `lowest` the least score picked.
    """

    at: float
    version: int
    fate: Fate
    why: str  # one sentence
    terms: dict[str, float | None]
    lowest: float | None
    slots: int | None
    num_free: int | None


@dataclass(frozen=True, slots=True)
class ClientStory:
    """Facts, tasks and decisions of one client, newest first; pages of both are cut alike."""

    facts: ClientRow
    joined_at: float | None
    distrusted_at: float | None
    num_tasks: int
    tasks: tuple[TaskRow, ...]
    num_decisions: int
    decisions: tuple[Decision, ...]
    first: int
    note: str | None  # why there are no decisions, if so


def client_story(ledger: Ledger, client: int, first: int = 0, num: int = 100) -> ClientStory:
    """The client's story; a client that never turned up is a `RunError`."""
    raise NotImplementedError

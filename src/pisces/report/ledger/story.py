"""One client: what it did, and why it was picked or not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from pisces.errors import RunError
from pisces.report.arrays import Floats, Ints
from pisces.report.ledger.book import Ledger
from pisces.report.ledger.picks import SCORE
from pisces.report.ledger.rows import ClientRow, count_or_none, number_or_none, row_of
from pisces.report.ledger.tables import AGGREGATED, DROPPED, OUTCOMES, WAITING, Outcome, Tasks

Fate: TypeAlias = Literal["picked", "passed over", "running", "waiting", "gone", "distrusted"]
FATES: tuple[Fate, ...] = get_args(Fate)

ALWAYS: dict[str, str] = {
    "running": "It was training then.",
    "waiting": "Its update waited to be aggregated.",
    "gone": "It was not there.",
    "distrusted": "Distrusted: it has no credits left, and its score does not count.",
}
TASK_LINES = ("started_line", "ended_line", "settled_line", "outcome")
UPDATES = (WAITING, AGGREGATED, DROPPED)


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
    """Facts, a page of tasks and one of decisions of a client, newest first.

    `outcomes` count all its tasks, `fates` all decisions since it joined, of which `num_decisions`
    are asked for. `is_doubted`: its last update was taken for an outlier and dropped.
    """

    facts: ClientRow
    joined_at: float | None
    distrusted_at: float | None
    num_outliers: int
    is_doubted: bool
    num_tasks: int
    outcomes: dict[str, int]
    tasks: tuple[TaskRow, ...]
    first_task: int
    fates: dict[str, int]
    num_decisions: int
    decisions: tuple[Decision, ...]
    first: int
    note: str | None  # why there are no decisions, if so


def client_story(
    ledger: Ledger,
    client: int,
    first: int = 0,
    num: int = 100,
    *,
    fate: Fate | None = None,
    until: float | None = None,
    first_task: int = 0,
) -> ClientStory:
    """The client's story; a client that never turned up is a `RunError`.

    Pages are of `num` decisions from the `first` on, all or those of one `fate`, or up to an
    instant, and of as many tasks from the `first_task` on.
    """
    with ledger.lock:
        row = ledger.notes.row_of_client.get(client)
        if row is None:
            raise RunError(f"{ledger.path} tells of no client {client}: choose one that joined")
        part = Excerpt(max(0, first), max(0, num), fate, until, max(0, first_task))
        return _story(ledger, row, part)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Which part of a story is asked for."""

    first: int
    num: int
    fate: Fate | None
    until: float | None
    first_task: int

    def among(self, codes: Ints, at: Floats) -> Ints:
        """Places of the decisions that are asked for, of all with these fates and instants."""
        is_wanted = np.full(len(codes), True)
        if self.fate is not None:
            is_wanted &= codes == FATES.index(self.fate)
        if self.until is not None:
            is_wanted &= at <= self.until
        return np.flatnonzero(is_wanted)


def _story(ledger: Ledger, row: int, part: Excerpt) -> ClientStory:
    notes = ledger.notes
    clients, tasks = notes.clients, notes.tasks
    own = np.flatnonzero(tasks["client"] == row)
    since = int(np.searchsorted(notes.picks.decisions["line"], clients["joined_line"][row]))
    history = History(ledger, row, own)
    codes = history.fates(since)
    wanted = part.among(codes, notes.picks.decisions["at"][since:])
    page = wanted[::-1][part.first : part.first + part.num].tolist()
    newest = own[::-1][part.first_task : part.first_task + part.num].tolist()
    counts = np.bincount(codes, minlength=len(FATES)).tolist()
    outcomes = np.bincount(tasks["outcome"][own], minlength=len(OUTCOMES)).tolist()
    return ClientStory(
        facts=row_of(ledger, row),
        joined_at=number_or_none(clients["joined_at"][row].item()),
        distrusted_at=number_or_none(clients["distrusted_at"][row].item()),
        num_outliers=int(np.count_nonzero(tasks["is_outlier"][own])),
        is_doubted=_is_doubted(tasks, own),
        num_tasks=len(own),
        outcomes=dict(zip(OUTCOMES, outcomes, strict=True)),
        tasks=tuple(_task(ledger, task) for task in newest),
        first_task=part.first_task,
        fates=dict(zip(FATES, counts, strict=True)),
        num_decisions=len(wanted),
        decisions=tuple(history.decision(since + place, FATES[codes[place]]) for place in page),
        first=part.first,
        note=ledger.why_no_decisions,
    )


def _is_doubted(tasks: Tasks, own: NDArray[np.int64]) -> bool:
    """Was the last update that arrived of it an outlier, and dropped?"""
    updates = own[np.isin(tasks["outcome"][own], UPDATES)]
    if not len(updates):
        return False
    last = updates[-1]
    return bool(tasks["is_outlier"][last]) and int(tasks["outcome"][last]) == DROPPED


def _task(ledger: Ledger, row: int) -> TaskRow:
    notes = ledger.notes
    cell = {name: notes.tasks[name][row].item() for name in notes.tasks.FILLS}
    return TaskRow(
        task=cell["task"],
        version=count_or_none(cell["version"]),
        started_at=cell["started_at"],
        ended_at=number_or_none(cell["ended_at"]),
        outcome=OUTCOMES[cell["outcome"]],
        reason=notes.reasons[cell["reason"]] if cell["reason"] >= 0 else None,
        staleness=count_or_none(cell["staleness"]),
        loss=number_or_none(cell["loss"]),
        loss_left=number_or_none(cell["loss_left"]),
        weight=number_or_none(cell["weight"]),
        into_version=count_or_none(cell["into_version"]),
        is_outlier=cell["is_outlier"],
        credits=count_or_none(cell["credits"]),
    )


class History:
    """What one client was at any line of the log, found by bisection."""

    def __init__(self, ledger: Ledger, row: int, own_tasks: NDArray[np.int64]) -> None:
        notes = ledger.notes
        self._picks = notes.picks
        scores, tasks, comings = notes.picks.scores, notes.tasks, notes.comings
        self._scored = np.flatnonzero(scores["client"] == row)
        self._scored_in = scores["decision"][self._scored]
        self._tasks = {name: tasks[name][own_tasks] for name in TASK_LINES}
        came = comings["client"] == row
        self._came_lines, self._came = comings["line"][came], comings["is_present"][came]
        self._distrusted_line = notes.clients["distrusted_line"][row].item()

    def decision(self, number: int, fate: Fate) -> Decision:
        """This decision, in which it fared so, and why."""
        table = self._picks.decisions
        cell = {name: table[name][number].item() for name in table.FILLS}
        place = int(np.searchsorted(self._scored_in, number, side="right")) - 1
        scored = int(self._scored[place]) if place >= 0 else -1
        terms = self._picks.terms_of(scored)
        return Decision(
            at=cell["at"],
            version=max(0, cell["version"]),
            fate=fate,
            why=why(fate, cell, terms),
            terms=terms,
            lowest=number_or_none(cell["lowest"]),
            slots=count_or_none(cell["slots"]),
            num_free=count_or_none(cell["num_free"]),
        )

    def fates(self, since: int) -> NDArray[np.int64]:
        """How it fared in every decision from this one on: places in `FATES`."""
        lines = self._picks.decisions["line"][since:]
        # A client has one task at a time: the last started before is the one that may still count.
        task = np.searchsorted(self._tasks["started_line"], lines) - 1
        ended, settled, outcome = (
            _before(task, self._tasks[name]) for name in ("ended_line", "settled_line", "outcome")
        )
        is_running = (task >= 0) & ((ended < 0) | (ended > lines))
        is_open = (settled < 0) | (settled > lines)
        is_waiting = (task >= 0) & np.isin(outcome, UPDATES) & is_open
        came = np.searchsorted(self._came_lines, lines) - 1
        is_gone = (came < 0) | ~_before(came, self._came).astype(bool)
        is_distrusted = (self._distrusted_line >= 0) & (self._distrusted_line < lines)
        is_picked = np.zeros(len(lines), bool)
        own = self._scored_in[self._picks.scores["is_picked"][self._scored]]
        is_picked[own[own >= since] - since] = True
        told: dict[Fate, NDArray[np.bool_]] = {
            "picked": is_picked,
            "distrusted": is_distrusted,
            "gone": is_gone,
            "running": is_running,
            "waiting": is_waiting,
        }
        codes = [FATES.index(name) for name in told]
        found: NDArray[np.int64] = np.select([*told.values()], codes, FATES.index("passed over"))
        return found


def _before(places: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
    """The values at these places; whatever it is where a place is -1."""
    return values[places] if len(values) else np.zeros(len(places), np.int64)


def why(fate: Fate, decision: dict[str, Any], terms: dict[str, float | None]) -> str:
    """One sentence on how a client fared in a decision."""
    if fate in ALWAYS:
        return ALWAYS[fate]
    score, has_scores = terms.get(SCORE), decision["terms"] >= 0
    if not has_scores:
        return "Drawn by lot." if fate == "picked" else "Free, but not drawn: slots went by lot."
    if fate == "picked":
        return f"Picked: {_told(terms)}." if score is not None else "A newcomer, drawn by lot."
    if not decision["num_picked"]:
        return "Free, but nobody was picked."
    if score is None and not decision["num_unscored"]:
        return "Not heard from yet; all slots went by score, none to a newcomer."
    if score is None:
        return "Free and not heard from yet, but not drawn among the newcomers."
    lowest = decision["lowest"]
    if math.isnan(lowest):
        return f"Free with {_told(terms)}, but all slots went to newcomers drawn by lot."
    if score < lowest:
        return f"Free, but its score {score:.4g} is below {lowest:.4g}, the lowest that was picked."
    if score == lowest:
        return (
            f"Free; its score {score:.4g} is as high as the lowest that was picked, as far as the "
            "log tells."
        )
    return (
        f"Free; its score as last recorded, {score:.4g}, is not below the lowest "
        f"that was picked ({lowest:.4g}): it had changed by then, or chance has a say."
    )


def _told(terms: dict[str, float | None]) -> str:
    """`score 85.2 (utility 120.5, discount 0.7071)`."""
    parts = [
        f"{name} {value:.4g}"
        for name, value in terms.items()
        if name != SCORE and value is not None
    ]
    return f"score {terms[SCORE]:.4g}" + (f" ({', '.join(parts)})" if parts else "")

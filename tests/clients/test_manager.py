"""The client manager: every event, every bad update, and who may be selected after it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from worlds import weights

from pisces.clients.checks import Limits
from pisces.clients.manager import CROWD, NOT_RUNNING, ClientManager
from pisces.judge.learning import NothingLearnt
from pisces.policy import Judge, Verdict
from pisces.seeds import generator
from pisces.select.pisces import Guided
from pisces.types import (
    Aggregated,
    Arrived,
    Distrusted,
    Dropped,
    Entry,
    Evaluated,
    Event,
    Failed,
    Ignored,
    Joined,
    Left,
    Outlier,
    Plan,
    Report,
    Started,
    State,
    Task,
    Update,
    Weights,
)

MODEL = weights([0.0, 0.0])


class Verdicts(Judge):
    """Calls the updates of these tasks outliers, and remembers whom it judged."""

    def __init__(
        self,
        outliers: Collection[int] = (),
        *,
        drop: bool = False,
        forgive: bool = False,
        usual: float | None = None,
    ) -> None:
        self._outliers = outliers
        self._drop, self._forgive, self._usual = drop, forgive, usual
        self.judged: list[int] = []

    def judge(self, update: Update) -> Verdict:
        self.judged.append(update.task_id)
        if update.task_id not in self._outliers:
            return Verdict(forgives=self._forgive and update.report.loss is not None)
        return Verdict(is_outlier=True, keep=not self._drop, loss=self._usual)

    def state(self) -> State:
        return State({"judged": list(self.judged)})

    def restore(self, state: State) -> None:
        self.judged = list(state.values["judged"])


def manager_of(num_clients: int = 2, **settings: Any) -> ClientManager:
    """A manager whose clients joined at 0 with 100 examples each."""
    manager = ClientManager(MODEL.layout, **settings)
    for client in range(num_clients):
        see(manager, Joined(0.0, client, 100))
    return manager


def see(
    manager: ClientManager, event: Event, wanted: Callable[[Update], bool] = lambda _: True
) -> list[Entry]:
    return manager.observe(event, wanted)


def task_of(task_id: int, client: int, version: int = 0) -> Task:
    return Task(task_id, client, version, MODEL, Plan(), seed=task_id)


def start(manager: ClientManager, task_id: int, client: int, at: float = 0.0) -> Started:
    return manager.start(task_of(task_id, client, manager.version), at)


def arrived(task_id: int, client: int, at: float = 3.0, **report: Any) -> Arrived:
    said = Report(**{"num_examples": 100, "loss": 1.0, "loss_rms": 2.0, **report})
    return Arrived(at, task_id, client, weights([1.0, 2.0]), said)


def do(
    manager: ClientManager, task_id: int, client: int, at: float = 3.0, **report: Any
) -> list[Entry]:
    """One whole task, from 0 s to `at`."""
    start(manager, task_id, client)
    return see(manager, arrived(task_id, client, at, **report))


def selectable(manager: ClientManager) -> list[int]:
    return manager.view(0.0).selectable.tolist()


def shape_of(manager: ClientManager) -> str:
    """Everything it remembers, to be compared."""
    state = manager.state()
    arrays = {name: np.asarray(array).tolist() for name, array in state.arrays.items()}
    return json.dumps([state.values, arrays], sort_keys=True)


# --- joining and leaving --------------------------------------------------------------------------


def test_a_client_that_joins_can_be_selected() -> None:
    manager = manager_of(0)
    assert (manager.view(0.0).version, manager.view(0.0).last_aggregated_at) == (0, 0.0)
    assert see(manager, Joined(1.0, 2, 30)) == [Joined(1.0, 2, 30)]
    assert selectable(manager) == [2]  # rows 0 and 1 exist, but nobody came
    assert manager.view(1.0).clients.num_examples.tolist() == [0, 0, 30]


@pytest.mark.parametrize("num", [0, -1, 10**9, 2.0, True, "12", None])
def test_a_client_with_an_absurd_size_may_not_join(num: Any) -> None:
    manager = manager_of(0)
    (entry,) = see(manager, Joined(1.0, 0, num))
    assert isinstance(entry, Failed)
    assert entry.reason.startswith("refused to join: ")
    assert selectable(manager) == []


def test_limits_can_be_set() -> None:
    manager = manager_of(0, limits=Limits(max_examples=9))
    assert isinstance(see(manager, Joined(0.0, 0, 10))[0], Failed)
    assert isinstance(see(manager, Joined(0.0, 0, 9))[0], Joined)


def test_a_client_that_leaves_cannot_be_selected_until_it_joins_again() -> None:
    manager = manager_of(2)
    left = Left(1.0, 0, "went offline")
    assert see(manager, left) == [left]
    assert selectable(manager) == [1]
    see(manager, Joined(2.0, 0, 120))
    assert selectable(manager) == [0, 1]
    assert manager.view(2.0).clients.num_examples[0] == 120


def test_who_rejoins_is_remembered() -> None:
    manager = manager_of(1)
    do(manager, 0, client=0, at=3.0)
    manager.advance(4.0, [1.0])
    see(manager, Left(5.0, 0, "went offline"))
    see(manager, Joined(6.0, 0, 100))
    facts = manager.view(6.0).clients
    assert (facts.latency_s[0], facts.loss[0], facts.num_picks[0]) == (3.0, 1.0, 1)


def test_a_stranger_may_leave() -> None:
    manager = manager_of(1)
    start(manager, 0, client=0)
    before = shape_of(manager)
    assert see(manager, Left(1.0, 1, "who?", 0)) == [Left(1.0, 1, "who?")]
    assert shape_of(manager) == before


def test_leaving_ends_the_task() -> None:
    manager = manager_of(2)
    start(manager, 0, client=0)
    left = Left(1.0, 0, "dropped out", 0)
    assert see(manager, left) == [left]
    assert len(manager.view(1.0).running) == 0
    see(manager, Joined(2.0, 0, 100))
    assert selectable(manager) == [0, 1]


def test_leaving_without_naming_the_task_ends_it_too() -> None:
    manager = manager_of(1)
    start(manager, 5, client=0)
    assert see(manager, Left(1.0, 0, "went offline")) == [Left(1.0, 0, "went offline", 5)]
    assert not manager.running
    assert not manager.table.facts.running.any()


def test_leaving_cannot_end_somebody_elses_task() -> None:
    manager = manager_of(2)
    start(manager, 5, client=1)
    assert see(manager, Left(1.0, 0, "went offline", 5)) == [Left(1.0, 0, "went offline")]
    assert list(manager.running) == [5]
    assert manager.view(1.0).clients.present.tolist() == [False, True]


def crowd(*odd: Joined) -> list[Event]:
    """Enough who join at once to be taken in together, perhaps with an odd one among them."""
    return [*(Joined(0.0, client, 10 + client) for client in range(CROWD)), *odd]


def take_in(manager: ClientManager, events: list[Event]) -> list[Entry]:
    return list(manager.observe_all(events, lambda _: True))


def test_a_crowd_joins_as_its_members_would() -> None:
    at_once, one_by_one = manager_of(0), manager_of(0)
    assert take_in(at_once, crowd()) == crowd()
    for event in crowd():
        see(one_by_one, event)
    assert shape_of(at_once) == shape_of(one_by_one)
    assert selectable(at_once) == selectable(one_by_one) == list(range(CROWD))


@pytest.mark.parametrize(
    "odd",
    [Joined(0.0, -1, 5), Joined(0.0, 10**12, 5), Joined(0.0, 7, 0), Joined(0.0, 7, 2.5)],
    ids=["negative", "endless", "empty", "fraction"],
)
def test_in_a_crowd_too_only_the_odd_one_is_refused(odd: Joined) -> None:
    manager = manager_of(0)
    *joined, refused = take_in(manager, crowd(odd))
    assert joined == crowd()
    assert isinstance(refused, Failed)
    assert refused.reason.startswith("refused to join: ")
    assert selectable(manager) == list(range(CROWD))


@pytest.mark.parametrize("nobody", [2**70, "9", 2.5, True, None], ids=lambda c: type(c).__name__)
def test_word_of_what_is_no_client_is_written_down_and_changes_nothing(nobody: Any) -> None:
    manager = manager_of(1)
    sent = weights([1.0])
    events = [
        Joined(0.0, nobody, 5),
        Left(0.0, nobody, "went"),
        Failed(0.0, nobody, "broke", 0),
        Arrived(0.0, 0, nobody, sent, Report(5, 1.0, 1.0)),
    ]
    for event in events:
        (told,) = see(manager, event)
        assert isinstance(told, Failed)
        assert (told.client, told.task_id) == (-1, None)
        assert told.reason.startswith("a client must be an integer")
    assert selectable(manager) == [0]


def test_what_happens_among_joins_is_taken_in_at_its_place() -> None:
    manager = manager_of(1)
    events = [*crowd(), Left(0.0, 3, "went offline"), Joined(0.0, 3, 99)]
    assert take_in(manager, events) == events
    assert manager.view(0.0).clients.num_examples[3] == 99
    assert len(selectable(manager)) == CROWD


def test_who_never_came_can_leave() -> None:
    manager = manager_of(2)
    for client in (-1, 9):
        left = Left(1.0, client, "went offline", 0)
        assert see(manager, left) == [replace(left, task_id=None)]
    assert selectable(manager) == [0, 1]


# --- starting and failing -------------------------------------------------------------------------


def test_a_started_client_runs_and_is_not_selectable() -> None:
    manager = manager_of(2)
    manager.version = 4
    assert start(manager, 9, client=1, at=2.5) == Started(2.5, 9, 1, 4)
    running = manager.view(3.0).running
    assert running.task_ids.tolist() == [9]
    assert running.clients.tolist() == [1]
    assert running.versions.tolist() == [4]
    assert running.started_at.tolist() == [2.5]
    assert selectable(manager) == [0]
    assert manager.view(3.0).clients.num_picks.tolist() == [0, 1]


def test_running_tasks_are_listed_in_the_order_of_their_start() -> None:
    manager = manager_of(3)
    for task_id, client in ((4, 2), (1, 0), (3, 1)):
        start(manager, task_id, client)
    assert manager.view(0.0).running.task_ids.tolist() == [4, 1, 3]
    see(manager, Failed(1.0, 0, "crashed", 1))
    assert manager.view(1.0).running.task_ids.tolist() == [4, 3]


def test_a_view_stays_as_it_was() -> None:
    manager = manager_of(2)
    start(manager, 0, client=0)
    before = manager.view(0.0)
    start(manager, 1, client=1)
    assert before.running.task_ids.tolist() == [0]
    assert manager.view(0.0).running.task_ids.tolist() == [0, 1]


def test_a_view_is_the_same_until_something_changes() -> None:
    manager = manager_of(2)
    before = manager.view(1.0)
    assert manager.view(1.0) is before
    assert manager.view(2.0) is not before
    do(manager, 0, client=0)
    assert len(manager.view(1.0).buffer) == 1
    assert len(before.buffer) == 0


def test_a_failed_task_frees_its_client_and_costs_nothing() -> None:
    manager = manager_of(1)
    start(manager, 0, client=0)
    failed = Failed(1.0, 0, "crashed", 0)
    assert see(manager, failed) == [failed]
    assert selectable(manager) == [0]
    assert manager.view(1.0).clients.credits[0] == 5
    assert manager.num_updates == 0


def test_trouble_outside_a_task_is_only_noted() -> None:
    manager = manager_of(1)
    start(manager, 0, client=0)
    before = shape_of(manager)
    note = Failed(1.0, 0, "cannot be reached")
    assert see(manager, note) == [note]
    assert shape_of(manager) == before


@pytest.mark.parametrize(
    "reply",
    [Failed(2.0, 0, "again", 0), Failed(2.0, 0, "not mine", 1), Failed(2.0, 9, "stranger", 1)],
    ids=["twice", "somebody else's", "stranger"],
)
def test_a_failure_of_no_running_task_of_its_client_changes_nothing(reply: Failed) -> None:
    manager = manager_of(2)
    start(manager, 0, client=0)
    see(manager, Failed(1.0, 0, "crashed", 0))
    start(manager, 1, client=1)
    before = shape_of(manager)
    (entry,) = see(manager, reply)
    assert entry == Ignored(2.0, reply.client, reply.task_id, NOT_RUNNING)
    assert shape_of(manager) == before


# --- arriving -------------------------------------------------------------------------------------


def test_a_good_update_is_buffered_and_learned_from() -> None:
    manager = manager_of(2)
    manager.version = 2
    start(manager, 7, client=1, at=1.0)
    event = arrived(7, client=1, at=4.5, num_examples=80, loss=0.5, loss_rms=0.75)
    (update,) = see(manager, event)
    assert isinstance(update, Update)
    assert (update.task_id, update.client, update.version) == (7, 1, 2)
    assert (update.arrived_at, update.latency_s) == (4.5, 3.5)
    assert update.base is MODEL
    assert update.weights is event.weights
    assert manager.buffer == [update]
    facts = manager.view(4.5).clients
    assert facts.latency_s.tolist() == pytest.approx([math.nan, 3.5], nan_ok=True)
    assert (facts.loss[1], facts.loss_rms[1]) == (0.5, 0.75)
    assert (facts.last_version[1], facts.num_reports[1]) == (2, 1)
    assert facts.num_examples[1] == 100  # what it joined with, whatever this update used
    assert manager.num_updates == 1


def test_a_loss_it_does_not_tell_is_unknown_again() -> None:
    manager = manager_of(1)
    do(manager, 0, client=0)
    manager.advance(3.0, [1.0])
    start(manager, 1, client=0)
    see(manager, arrived(1, client=0, loss=None, loss_rms=None))
    facts = manager.view(3.0).clients
    assert np.isnan([facts.loss[0], facts.loss_rms[0]]).all()


def test_a_buffered_client_is_not_selectable_until_it_is_aggregated() -> None:
    manager = manager_of(2)
    do(manager, 0, client=0)
    assert selectable(manager) == [1]
    manager.advance(4.0, [1.0])
    assert selectable(manager) == [0, 1]


def test_an_update_survives_its_client() -> None:
    manager = manager_of(2)
    do(manager, 0, client=0)
    see(manager, Left(3.5, 0, "went offline"))
    assert [u.task_id for u in manager.buffer] == [0]
    # Back again, but its update still waits.
    see(manager, Joined(3.6, 0, 100))
    assert selectable(manager) == [1]
    assert manager.advance(4.0, [1.0]).task_ids == (0,)
    assert selectable(manager) == [0, 1]


@pytest.mark.parametrize(
    "reply",
    [arrived(0, client=0), arrived(1, client=0), arrived(8, client=0), arrived(1, client=9)],
    ids=["twice", "somebody else's", "never started", "stranger"],
)
def test_a_reply_to_no_running_task_of_its_client_changes_nothing(reply: Arrived) -> None:
    manager = manager_of(2, judge=Verdicts())
    do(manager, 0, client=0)
    start(manager, 1, client=1)
    before = shape_of(manager)
    (entry,) = see(manager, reply)
    assert entry == Ignored(3.0, reply.client, reply.task_id, NOT_RUNNING)
    assert shape_of(manager) == before


def test_a_reply_after_its_client_left_is_too_late() -> None:
    manager = manager_of(1)
    start(manager, 0, client=0)
    see(manager, Left(1.0, 0, "deadline passed", 0))
    before = shape_of(manager)
    assert isinstance(see(manager, arrived(0, client=0))[0], Ignored)
    assert shape_of(manager) == before


def test_an_unwanted_update_is_learned_from_but_not_buffered() -> None:
    manager = manager_of(1)
    start(manager, 0, client=0)
    update, dropped = see(manager, arrived(0, client=0), wanted=lambda _: False)
    assert isinstance(update, Update)
    assert dropped == Dropped(3.0, 0, "too late")
    assert manager.buffer == []
    assert selectable(manager) == [0]
    assert manager.view(3.0).clients.latency_s[0] == 3.0


def test_wanted_is_asked_about_the_update_itself() -> None:
    manager, asked = manager_of(1), []
    start(manager, 4, client=0)
    see(manager, arrived(4, client=0), wanted=lambda u: not asked.append(u.task_id))
    assert asked == [4]


# --- bad updates ----------------------------------------------------------------------------------


def bad_weights(*values: float, dtype: torch.dtype = torch.float32) -> Arrived:
    return replace(arrived(0, 0), weights=Weights(torch.tensor(values, dtype=dtype), MODEL.layout))


BAD = {
    "nan": (bad_weights(1.0, math.nan), "not finite"),
    "inf": (bad_weights(math.inf, 1.0), "not finite"),
    "too short": (bad_weights(1.0), "shape (1,)"),
    "too long": (bad_weights(1.0, 2.0, 3.0), "shape (3,)"),
    "integers": (bad_weights(1, 2, dtype=torch.int32), "int32"),
    "float64": (bad_weights(1.0, 1e300, dtype=torch.float64), "float64"),
    "no examples": (arrived(0, 0, num_examples=0), "0 examples"),
    "negative": (arrived(0, 0, num_examples=-3), "-3 examples"),
    "huge": (arrived(0, 0, num_examples=10**12), "1000000000000 examples"),
    "fraction": (arrived(0, 0, num_examples=2.5), "2.5"),
    "more than declared": (arrived(0, 0, num_examples=101), "more than the 100 it joined with"),
    "loss nan": (arrived(0, 0, loss=math.nan), "loss nan"),
    "loss absurd": (arrived(0, 0, loss=1e7, loss_rms=1e7), "loss 10000000.0"),
    "loss no number": (arrived(0, 0, loss="low"), "loss 'low'"),
    "loss left nan": (arrived(0, 0, loss_left=math.nan), "loss left nan"),
    "loss left absurd": (arrived(0, 0, loss_left=1e7), "loss left 10000000.0"),
    "rms nan": (arrived(0, 0, loss_rms=math.nan), "RMS loss nan"),
    "rms below mean": (arrived(0, 0, loss=2.0, loss_rms=1.0), "RMS loss 1, below 2"),
}


@pytest.mark.parametrize(("event", "says"), BAD.values(), ids=BAD.keys())
def test_a_bad_update_fails_and_costs_a_credit(event: Arrived, says: str) -> None:
    judge = Verdicts()
    manager = manager_of(1, judge=judge)
    start(manager, 0, client=0)
    (failed,) = see(manager, event)
    assert isinstance(failed, Failed)
    assert failed.task_id == 0
    assert failed.reason.startswith("update refused: ")
    assert says in failed.reason
    facts = manager.view(3.0).clients
    assert facts.credits[0] == 4
    # Nothing of it was believed, and its client may try again.
    assert manager.buffer == []
    assert judge.judged == []
    assert manager.num_updates == facts.num_reports[0] == 0
    assert np.isnan([facts.loss[0], facts.latency_s[0]]).all()
    assert selectable(manager) == [0]


def spoil(manager: ClientManager, task_id: int) -> list[Entry]:
    start(manager, task_id, client=0)
    return see(manager, arrived(task_id, client=0, num_examples=0))


def test_the_fifth_bad_update_makes_a_client_distrusted() -> None:
    manager = manager_of(2)
    for task_id in range(4):
        assert len(spoil(manager, task_id)) == 1
    assert selectable(manager) == [0, 1]
    failed, distrusted = spoil(manager, 4)
    assert isinstance(failed, Failed)
    assert distrusted == Distrusted(3.0, 0)
    assert selectable(manager) == [1]


def test_distrust_is_said_once_and_outlives_leaving() -> None:
    manager = manager_of(2, credits=1)
    assert len(spoil(manager, 0)) == 2
    assert len(spoil(manager, 1)) == 1
    assert manager.view(0.0).clients.credits[0] == 0
    see(manager, Left(4.0, 0, "went offline"))
    see(manager, Joined(5.0, 0, 100))
    assert selectable(manager) == [1]


# --- outliers -------------------------------------------------------------------------------------


def test_an_outlier_costs_a_credit_but_is_kept() -> None:
    manager = manager_of(1, judge=Verdicts([0]))
    update, outlier = do(manager, 0, client=0)
    assert isinstance(update, Update)
    assert outlier == Outlier(3.0, 0, 0, credits=4)
    assert manager.buffer == [update]


def test_outliers_may_be_dropped() -> None:
    manager = manager_of(1, judge=Verdicts([0], drop=True))
    _, _, dropped = do(manager, 0, client=0)
    assert dropped == Dropped(3.0, 0, "its loss is doubted")
    assert manager.buffer == []
    do(manager, 1, client=0)  # only outliers are
    assert [u.task_id for u in manager.buffer] == [1]


def test_the_last_outlier_is_the_end_of_trust() -> None:
    manager = manager_of(2, judge=Verdicts([0, 1]), credits=2)
    do(manager, 0, client=0)
    manager.advance(4.0, [1.0])
    _, outlier, distrusted = do(manager, 1, client=0)
    assert outlier == Outlier(3.0, 0, 1, credits=0)
    assert distrusted == Distrusted(3.0, 0)
    assert [u.task_id for u in manager.buffer] == [1]  # the update itself still counts
    manager.advance(5.0, [1.0])
    assert selectable(manager) == [1]


def test_bad_updates_and_outliers_draw_on_the_same_credits() -> None:
    manager = manager_of(1, judge=Verdicts([1]), credits=2)
    spoil(manager, 0)
    assert do(manager, 1, client=0)[-1] == Distrusted(3.0, 0)


def credits_after_each(manager: ClientManager, losses: Sequence[float | None]) -> list[int]:
    """What client 0 has left after each of its tasks."""
    left = []
    for task_id, loss in enumerate(losses):
        do(manager, task_id, client=0, loss=loss, loss_rms=loss)
        left.append(int(manager.view(3.0).clients.credits[0]))
    return left


@pytest.mark.parametrize(("forgive", "left"), [(False, [4, 4, 3, 2, 2]), (True, [4, 5, 4, 3, 4])])
def test_a_believed_loss_gives_a_credit_back_where_the_judge_forgives(
    forgive: bool, left: list[int]
) -> None:
    manager = manager_of(1, judge=Verdicts([0, 2, 3], forgive=forgive))
    assert credits_after_each(manager, [1.0] * 5) == left


def test_nobody_has_more_credits_than_to_begin_with_and_who_tells_no_loss_gets_none() -> None:
    manager = manager_of(1, judge=Verdicts([2], forgive=True), credits=2)
    assert credits_after_each(manager, [1.0, 1.0, 1.0, None, 1.0]) == [2, 2, 1, 1, 2]


@pytest.mark.parametrize(("usual", "seen"), [(None, (9.0, 9.5)), (0.5, (0.5, 0.5))])
def test_a_doubted_loss_counts_as_what_is_usual_if_the_judge_says_so(
    usual: float | None, seen: tuple[float, float]
) -> None:
    manager = manager_of(2, judge=Verdicts([0], usual=usual))
    update, outlier = do(manager, 0, client=0, loss=9.0, loss_rms=9.5)
    do(manager, 1, client=1, loss=9.0, loss_rms=9.5)  # believed
    assert isinstance(update, Update)
    assert (update.report.loss, update.report.loss_rms) == (9.0, 9.5)  # what it told is noted
    assert outlier == Outlier(3.0, 0, 0, credits=4)
    facts = manager.view(3.0).clients
    assert (facts.loss[0], facts.loss_rms[0]) == seen
    assert (facts.loss[1], facts.loss_rms[1]) == (9.0, 9.5)


@pytest.mark.parametrize(("judged", "picked"), [(False, 2), (True, 1)])
def test_guided_selection_does_not_prefer_a_doubted_client(judged: bool, picked: int) -> None:
    # Client 2 is left with all of its 9, more than 3/4 of 1.2 and 2.5 times the others' 0.2, so it
    # counts as 1.1. The selector has seen the table before: it has to be told of the change.
    manager = manager_of(3, judge=NothingLearnt(2) if judged else None)
    selector = Guided(exploration=0.0, min_exploration=0.0)
    for client, (loss, left) in enumerate(((1.0, 0.2), (1.2, 0.2), (9.0, 9.0))):
        do(manager, client, client=client, loss=loss, loss_rms=loss, loss_left=left)
        manager.empty_buffer()
        (pick,) = selector.pick(manager.view(3.0), 1, generator(1, "select"))
    assert pick.client == picked


# --- new versions ---------------------------------------------------------------------------------


def test_a_new_version_empties_the_buffer() -> None:
    manager = manager_of(2)
    do(manager, 0, client=0)
    start(manager, 1, client=1)
    # Task 0 was trained from version 0 and used at once: staleness 0.
    assert manager.advance(4.0, [0.5]) == Aggregated(4.0, 1, (0,), (0,), (0.5,))
    assert (manager.version, manager.last_aggregated_at, manager.buffer) == (1, 4.0, [])
    # Task 1 as well, but a version was made in between: staleness 1.
    see(manager, arrived(1, client=1, at=5.0))
    assert manager.advance(6.0, [0.7]) == Aggregated(6.0, 2, (1,), (1,), (0.7,))


def test_the_staleness_of_the_last_five_is_remembered() -> None:
    # Six tasks of client 0, started from version 0 but used at versions 0 .. 5.
    manager = manager_of(1)
    for task_id in range(6):
        manager.start(task_of(task_id, 0, version=0), at=0.0)
        see(manager, arrived(task_id, client=0))
        manager.advance(3.0, [1.0])
    facts = manager.view(3.0).clients
    assert facts.recent_staleness[0].tolist() == [1, 2, 3, 4, 5]
    assert facts.staleness[0] == 3.0


def test_a_dropped_update_leaves_no_staleness() -> None:
    manager = manager_of(1)
    start(manager, 0, client=0)
    see(manager, arrived(0, client=0), wanted=lambda _: False)
    assert manager.view(3.0).clients.recent_staleness[0].tolist() == [-1] * 5


def test_emptying_the_buffer_sets_its_clients_free() -> None:
    manager = manager_of(2)
    do(manager, 0, client=0)
    assert [u.task_id for u in manager.empty_buffer()] == [0]
    assert selectable(manager) == [0, 1]
    assert manager.version == 0


# --- saving ---------------------------------------------------------------------------------------


def busy_manager() -> ClientManager:
    manager = manager_of(3, judge=Verdicts([0]))
    do(manager, 0, client=0)
    manager.advance(4.0, [1.0])
    start(manager, 1, client=1, at=4.0)
    start(manager, 2, client=2, at=4.0)
    see(manager, arrived(1, client=1, at=6.0))
    manager.history.append(Evaluated(4.0, 1, {"accuracy": 0.5}))
    return manager


def test_state_survives_json_and_goes_on_alike() -> None:
    old = busy_manager()
    state = old.state()
    new = ClientManager(MODEL.layout, judge=Verdicts([0]))
    assert len(new.view(0.0).running) == 0
    new.restore(State(json.loads(json.dumps(state.values)), state.arrays))
    assert shape_of(new) == shape_of(old)
    assert new.history == old.history
    assert new.view(7.0).running.task_ids.tolist() == [2]
    for manager in (old, new):
        # Task 1 was trained from version 1 and is used there; task 2 arrives after that.
        assert manager.advance(7.0, [1.0]) == Aggregated(7.0, 2, (1,), (0,), (1.0,))
        (update,) = see(manager, arrived(2, client=2, at=9.0))
        assert isinstance(update, Update)
        assert (update.version, update.latency_s) == (1, 5.0)
        assert torch.equal(update.base.flat, MODEL.flat)
    assert shape_of(new) == shape_of(old)


def test_a_version_needed_by_many_is_saved_once() -> None:
    arrays = busy_manager().state().arrays
    assert sorted(a for a in arrays if a.startswith(("version", "update"))) == [
        "update/1",
        "version/1",
    ]


def test_without_a_judge_there_is_nothing_of_it_to_save() -> None:
    old, new = manager_of(2), ClientManager(MODEL.layout)
    assert "judge" not in old.state().values
    new.restore(old.state())
    assert selectable(new) == [0, 1]

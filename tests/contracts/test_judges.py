"""What holds of every judge: add yours to the table and it is held to all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import implementations, through_json, without_a_row
from worlds import update

import pisces.judge
from pisces.judge.clusters import LossOutliers
from pisces.judge.learning import NothingLearnt
from pisces.policy import Judge, Verdict
from pisces.types import Update

C = 4  # concurrency
JUDGES: dict[str, Callable[[], Judge]] = {
    "nothing learnt": lambda: NothingLearnt(C),
    "loss outliers": lambda: LossOutliers(C),
    "loss outliers, as the code of Pisces": lambda: LossOutliers(C, eps=0.5),
    "loss outliers, dropped": lambda: LossOutliers(C, window=0, drop=True),
}

every_judge = pytest.mark.parametrize("name", JUDGES)

losses = st.sampled_from([0.5, 0.9, 1.0, 1.1, 1.3, 9.0]) | st.floats(0.0, 50.0)
some_updates = st.lists(
    st.builds(
        update,
        st.integers(0, 9),
        version=st.integers(0, 3),
        loss=st.none() | losses,
        loss_left=st.none() | losses,
    ),
    max_size=40,
)


def told(client: int, loss: float) -> Update:
    """Local training leaves a quarter of the loss: of a high one, still a high one."""
    return update(client, loss=loss, loss_left=loss / 4)


def verdicts(judge: Judge, updates: Sequence[Update]) -> list[Verdict]:
    return [judge.judge(u) for u in updates]


def outliers(judge: Judge, updates: Sequence[Update]) -> list[bool]:
    return [verdict.is_outlier for verdict in verdicts(judge, updates)]


def test_every_judge_has_a_row() -> None:
    found = implementations(pisces.judge, "judge")
    assert found == {type(make()) for make in JUDGES.values()}
    assert without_a_row("judge", JUDGES) == []


@every_judge
@pytest.mark.parametrize("loss", [1.0, 99.0])
def test_only_what_stands_apart_is_an_outlier(name: str, loss: float) -> None:
    alike = [told(client, 1.0) for client in range(C)]
    assert outliers(JUDGES[name](), [*alike, told(C, loss)]) == [False] * C + [loss > 1.0]


@every_judge
def test_nobody_is_judged_among_fewer_than_run_at_once(name: str) -> None:
    few = [told(client, 10.0**client) for client in range(C - 1)]
    assert outliers(JUDGES[name](), few) == [False] * (C - 1)


@every_judge
@settings(max_examples=30)
@given(updates=some_updates)
def test_who_tells_no_loss_changes_nothing(name: str, updates: list[Update]) -> None:
    others = [u for u in updates if u.report.loss is not None]
    judge, other = JUDGES[name](), JUDGES[name]()
    found = list(zip(verdicts(judge, updates), updates, strict=True))
    assert [v for v, u in found if u.report.loss is not None] == verdicts(other, others)
    assert all(v == Verdict() for v, u in found if u.report.loss is None)
    assert judge.state() == other.state()


@every_judge
@settings(max_examples=30)
@given(updates=some_updates)
def test_only_outliers_are_dropped_or_counted_as_another_loss_that_was_told(
    name: str, updates: list[Update]
) -> None:
    said = [u.report.loss for u in updates if u.report.loss is not None]
    for verdict in verdicts(JUDGES[name](), updates):
        assert verdict.is_outlier or (verdict.keep and verdict.loss is None)
        assert not (verdict.is_outlier and verdict.forgives)
        assert verdict.loss is None or min(said) <= verdict.loss <= max(said)


@every_judge
@settings(max_examples=30)
@given(updates=some_updates, cut=st.integers(0, 40))
def test_goes_on_from_its_state(name: str, updates: list[Update], cut: int) -> None:
    judge, fresh = JUDGES[name](), JUDGES[name]()
    verdicts(judge, updates[:cut])
    fresh.restore(through_json(judge.state()))
    assert verdicts(fresh, updates[cut:]) == verdicts(judge, updates[cut:])
    assert fresh.state() == judge.state()

"""Nothing learnt, for any updates: held against the rule in its plainest words, and its state."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hypothesis import given, settings
from hypothesis import strategies as st
from runs import through_json
from worlds import update

from pisces.judge.learning import NothingLearnt
from pisces.policy import Verdict
from pisces.types import Update


def told(client: int, loss: float | None, left: float | None, version: int) -> Update:
    return update(client, version=version, loss=loss, loss_left=left)


# Losses near 2, of which much or nothing is left: enough to be judged, and to start anew.
usual_updates = st.builds(
    told,
    st.integers(0, 7),
    st.sampled_from([1.75, 2.0, 2.25]),
    st.sampled_from([0.0, 0.25, 0.75, 1.6, 1.8]),
    st.sampled_from([0, 1]),
)
# Multiples of 1/4 make ties; some are not told, or absurd.
losses = st.none() | st.integers(0, 12).map(lambda n: n / 4) | st.floats(-1.0, 3.0) | st.just(20.0)
odd_updates = st.builds(told, st.integers(0, 11), losses, losses, st.sampled_from([0, 1, 7]))
some_updates = st.lists(usual_updates, min_size=15, max_size=60) | st.lists(
    usual_updates | odd_updates, max_size=60
)


def lately(told: Sequence[tuple[int, float]], most: int) -> list[float]:
    """The last number of each of the `most` clients heard from last."""
    last_of: dict[int, float] = {}
    for client, number in reversed(told):
        last_of.setdefault(client, number)
    return list(last_of.values())[:most]


def by_the_book(updates: Sequence[Update], concurrency: int) -> list[Verdict]:
    """The verdicts, with every median taken from the start."""
    at_first: list[tuple[int, float]] = []
    losses: list[tuple[int, float]] = []
    lefts: list[tuple[int, float]] = []
    doubted: list[tuple[int, float]] = []
    verdicts, most = [], 2 * concurrency
    for each in updates:
        verdict, loss, left = Verdict(), each.report.loss, each.report.loss_left
        if loss is not None and left is not None:
            at_first += [(each.client, loss)] * (each.version == 0)
            guesses, believed = lately(at_first, most), lately(lefts, most)
            is_outlier = len(believed) >= concurrency and stands_apart(left, guesses, believed)
            doubted.append((each.client, is_outlier))
            verdict = Verdict(forgives=True)
            if is_outlier:
                verdict = Verdict(True, keep=False, loss=median(lately(losses, most)))
            else:
                losses.append((each.client, loss))
                lefts.append((each.client, left))
            latest = lately(doubted, most)
            if 2 * sum(latest) > len(latest):
                losses, lefts, doubted = [], [], []
        verdicts.append(verdict)
    return verdicts


def quartile(numbers: Sequence[float]) -> float:
    return sorted(numbers)[len(numbers) // 4]


def stands_apart(left: float, guesses: Sequence[float], believed: Sequence[float]) -> bool:
    """Is it beyond both limits, where there are any?"""
    if not guesses or median(guesses) <= 0 or quartile(believed) < 0:
        return False
    ignorance = median(guesses)
    apart = sorted(abs(each - ignorance) for each in guesses)
    if apart[max(1, 9 * len(apart) // 10) - 1] > 0.5 * ignorance:
        return False
    return left > max(0.75 * ignorance, 2.5 * quartile(believed))


@settings(max_examples=150, deadline=None)
@given(updates=some_updates, concurrency=st.integers(2, 5))
def test_verdicts_are_those_of_the_book(updates: list[Update], concurrency: int) -> None:
    judge = NothingLearnt(concurrency)
    assert [judge.judge(each) for each in updates] == by_the_book(updates, concurrency)


@settings(max_examples=100, deadline=None)
@given(before=some_updates, after=some_updates, to_be_forgotten=some_updates)
def test_goes_on_from_its_state(
    before: list[Update], after: list[Update], to_be_forgotten: list[Update]
) -> None:
    old, new = NothingLearnt(3), NothingLearnt(3)
    for judge, updates in ((old, before), (new, to_be_forgotten)):
        for each in updates:
            judge.judge(each)
    new.restore(through_json(old.state()))
    assert new.state() == old.state()
    assert [new.judge(each) for each in after] == [old.judge(each) for each in after]
    assert new.state() == old.state()

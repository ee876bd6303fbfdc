"""High losses: a limit worked out by hand, and what does not move it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import update

from pisces.clients.doubt import HighLosses
from pisces.types import State

# C = 4, so four losses are enough to judge by, and eight are kept. The median of these is 1.025,
# the distances from it are .125, .025, .025 and .075, their median is .05: the limit is
# 1.025 + 3 x 1.4826 x .05 = 1.24739, with one sigma 1.025 + 1.4826 x .05 = 1.09913.
PEERS = (0.9, 1.0, 1.05, 1.1)


def judged(judge: HighLosses, losses: Sequence[float]) -> list[bool]:
    """The verdict on each loss as it comes in."""
    return [judge.judge(update(client, loss=loss)).is_outlier for client, loss in enumerate(losses)]


def counts_as(judge: HighLosses, loss: float = 99.0) -> float | None:
    """What a loss is taken for, when that of client 9 is."""
    return judge.judge(update(9, loss=loss)).loss


def judge_of(losses: Sequence[float] = PEERS, concurrency: int = 4, **more: float) -> HighLosses:
    """One that has seen these losses and believed them all."""
    judge = HighLosses(concurrency, **more)
    assert not any(judged(judge, losses))
    return judge


@pytest.mark.parametrize(
    ("sigmas", "loss", "doubted"),
    [
        *[(3.0, 1.2473, False), (3.0, 1.2474, True), (3.0, 99.0, True)],
        *[(1.0, 1.0991, False), (1.0, 1.0992, True)],
    ],
)
def test_the_limit_is_so_many_robust_deviations_above_the_median(
    sigmas: float, loss: float, doubted: bool
) -> None:
    assert judged(judge_of(sigmas=sigmas), [loss]) == [doubted]


def test_a_low_loss_is_never_doubted() -> None:
    # As far below the median as the limit is above it would be 0.803.
    assert judged(judge_of(), [0.8, 0.1, 0.0]) == [False] * 3


def test_a_doubted_loss_counts_as_the_median_of_those_believed() -> None:
    judge = judge_of()
    assert counts_as(judge, 1.2) is None  # as what it is
    assert counts_as(judge, 9.0) == 1.05
    assert counts_as(judge, 99.0) == 1.05  # the 9 has not moved it


def test_those_believed_are_the_latest_of_twice_the_concurrency() -> None:
    # Losses fall as the model learns, and the limit with them: what was usual at first is not now.
    judge = judge_of([2.0, 2.1, 1.9, 2.0])
    assert judged(judge, [1.0, 1.1, 0.9, 1.0, 1.0, 1.1, 0.9, 9.0, 1.0]) == [
        *[False] * 7,
        True,
        False,
    ]
    assert judge.state().values["believed"] == [1.0, 1.1, 0.9, 1.0, 1.0, 1.1, 0.9, 1.0]
    assert judged(judge, [2.0]) == [True]


# --- the doubted do not decide what is usual ------------------------------------------------------


def test_a_majority_of_high_losses_is_doubted_all_the_same() -> None:
    # Three of four, as many as there may be, however long: clustered they would be the normal ones.
    judge = judge_of()
    for _ in range(50):
        assert judged(judge, [9.0, 8.5, 9.5, 1.0]) == [True, True, True, False]
    assert judge.state().values["believed"] == [1.0] * 8


def test_when_more_than_three_quarters_are_doubted_judging_starts_anew() -> None:
    # Of the latest eight, six doubted are three quarters; the seventh is one too many.
    judge = judge_of()
    assert judged(judge, [9.0] * 6) == [True] * 6
    assert counts_as(judge) == pytest.approx(1.025)  # the last one, too
    assert judge.state() == HighLosses(4).state()
    # Now 9 is what is usual, from the fourth on.
    assert judged(judge, [9.0, 9.1, 8.9, 9.0]) == [False] * 4
    assert judged(judge, [9.2, 20.0]) == [False, True]  # up to 9 + 3 x 1.4826 x .05 = 9.22
    assert counts_as(judge) == 9.0


def test_doubts_of_long_ago_do_not_count() -> None:
    judge = judge_of()
    for _ in range(5):
        assert judged(judge, [9.0] * 6) == [True] * 6
        assert judged(judge, [*PEERS, *PEERS]) == [False] * 8


# --- who is not judged ----------------------------------------------------------------------------


@pytest.mark.parametrize(("concurrency", "unjudged"), [(1, 2), (2, 2), (4, 4), (9, 9)])
def test_nobody_is_judged_before_there_are_as_many_losses_as_run_at_once(
    concurrency: int, unjudged: int
) -> None:
    # One loss alone would be its own median, and no other like it.
    losses = [1.0] * (unjudged - 1)
    assert judged(HighLosses(concurrency), [*losses, 99.0]) == [False] * unjudged
    assert judged(HighLosses(concurrency), [*losses, 1.0, 99.0]) == [False] * unjudged + [True]


def test_who_does_not_tell_its_loss_is_not_judged_nor_remembered() -> None:
    judge = judge_of()
    before = judge.state()
    assert not judge.judge(update(0, loss=None)).is_outlier
    assert judge.state() == before


def test_losses_that_agree_to_a_thousandth_are_never_doubted() -> None:
    # They do not differ at all: the limit is 2 x 1.001 = 2.002.
    assert judged(judge_of([2.0] * 4), [2.0019]) == [False]
    assert judged(judge_of([2.0] * 4), [2.0021]) == [True]


def test_losses_of_nothing_are_usual_where_all_are() -> None:
    assert judged(judge_of([0.0] * 4), [0.0]) == [False]


# --- what follows, and saving ---------------------------------------------------------------------


def test_a_doubted_update_is_dropped() -> None:
    judge = judge_of()
    assert not judge.judge(update(9, loss=9.0)).keep
    assert judge.judge(update(9, loss=1.0)).keep


def test_only_what_is_believed_gives_a_credit_back() -> None:
    judge = judge_of()
    told = [judge.judge(update(0, loss=loss)) for loss in (1.0, 9.0, None)]
    assert [verdict.forgives for verdict in told] == [True, False, False]


def test_state_survives_json() -> None:
    old, new = judge_of(), HighLosses(4)
    judged(old, [9.0] * 6)
    judged(new, [3.0] * 5)  # to be forgotten
    new.restore(State(json.loads(json.dumps(old.state().values))))
    assert new.state() == old.state()
    # With the six before it one more is seven doubted of the latest eight, and judging starts anew:
    # the last two are not judged.
    rest = [1.2, 9.0, 9.0, 9.0]
    assert judged(new, rest) == judged(old, rest) == [False, True, False, False]
    assert new.state() == old.state()


# --- any losses -----------------------------------------------------------------------------------


def by_the_book(losses: Sequence[float], concurrency: int) -> tuple[list[bool], list[float]]:
    """The verdicts, and those believed at the end, without sorting anything in advance."""
    believed: list[float] = []
    doubted: list[bool] = []
    verdicts: list[bool] = []
    for loss in losses:
        is_high = False
        if len(believed) >= concurrency:
            centre = np.median(believed)
            sigma = 1.4826 * np.median(np.abs(np.array(believed) - centre))
            is_high = bool(loss > centre + max(3.0 * sigma, 1e-3 * centre))
        verdicts.append(is_high)
        doubted = [*doubted, is_high][-2 * concurrency :]
        if not is_high:
            believed = [*believed, loss][-2 * concurrency :]
        elif sum(doubted) > 1.5 * concurrency:
            believed, doubted = [], []
    return verdicts, believed


# Multiples of 1/8 make ties; long runs of either kind make it start anew.
any_losses = st.lists(
    st.integers(1, 40).map(lambda n: n / 8) | st.floats(0.1, 5.0) | st.just(20.0), max_size=60
)


@settings(max_examples=150, deadline=None)
@given(losses=any_losses, concurrency=st.integers(2, 6))
def test_the_sorted_hold_exactly_those_believed(losses: list[float], concurrency: int) -> None:
    judge = HighLosses(concurrency)
    verdicts, believed = by_the_book(losses, concurrency)
    assert judged(judge, losses) == verdicts
    assert judge.state().values["believed"] == believed
    assert judge._sorted == sorted(believed)


@settings(max_examples=60, deadline=None)
@given(losses=st.lists(st.integers(1, 400), min_size=4, max_size=30))
def test_the_unit_of_the_loss_does_not_matter(losses: list[int]) -> None:
    small = judged(HighLosses(4), [float(x) for x in losses])
    assert judged(HighLosses(4), [1000.0 * x for x in losses]) == small

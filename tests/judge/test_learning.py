"""Nothing learnt: both limits worked out by hand, what moves them, and who is not judged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import update

from pisces.judge.learning import NothingLearnt
from pisces.policy import Verdict
from pisces.types import Update

# C = 4, so four clients are enough to judge by, and eight are kept. These train version 0: guessing
# costs 2 (the median; the mean is 2.03), so nobody is doubted up to 0.75 x 2 = 1.5. Usually 0.25 is
# left (the mean is 0.5), so nobody is doubted up to 2.5 x 0.25 = 0.625 either.
LOSSES = (1.25, 1.75, 2.25, 2.875)
LEFT = (0.125, 0.25, 0.25, 1.375)
# Where 0.75 is usual, nobody is doubted up to 2.5 x 0.75 = 1.875.
MUCH_LEFT = (0.5, 0.75, 0.75, 1.0)

BELIEVED = Verdict(forgives=True)


def told(client: int, loss: float | None, left: float | None, version: int = 1) -> Update:
    return update(client, version=version, loss=loss, loss_left=left)


def doubts(judge: NothingLearnt, left: Sequence[float], first: int = 100) -> list[bool]:
    """Of clients with so much left, `first`, `first` + 1, ...; their losses were 2."""
    clients = range(first, first + len(left))
    updates = [told(client, 2.0, each) for client, each in zip(clients, left, strict=True)]
    return [judge.judge(each).is_outlier for each in updates]


def judge_of(
    losses: Sequence[float] = LOSSES, left: Sequence[float] = LEFT, concurrency: int = 4
) -> NothingLearnt:
    """One that has seen clients 0, 1, ... train version 0, and believed them all."""
    judge = NothingLearnt(concurrency)
    for client, each in enumerate(zip(losses, left, strict=True)):
        assert judge.judge(told(client, *each, version=0)) == BELIEVED
    return judge


def numbers(judge: NothingLearnt, name: str) -> list[float]:
    """What it remembers under this name, without the clients."""
    return [number for _, number in judge.state().values[name]]


# --- the two limits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usually", "left", "doubted"),
    [
        # 1.5 decides: much more than usual is not enough.
        *[(LEFT, 0.7, False), (LEFT, 1.5, False), (LEFT, 1.501, True), (LEFT, 99.0, True)],
        # 1.875 decides: nearly the loss of guessing is not enough.
        *[(MUCH_LEFT, 1.6, False), (MUCH_LEFT, 1.875, False), (MUCH_LEFT, 1.876, True)],
        # Where usually nothing is left, it is 1.5 again.
        *[((0.0,) * 4, 1.5, False), ((0.0,) * 4, 1.501, True)],
    ],
)
def test_doubted_is_who_is_beyond_both_limits(
    usually: Sequence[float], left: float, doubted: bool
) -> None:
    assert doubts(judge_of(left=usually), [left]) == [doubted]


def test_how_high_the_loss_was_at_first_does_not_matter() -> None:
    judge = judge_of()
    assert not judge.judge(told(8, 99.0, 1.5)).is_outlier
    assert judge.judge(told(9, 0.1, 1.501)).is_outlier


@settings(max_examples=60)
@given(
    left=st.lists(st.integers(0, 40).map(lambda n: n / 8), max_size=30),
    unit=st.integers(-9, 9).map(lambda n: 2.0**n),  # so that nothing is rounded
)
def test_the_unit_of_the_loss_does_not_matter(left: list[float], unit: float) -> None:
    other = judge_of([unit * loss for loss in LOSSES], [unit * each for each in LEFT])
    assert doubts(other, [unit * each for each in left]) == doubts(judge_of(), left)


# --- what guessing costs --------------------------------------------------------------------------


def test_later_versions_do_not_change_what_guessing_costs() -> None:
    judge = judge_of()
    for client in range(20):
        judge.judge(told(client, 99.0, 0.25))
    assert doubts(judge, [1.5, 1.501]) == [False, True]


def test_slow_clients_tell_of_version_0_too_even_if_doubted() -> None:
    # With 2.5 the median is 2.25, and the limit 1.6875; with another 2.25 they stay.
    judge = judge_of()
    assert judge.judge(told(8, 2.5, 1.688, version=0)).is_outlier
    assert judge.state().values["at_first"] == [*enumerate(LOSSES), (8, 2.5)]
    assert judge.judge(told(9, 2.25, 0.25, version=0)) == BELIEVED
    assert doubts(judge, [1.6875, 1.688]) == [False, True]


def test_version_0_is_known_by_the_last_twice_as_many_as_run_at_once() -> None:
    # Eight of 2, then fours: with four of them the median of eight is 3, with five it is 4.
    judge = judge_of([2.0] * 8, [0.25] * 8)
    for client in range(20, 24):
        judge.judge(told(client, 4.0, 0.25, version=0))
    assert doubts(judge, [2.25, 2.251]) == [False, True]
    judge.judge(told(24, 4.0, 0.25, version=0))
    assert doubts(judge, [3.0, 3.001]) == [False, True]


def test_who_trains_version_0_again_tells_anew_what_guessing_costs() -> None:
    # Not 4, 4, 4 beside the other three: of 1.25, 1.75, 2.25, 4 the median is 2 as before.
    judge = judge_of()
    for _ in range(3):
        judge.judge(told(3, 4.0, 0.25, version=0))
    assert judge.state().values["at_first"] == [(0, 1.25), (1, 1.75), (2, 2.25), (3, 4.0)]
    assert doubts(judge, [1.5, 1.501]) == [False, True]


@pytest.mark.parametrize(
    ("losses", "doubted"),
    # Guessing costs all of them 2. Nine of ten have to be within 1 and 3, the tenth may be far off.
    [
        ([2.0] * 8 + [3.0, 9.0], True),
        ([2.0] * 8 + [1.0, 0.0], True),
        ([2.0] * 8 + [3.001, 9.0], False),
        ([2.0] * 8 + [0.999, 0.0], False),
    ],
)
def test_nobody_is_judged_where_version_0_costs_some_much_more(
    losses: list[float], doubted: bool
) -> None:
    # As where the first model knows something already, or losses have different scales.
    assert doubts(judge_of(losses, [0.25] * 10, concurrency=5), [1.6]) == [doubted]


def test_it_says_once_that_nobody_is_judged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pisces")
    judge = judge_of([2.0] * 8 + [3.001, 9.0], [0.25] * 10, concurrency=5)
    doubts(judge, [1.6, 1.6, 1.6])
    assert [record.message for record in caplog.records] == [
        "guard: nobody is judged, as version 0 does not cost everybody alike"
    ]


# --- what is usual --------------------------------------------------------------------------------


def test_where_what_is_usual_is_negative_nobody_is_doubted() -> None:
    # Of -1, -0.5, 1, 1 the lower quartile is -0.5: such losses have no zero to measure from.
    assert doubts(judge_of(left=(-1.0, -0.5, 1.0, 1.0)), [99.0]) == [False]
    assert doubts(judge_of(left=(-1.0, 1.0, 1.0, 1.0)), [99.0]) == [True]


def test_the_doubted_do_not_become_what_is_usual() -> None:
    # As many as those believed, however long.
    judge = judge_of()
    for turn in range(50):
        assert doubts(judge, [1.6, 0.25], first=100 + 2 * turn) == [True, False]
    assert judge.state().values["left"] == [(client, 0.25) for client in range(185, 200, 2)]
    assert numbers(judge, "losses") == [2.0] * 8


def test_usual_is_what_was_left_to_the_last_twice_as_many_as_run_at_once() -> None:
    # Twelve of 0.25, then 0.75: with five of them the lower quartile of eight, the third, is 0.25
    # still, and 1.5 decides as before; with six it is 0.75.
    judge = judge_of([2.0] * 12, [0.25] * 12)
    doubts(judge, [0.75] * 5)
    assert doubts(judge, [1.6], first=50) == [True]
    doubts(judge, [0.75], first=105)
    assert doubts(judge, [1.6], first=51) == [False]


def test_who_reports_often_has_one_say_in_what_is_usual() -> None:
    # Of 0.125, 0.25, 0.25 and a last 0.75 the lower quartile is 0.25, not that of seven times 0.75.
    judge = judge_of()
    for left in (1.0, 0.875, *[0.75] * 5):
        assert doubts(judge, [left], first=3) == [False]
    assert judge.state().values["left"] == [(0, 0.125), (1, 0.25), (2, 0.25), (3, 0.75)]
    assert doubts(judge, [1.5, 1.501]) == [False, True]


def test_a_doubted_client_is_still_known_by_what_was_believed_of_it() -> None:
    judge = judge_of()
    before = judge.state().values
    assert doubts(judge, [1.6], first=1) == [True]
    after = judge.state().values
    assert (after["left"], after["losses"]) == (before["left"], before["losses"])
    assert after["doubts"] == [(0, 0.0), (2, 0.0), (3, 0.0), (1, 1.0)]


def test_a_doubted_loss_counts_as_the_median_of_those_believed() -> None:
    judge = judge_of()
    doubted = [judge.judge(told(8, loss, 1.6)) for loss in (50.0, 99.0)]  # the 50 has not moved it
    assert doubted == [Verdict(is_outlier=True, keep=False, loss=2.0)] * 2
    # Of 1.25, 1.75, 2.25, 2.25, 2.875 it is the median.
    assert judge.judge(told(9, 2.25, 0.25)) == BELIEVED
    assert judge.judge(told(8, 99.0, 1.6)) == Verdict(is_outlier=True, keep=False, loss=2.25)


# --- where most are doubted -----------------------------------------------------------------------


def test_when_more_than_half_are_doubted_judging_starts_anew() -> None:
    # Of the latest eight clients, four doubted are half; the fifth is one too many.
    judge = judge_of()
    assert doubts(judge, [1.6] * 4) == [True] * 4
    last = judge.judge(told(104, 2.0, 1.6))
    assert last == Verdict(is_outlier=True, keep=False, loss=2.0)  # by what was believed till now
    assert judge.state().values == {
        "at_first": list(enumerate(LOSSES)),
        "losses": [],
        "left": [],
        "doubts": [],
    }
    # Now 1.6 is what is usual, and from the fourth on the limit is 2.5 x 1.6 = 4.
    assert doubts(judge, [1.6] * 4) == [False] * 4
    assert doubts(judge, [4.0, 4.001], first=104) == [False, True]


@pytest.mark.parametrize("concurrency", [2, 7, 20])
def test_half_of_the_latest_is_not_most_of_them(concurrency: int) -> None:
    judge = judge_of([2.0] * concurrency, [0.25] * concurrency, concurrency)
    assert doubts(judge, [1.6] * concurrency) == [True] * concurrency
    assert len(numbers(judge, "left")) == concurrency
    assert doubts(judge, [1.6, 1.6], first=200) == [True, False]


def test_of_few_clients_most_are_fewer() -> None:
    # Of four in all, the third is one too many.
    judge = judge_of()
    assert doubts(judge, [1.6, 1.6, 1.6], first=0) == [True] * 3
    assert numbers(judge, "left") == []


def test_who_is_doubted_often_counts_once() -> None:
    judge = judge_of()
    for _ in range(50):
        assert doubts(judge, [1.6], first=0) == [True]
    assert judge.state().values["doubts"] == [(1, 0.0), (2, 0.0), (3, 0.0), (0, 1.0)]


def test_of_a_client_only_the_latest_verdict_counts() -> None:
    # Each is doubted in its turn, but believed again before the third of four is.
    judge = judge_of()
    for client in range(12):
        assert doubts(judge, [1.6], first=client % 4) == [True]
        assert doubts(judge, [0.25], first=(client - 1) % 4) == [False]


def test_doubts_of_long_ago_do_not_count() -> None:
    judge = judge_of()
    for turn in range(5):
        assert doubts(judge, [1.6] * 4, first=100 + 8 * turn) == [True] * 4
        assert doubts(judge, [0.25] * 4, first=104 + 8 * turn) == [False] * 4


# --- who is not judged ----------------------------------------------------------------------------


@pytest.mark.parametrize(("concurrency", "unjudged"), [(1, 2), (2, 2), (4, 4), (9, 9)])
def test_nobody_is_judged_before_as_many_clients_as_run_at_once(
    concurrency: int, unjudged: int
) -> None:
    num = unjudged - 1
    assert doubts(judge_of([2.0] * num, [0.1] * num, concurrency), [99.0]) == [False]
    num = unjudged
    assert doubts(judge_of([2.0] * num, [0.1] * num, concurrency), [99.0]) == [True]


def test_a_client_alone_is_not_enough_to_judge_by() -> None:
    judge = judge_of(LOSSES[:3], LEFT[:3])
    for _ in range(20):
        assert doubts(judge, [0.25], first=0) == [False]
    assert doubts(judge, [99.0]) == [False]


@pytest.mark.parametrize(("loss", "left"), [(2.0, None), (None, 99.0), (None, None)])
@pytest.mark.parametrize("version", [0, 1])
def test_who_does_not_tell_both_losses_is_not_judged_nor_remembered(
    loss: float | None, left: float | None, version: int
) -> None:
    judge = judge_of()
    before = judge.state()
    assert judge.judge(told(0, loss, left, version)) == Verdict()
    assert judge.state() == before


def test_nobody_is_judged_where_nobody_told_what_guessing_costs() -> None:
    assert doubts(NothingLearnt(4), [0.25] * 8 + [99.0]) == [False] * 9


@pytest.mark.parametrize("loss", [0.0, -1.0])
def test_nobody_is_judged_where_guessing_costs_nothing(loss: float) -> None:
    assert doubts(judge_of([loss] * 4, [loss] * 4), [99.0]) == [False]

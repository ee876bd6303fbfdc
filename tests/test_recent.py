"""What clients told lately: one number each, and medians held against plain ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pisces.recent import Recent, distance_of_nearest, median_distance, middle


def recent(numbers: Sequence[float], most: int = 100) -> Recent:
    """Of clients 0, 1, ..., who told these."""
    return Recent(most, enumerate(numbers))


# --- one number each ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "low"),
    [([5.0], 5.0), ([5.0, 1.0, 3.0], 1.0), ([5.0, 1.0, 3.0, 4.0], 3.0), (range(9, 0, -1), 3.0)],
)
def test_the_lower_quartile_has_a_quarter_before_it(numbers: Sequence[float], low: float) -> None:
    assert recent(numbers).low == low


def test_the_median_is_that_of_the_numbers_whatever_their_order() -> None:
    assert recent([3.0, 1.0, 9.0]).median == 3.0
    assert recent([3.0, 1.0, 9.0, 4.0]).median == 3.5


def test_a_client_has_one_number_the_last_it_told() -> None:
    told = recent([1.0, 2.0, 3.0])
    told.put(0, 7.0)
    told.put(0, 8.0)
    assert told.told() == [(1, 2.0), (2, 3.0), (0, 8.0)]
    assert (len(told), told.median) == (3, 3.0)


def test_the_oldest_makes_room() -> None:
    told = recent([1.0, 2.0, 3.0], most=3)
    told.put(5, 9.0)
    assert told.told() == [(1, 2.0), (2, 3.0), (5, 9.0)]
    assert told.median == 3.0


def test_oldest_is_who_was_not_heard_from_for_longest() -> None:
    # Client 0 came first, but has told something since: it is 1 who goes.
    told = recent([1.0, 2.0, 3.0], most=3)
    told.put(0, 1.0)
    told.put(5, 9.0)
    assert told.told() == [(2, 3.0), (0, 1.0), (5, 9.0)]


def test_who_was_forgotten_comes_as_a_stranger() -> None:
    told = recent([1.0, 2.0, 3.0], most=2)
    told.put(0, 4.0)
    assert told.told() == [(2, 3.0), (0, 4.0)]
    assert told.median == 3.5


def test_equal_numbers_of_two_clients_are_two() -> None:
    told = recent([2.0, 2.0, 5.0])
    told.put(0, 6.0)
    assert (len(told), told.median) == (3, 5.0)


@pytest.mark.parametrize(
    ("numbers", "spread"),
    [
        ([4.0], 0.0),
        ([4.0, 6.0], 1.0),
        ([4.0, 5.0, 99.0], 1.0),  # all but one
        ([4.0] * 7 + [6.0, 99.0], 2.0),
        ([4.0] * 8 + [6.0, 99.0], 2.0),  # nine of ten
        ([4.0] * 8 + [99.0, 99.0], 95.0),
        ([4.0] * 17 + [3.0, 99.0, -99.0], 1.0),  # 18 of 20
    ],
)
def test_the_spread_is_how_far_nine_of_ten_are_at_most(numbers: list[float], spread: float) -> None:
    assert recent(numbers).spread == spread


# --- held against a plain model -------------------------------------------------------------------

some_numbers = st.integers(-3, 3).map(float) | st.floats(-1e9, 1e9)


def plainly(told: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """The last entry of each client; of these the last `most`."""
    last_at = {client: place for place, (client, _) in enumerate(told)}
    return [told[place] for place in sorted(last_at.values())][-most:]


@given(
    told=st.lists(st.tuples(st.integers(0, 9), some_numbers), min_size=1),
    most=st.integers(1, 12),
    num_given=st.integers(0, 20),
)
def test_it_holds_the_last_number_of_the_last_clients(
    told: list[tuple[int, float]], most: int, num_given: int
) -> None:
    found = Recent(most, told[:num_given])
    for place, (client, number) in enumerate(told[num_given:], start=len(told[:num_given]) + 1):
        found.put(client, number)
        assert found.told() == plainly(told[:place], most)
    numbers = [number for _, number in plainly(told, most)]
    assert found.told() == plainly(told, most)
    assert len(found) == len(numbers)
    assert found.median == median(numbers)
    apart = sorted(abs(number - found.median) for number in numbers)
    assert found.spread == apart[max(1, 9 * len(apart) // 10) - 1]
    assert Recent(most, found.told()).told() == found.told()


# --- of sorted numbers ----------------------------------------------------------------------------


@given(numbers=st.lists(some_numbers, min_size=1))
def test_the_middle_is_the_median(numbers: list[float]) -> None:
    assert middle(sorted(numbers)) == median(numbers)


@given(numbers=st.lists(some_numbers, min_size=1), centre=some_numbers)
def test_the_nearest_are_found_from_any_centre(numbers: list[float], centre: float) -> None:
    pool, apart = sorted(numbers), sorted(abs(number - centre) for number in numbers)
    found = [distance_of_nearest(pool, centre, num) for num in range(1, len(pool) + 1)]
    assert found == apart
    assert median_distance(pool, centre) == median(apart)


def test_a_distance_by_hand() -> None:
    # From 4 to 1, 3, 5, 9: 3, 1, 1, 5. In order 1, 1, 3, 5, so the median is 2.
    pool = [1.0, 3.0, 5.0, 9.0]
    assert [distance_of_nearest(pool, 4.0, num) for num in (1, 2, 3, 4)] == [1.0, 1.0, 3.0, 5.0]
    assert median_distance(pool, 4.0) == 2.0


def test_a_copy_goes_its_own_way() -> None:
    one = Recent(3, [(0, 5.0), (1, 1.0), (2, 3.0)])
    other = one.copy()
    one.put(0, 9.0)
    one.put(3, 7.0)
    assert other.told() == [(0, 5.0), (1, 1.0), (2, 3.0)]
    other.put(4, 2.0)  # the oldest makes room there, too
    assert (other.told(), other.median) == ([(1, 1.0), (2, 3.0), (4, 2.0)], 2.0)
    assert one.told() == [(2, 3.0), (0, 9.0), (3, 7.0)]

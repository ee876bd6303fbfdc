"""Medians over seeds of numbers that are known, or known to lie between two ends."""

from __future__ import annotations

import math

import pytest

from pisces.report.estimate import (
    ANYTHING,
    Ends,
    Estimate,
    difference,
    ends_in_words,
    estimate,
    in_words,
    median_in_words,
    ratio,
    times,
)

INF = math.inf


def test_few_values_come_with_their_range() -> None:
    assert estimate([(3.0, 3.0), (1.0, 1.0), (2.0, 2.0)]) == Estimate(
        3, 2.0, 2.0, 1.0, 3.0, 1.0, 3.0
    )


def test_of_five_the_middle_and_an_interval_within_their_range() -> None:
    found = estimate([(v, v) for v in (1.0, 2.0, 3.0, 4.0, 100.0)])
    assert found is not None
    assert (found.least, found.most) == (3.0, 3.0)
    # The median of a resample is below the second smallest with chance 0.058 (three or more of
    # five draws are the smallest), so a 95 % interval reaches from the smallest to the greatest.
    assert (found.low, found.high) == (1.0, 100.0)


def test_one_open_end_of_three_leaves_the_median_exact() -> None:
    # 200, 300 and more than 1000: the median is 300 whatever the third one is.
    found = estimate([(200.0, 200.0), (300.0, 300.0), (1000.0, INF)])
    assert found == Estimate(3, 300.0, 300.0, 200.0, INF, 200.0, INF)
    assert in_words(found, "{:.0f} s".format) == "300 s (200 s to ?)"


def test_two_open_ends_of_three_make_it_a_bound() -> None:
    found = estimate([(200.0, 200.0), (900.0, INF), (1000.0, INF)])
    assert found == Estimate(3, 900.0, INF, 200.0, INF, 200.0, INF)
    assert in_words(found, "{:.0f} s".format) == ">= 900 s (200 s to ?)"


@pytest.mark.parametrize(
    ("of", "over", "expected"),
    [
        ((3.0, 3.0), (2.0, 2.0), (1.5, 1.5)),
        ((3.0, INF), (2.0, 2.0), (1.5, INF)),  # more than 3, halved
        ((3.0, 3.0), (2.0, INF), (0.0, 1.5)),
        ((3.0, INF), (2.0, INF), (0.0, INF)),
        ((0.0, 0.0), (0.0, 0.0), (1.0, 1.0)),
        ((3.0, 3.0), (0.0, 0.0), (0.0, INF)),  # so many times nothing: not known
        (ANYTHING, (2.0, 2.0), (0.0, INF)),
        (ANYTHING, (0.0, 0.0), (0.0, INF)),
        ((3.0, 3.0), (0.0, 2.0), (1.5, INF)),
        ((-1.0, -1.0), (2.0, 2.0), ANYTHING),  # twice as much as less than nothing: no sense
        ((1.0, 1.0), (-2.0, -2.0), ANYTHING),
        ((-1.0, 4.0), (2.0, 2.0), ANYTHING),
    ],
)
def test_ratios_of_what_is_known(of: Ends, over: Ends, expected: Ends) -> None:
    assert ratio(of, over) == expected


def test_a_median_between_infinities_may_be_anything() -> None:
    found = estimate([(INF, INF), ANYTHING])
    assert found is not None
    assert (found.least, found.most) == (-INF, INF)
    many = estimate([(INF, INF), ANYTHING] * 4)  # also in the resamples
    assert many is not None
    assert (many.least, many.most, many.low, many.high) == (-INF, INF, -INF, INF)


def test_differences_of_what_is_known() -> None:
    assert difference((3.0, 3.0), (2.0, 2.0)) == (1.0, 1.0)
    assert difference((3.0, INF), (2.0, 2.0)) == (1.0, INF)
    assert difference(ANYTHING, (2.0, 2.0)) == ANYTHING


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ([(1.5, 1.5)], "1.5"),
        ([(1.5, INF)], ">= 1.5"),
        ([(-INF, 1.5)], "<= 1.5"),
        ([(0.2, 1.5)], "0.2 to 1.5"),
        ([(0.0, 1.5), (0.4, INF)], ">= 0.2 (0.0 to ?)"),
        ([(0.0, 0.5), (0.4, 0.5)], "0.2 to 0.5 (0.0 to 0.5)"),
        ([(0.0, INF)], ">= 0.0"),
        ([ANYTHING], "?"),
        ([(INF, INF)], "?"),
        ([(2.0, 2.0), (2.0, 2.0)], "2.0"),
        ([], "-"),
    ],
)
def test_in_words(ends: list[Ends], words: str) -> None:
    assert in_words(estimate(ends), "{:.1f}".format) == words


def test_anything_from_zero_up_tells_nothing_of_a_ratio() -> None:
    ends = ((0.0, INF), (0.1, INF), (0.0, 2.0), (0.29, 0.56))
    words = ["?", ">= 0.10x", "<= 2.00x", "0.29x to 0.56x"]
    assert [in_words(estimate([e]), times) for e in ends] == words


@pytest.mark.parametrize(
    ("ends", "median", "words"),
    [
        ([(1.5, 1.5)], (1.5, ""), "1.50x"),
        ([(1.5, INF)], (1.5, ">="), "at least 1.50x"),
        ([(0.0, 1.5)], (1.5, "<="), "at most 1.50x"),
        ([(1.5, 1.7)], (1.5, ">="), "1.50x to 1.70x"),
        ([(1.501, 1.503)], (1.501, ">="), "1.50x"),  # in these digits they are one
        ([(0.0, INF)], (None, ""), "?"),
        ([ANYTHING], (None, ""), "?"),
        ([(INF, INF)], (None, ""), "?"),
        ([(0.0, 0.0)], (0.0, ""), "0.00x"),  # known to be zero
    ],
)
def test_of_a_ratio_that_may_be_zero_nothing_is_known(
    ends: list[Ends], median: tuple[float | None, str], words: str
) -> None:
    found = estimate(ends)
    assert found is not None
    of_ratio = found.above_zero()
    assert of_ratio.known == median
    told = median_in_words(of_ratio, "{:.2f}x".format, at_least="at least", at_most="at most")
    assert told == words


def test_ends_that_are_not_known() -> None:
    found = estimate([(0.0, 1.5), (2.0, 2.0), (3.0, INF)])
    assert found is not None
    assert ends_in_words(found.above_zero(), "{:.1f}".format) == ("?", "?")
    assert ends_in_words(found, "{:.1f}".format) == ("0.0", "?")

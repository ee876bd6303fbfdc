"""What is known of a number over several seeds: its median and how sure one can be of it.

A number of one run is given by its two ends, between which it lies: equal where it is known, the
run's length and infinity for the time to a target that was not met. Everything is computed for both
ends, so that a run which failed is never left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pisces.quantities import UNKNOWN
from pisces.seeds import generator

MIN_BOOTSTRAP = 5  # values; resampling fewer says less than their range
NUM_RESAMPLES = 10_000

Bound: TypeAlias = Literal["", ">=", "<="]
Ends: TypeAlias = tuple[float, float]
ANYTHING: Ends = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median over `num` seeds that lies between `least` and `most`, which are often equal.

    `min` and `max` are the range of the values; `low` and `high` the ends of the median's bootstrap
    95 % interval, or of that range where there are fewer than `MIN_BOOTSTRAP` values.
    """

    num: int
    least: float
    most: float
    min: float
    max: float
    low: float
    high: float

    @property
    def has_interval(self) -> bool:
        """Are there enough values for more than their range?"""
        return self.num >= MIN_BOOTSTRAP

    @property
    def known(self) -> tuple[float | None, Bound]:
        """The median, or what bounds it; None where there is no number."""
        least, most = (end if math.isfinite(end) else None for end in (self.least, self.most))
        if least == most:
            return least, ""
        return (most, "<=") if least is None else (least, ">=")

    def above_zero(self) -> Estimate:
        """The same of a ratio, of which nothing is known where it may be zero, but need not be."""

        def known(end: float) -> float:
            return end if end > 0 else -math.inf

        least = self.least if self.least == self.most else known(self.least)
        return replace(self, least=least, min=known(self.min), low=known(self.low))


def estimate(values: Sequence[Ends]) -> Estimate | None:
    """The values summed up; None if there are none."""
    if not values:
        return None
    ends = np.array(values, np.float64)
    least, most = map(float, medians_of(ends))
    whole = float(ends[:, 0].min()), float(ends[:, 1].max())
    spread = bootstrap(ends) if len(ends) >= MIN_BOOTSTRAP else whole
    return Estimate(len(ends), least, most, *whole, *spread)


def time_between(time_s: float | None, end_s: float) -> Ends:
    """Between which instants a run meets its target: after its end, where it did not so far."""
    return (end_s, math.inf) if time_s is None else (time_s, time_s)


def median_between(values: Sequence[Ends]) -> Ends:
    """Between which values their median lies: twice the same where it is known."""
    least, most = map(float, medians_of(np.array(values, np.float64)))
    return least, most


def medians_of(ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """The medians of the lower and of the upper ends, which are the last axis."""
    with np.errstate(invalid="ignore"):
        medians = np.median(ends, axis=-2)
    return np.where(np.isnan(medians), ANYTHING, medians)  # midway between two infinities


def bootstrap(ends: NDArray[np.float64]) -> Ends:
    """A 95 % interval of the median, the same whenever it is asked for."""
    num = len(ends)
    drawn = generator(0, "bootstrap").integers(num, size=(NUM_RESAMPLES, num))
    medians = medians_of(ends[drawn])
    # Without interpolation, which would turn two infinities into something that is no number.
    low = np.quantile(medians[:, 0], 0.025, method="lower")
    high = np.quantile(medians[:, 1], 0.975, method="higher")
    return float(low), float(high)


def ratio(of: Ends, over: Ends) -> Ends:
    """Between which values `of / over` lies: anything, where either may be less than nothing.

    Of what is not known at all it is assumed that it counts something, and is not negative.
    """
    if any(-math.inf < end < 0 for end in (*of, *over)):
        return ANYTHING
    if over == (0, 0) and of != (0, 0):
        return 0.0, math.inf
    return quotient(max(of[0], 0.0), over[1]), quotient(of[1], max(over[0], 0.0))


def difference(of: Ends, over: Ends) -> Ends:
    """Between which values `of - over` lies."""
    return of[0] - over[1], of[1] - over[0]


def quotient(value: float, over: float) -> float:
    """Their ratio; two that are both zero (at the target from the start) are equal."""
    if over == 0:
        return 1.0 if value == 0 else math.inf
    return 0.0 if over == math.inf else value / over


def times(value: float) -> str:
    """A ratio: `1.50x`; of one that may be zero nothing is known."""
    return f"{value:.2f}x" if value > 0 else "?"


def in_words(found: Estimate | None, text: Callable[[float], str]) -> str:
    """`1.5x (1.3x to 1.7x)`; a median that is only bounded is marked as such."""
    if found is None:
        return UNKNOWN
    middle, (low, high) = median_in_words(found, text), ends_in_words(found, text)
    if found.num == 1 or middle == "?":
        return middle
    return middle if low == high == middle else f"{middle} ({low} to {high})"


def median_in_words(
    found: Estimate,
    text: Callable[[float], str],
    *,
    at_least: str = ">=",
    at_most: str = "<=",
) -> str:
    """`1.5x`, `1.5x to 1.7x` or `>= 1.5x`: what is known of the median."""
    least, most = _told(found.least, text), _told(found.most, text)
    if least == most:
        return least
    if most == "?":
        return f"{at_least} {least}"
    return f"{at_most} {most}" if least == "?" else f"{least} to {most}"


def ends_in_words(found: Estimate, text: Callable[[float], str]) -> tuple[str, str]:
    """Between what it is spread; `?` is an end that is not known."""
    return _told(found.low, text), _told(found.high, text)


def _told(end: float, text: Callable[[float], str]) -> str:
    return text(end) if math.isfinite(end) else "?"

"""What staleness costs, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import update, view

from pisces.aggregate.mean import discounts
from pisces.aggregate.staleness import INVERSE_ROOT, Discount
from pisces.errors import ConfigError

# 0, 3, 4, 5 and 8 versions behind.
UPDATES = [update(c, version=10 - s) for c, s in enumerate([0, 3, 4, 5, 8])]
NOW = view(version=10)


@pytest.mark.parametrize(
    ("discount", "expected"),
    [
        (Discount("constant"), [1, 1, 1, 1, 1]),
        (Discount("polynomial", penalty=1.0), [1, 1 / 4, 1 / 5, 1 / 6, 1 / 9]),
        (Discount("polynomial"), [1, 1 / 2, 5**-0.5, 6**-0.5, 1 / 3]),
        (Discount("polynomial", penalty=0.0), [1, 1, 1, 1, 1]),
        # Free up to 4; one beyond it 1 / (10 + 1), four beyond it 1 / (40 + 1).
        (Discount("hinge"), [1, 1, 1, 1 / 11, 1 / 41]),
        # From 3 on, by 1/2 a version: 1 / 1.5, 1 / 2, 1 / 3.5.
        (Discount("hinge", hinge_slope=0.5, hinge_start=3.0), [1, 1, 2 / 3, 1 / 2, 2 / 7]),
    ],
)
def test_by_hand(discount: Discount, expected: list[float]) -> None:
    assert discount.of(UPDATES, NOW).tolist() == pytest.approx(expected)


def test_the_polynomial_is_the_discount_of_the_mean() -> None:
    assert np.array_equal(INVERSE_ROOT.of(UPDATES, NOW), discounts(UPDATES, NOW, 0.5))


@pytest.mark.parametrize("name", ["penalty", "hinge_slope", "hinge_start"])
@pytest.mark.parametrize("value", [-0.1, float("inf"), float("nan")])
def test_senseless_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name}: must be at least 0 and finite, not"):
        Discount(**{name: value})


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must be one of .*'hinge'.*, not 'linear'"):
        Discount("linear")  # type: ignore[arg-type]

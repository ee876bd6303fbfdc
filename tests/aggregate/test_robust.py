"""Robust centres, on numbers small enough to check."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import update, view, weights

from pisces.aggregate import robust
from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.robust import Krum, Median, RobustMean, Rule, Trimmed
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.seeds import generator
from pisces.types import Update, Weights
from pisces.words import Reference

RULES = {
    "median": Median(),
    "trimmed": Trimmed(),
    "krum": Krum(),
    "multi-krum": Krum(chosen=None),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def combine(
    rule: Aggregator, current: Weights, updates: Sequence[Update], version: int = 0
) -> Combination:
    return rule.combine(current, updates, view(version=version), generator(1, "aggregate"))


def centre(rule: Rule, values: Sequence[float], samples: Sequence[int] | None = None) -> float:
    """Where one parameter goes from 0, by updates from 0 to these values."""
    sizes = [100] * len(values) if samples is None else samples
    updates = [
        update(c, [v], num_examples=n) for c, (v, n) in enumerate(zip(values, sizes, strict=True))
    ]
    return float(combine(RobustMean(rule, reference="base"), weights([0.0]), updates).weights.flat)


@pytest.mark.parametrize(
    ("values", "samples", "expected"),
    [
        ([7], [1], 7),
        ([2, 6], [5, 5], 4),  # half each: midway
        ([2, 6], [5, 6], 6),
        ([10, 1, 2], [1, 1, 1], 2),
        ([10, 1, 2], [50, 25, 25], 6),  # half of the weight is at 1 and 2, half at 10
        ([10, 1, 2], [60, 20, 20], 10),
        ([6, 5, 4, 3, 2, 1], [7] * 6, 3.5),  # three sixths are half, whatever floats say
        ([3, 3, 3, 9], [1, 1, 1, 2], 3),
    ],
)
def test_the_weighted_median_by_hand(
    values: list[float], samples: list[int], expected: float
) -> None:
    assert centre(Median(), values, samples) == expected


@pytest.mark.parametrize(
    ("share", "values", "samples", "expected"),
    [
        (0.1, [7], [1], 7),  # nobody is left: the median
        (0.1, [2, 6], [5, 5], 4),
        (0.1, [0, 100, 3, 1, 2], [1] * 5, 2),  # a tenth lies in the first and in the last fifth
        (0.2, [0, 100, 3, 1, 2], [1] * 5, 2),  # a fifth is all of them
        (0.3, [0, 100, 4, 1, 2], [1] * 5, 2),  # into the second and the fourth
        (0.0, [0, 100, 3, 1, 2], [1] * 5, 21.2),  # the mean
        # Weights 0.1, 0.1, 0.2, 0.1, 0.5. The lowest fifth is 0 and 1, the highest lies in 100:
        # (0.2 x 2 + 0.1 x 3) / 0.3.
        (0.2, [0, 1, 2, 3, 100], [1, 1, 2, 1, 5], 7 / 3),
        (0.1, [0, 5, 100], [5, 90, 5], 5),  # both ends reach into the middle
    ],
)
def test_the_trimmed_mean_by_hand(
    share: float, values: list[float], samples: list[int], expected: float
) -> None:
    assert centre(Trimmed(share), values, samples) == pytest.approx(expected)


# Of five, one may be bad; the squares to the 5 - 1 - 2 = 2 nearest are, of 0: 1 + 6.25, of 1:
# 1 + 2.25, of 2.5: 0.25 + 2.25, of 3: 0.25 + 4, of 100: thousands. So 2.5 is best, then 1.
FIVE, SAMPLES = [0.0, 1.0, 2.5, 3.0, 100.0], [100, 300, 100, 300, 200]


@pytest.mark.parametrize(
    ("chosen", "expected", "coefficients"),
    [
        (1, 2.5, (0, 0, 1, 0, 0)),
        (2, 1.375, (0, 0.75, 0.25, 0, 0)),  # by samples: (3 x 1 + 1 x 2.5) / 4
        (None, 1.375, (0, 0.75, 0.25, 0, 0)),
        (5, 1.375, (0, 0.75, 0.25, 0, 0)),  # never more than that
    ],
)
def test_krum_by_hand(chosen: int | None, expected: float, coefficients: tuple[float, ...]) -> None:
    updates = [
        update(c, [v], num_examples=n) for c, (v, n) in enumerate(zip(FIVE, SAMPLES, strict=True))
    ]
    rule = RobustMean(Krum(chosen=chosen), reference="base")
    made = combine(rule, weights([0.0]), updates)
    assert float(made.weights.flat) == pytest.approx(expected)
    assert made.coefficients == pytest.approx(coefficients)


@pytest.mark.parametrize(
    ("bad_share", "values", "expected"),
    [
        (0.2, [0, 1, 5, 6], 3.0),  # four, one of them bad: five are needed, so the median
        (0.0, [0, 1], 0.5),  # nobody bad: three are needed
        (0.0, [0, 1, 3], 0.0),  # 0 and 1 are as near to each other: the one asked first
        (0.3, [0, 1, 2.5, 3, 100], 2.5),  # 1.5 of five are two: seven are needed, so the median
        (0.01, [0, 1, 2.5, 3, 100], 2.5),  # a small share is one
    ],
)
def test_krum_of_few_is_the_median(bad_share: float, values: list[float], expected: float) -> None:
    assert centre(Krum(bad_share), values) == expected


def test_the_share_of_the_bad_is_rounded_up_without_rounding_errors() -> None:
    # 0.07 x 100 is 7.000000000000001, but 7 are bad, and 100 - 7 - 2 are chosen.
    updates = [update(c, [float(c)]) for c in range(100)]
    made = combine(RobustMean(Krum(0.07, chosen=None)), weights([0.0]), updates)
    assert sum(c > 0 for c in made.coefficients) == 91


@pytest.mark.parametrize(("rule", "num_counting"), [(Median(), 5), (Trimmed(), 5), (Krum(), 1)])
@pytest.mark.parametrize(("reference", "parameter"), [("base", 2.0), ("current", 1.75)])
def test_steps_are_as_long_as_those_of_the_mean(
    rule: Rule, num_counting: int, reference: Reference, parameter: float
) -> None:
    # As in the mean's test: three behind (1/2), server rate 1/2; parameter 1, buffer 10 now; all
    # went from (0, 2) to (4, 20). 1 + 1/4 x 4 or 1 + 1/4 x 3, and 10 + 1/2 (20 - 10).
    settings = {"share": "equal", "staleness_penalty": 0.5, "reference": reference}
    made = combine(
        RobustMean(rule, server_rate=0.5, **settings),
        weights([1.0, 10.0], num_buffers=1),
        [update(c, [4.0, 20.0], base=[0.0, 2.0], num_buffers=1) for c in range(5)],
        version=3,
    )
    assert made.weights.flat.tolist() == pytest.approx([parameter, 15.0])
    assert sum(made.coefficients) == pytest.approx(0.25)
    assert sum(c > 0 for c in made.coefficients) == num_counting


def test_medians_are_told_with_the_coefficients_of_the_mean() -> None:
    updates = [update(c, [float(c)], num_examples=c + 1, version=c) for c in range(4)]
    settings = {"staleness_penalty": 0.5, "server_rate": 0.5}
    mean = combine(DiscountedMean(**settings), weights([0.0]), updates, version=4)
    for rule in (Median(), Trimmed()):
        made = combine(RobustMean(rule, **settings), weights([0.0]), updates, version=4)
        assert made.coefficients == mean.coefficients


# --- what holds of every rule ---------------------------------------------------------------------

values = st.floats(-100.0, 100.0, width=32)
vectors = st.lists(values, min_size=3, max_size=3)
references = st.sampled_from(["base", "current"])
NOW = (1.0, -2.0, 0.5)  # the last one is a buffer


@every_rule
@settings(max_examples=30, deadline=None)
@given(
    end=vectors,
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=9),
    lag=st.integers(0, 9),
    reference=references,
)
def test_of_those_that_agree_every_rule_is_the_mean(
    rule: Rule, end: list[float], sizes: list[int], lag: int, reference: Reference
) -> None:
    updates = [
        update(c, end, base=[0.5] * 3, version=9 - lag, num_examples=n, num_buffers=1)
        for c, n in enumerate(sizes)
    ]
    settings = {"staleness_penalty": 0.5, "reference": reference, "server_rate": 0.8}
    now = weights(NOW, num_buffers=1)
    made, mean = (
        combine(how, now, updates, version=9)
        for how in (RobustMean(rule, **settings), DiscountedMean(**settings))
    )
    assert torch.allclose(made.weights.flat, mean.weights.flat, rtol=1e-5, atol=1e-4)
    assert sum(made.coefficients) == pytest.approx(sum(mean.coefficients))


@every_rule
@settings(max_examples=40, deadline=None)
@given(
    told=st.lists(
        st.tuples(
            st.lists(st.integers(-2, 2), min_size=3, max_size=3),  # ties, in values and distances
            st.integers(1, 4),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=8,
    ),
    reference=references,
    data=st.data(),
)
def test_the_order_of_updates_does_not_count(
    rule: Rule,
    told: list[tuple[list[int], int, int]],
    reference: Reference,
    data: st.DataObject,
) -> None:
    updates = [
        update(c, [float(x) for x in end], version=3 - lag, num_examples=n, num_buffers=1)
        for c, (end, n, lag) in enumerate(told)
    ]
    order = data.draw(st.permutations(range(len(updates))))
    how, now = RobustMean(rule, staleness_penalty=0.5, reference=reference), weights(NOW, 1)
    made = combine(how, now, updates, version=3)
    other = combine(how, now, [updates[i] for i in order], version=3)
    assert torch.allclose(made.weights.flat, other.weights.flat, rtol=1e-6, atol=1e-6)
    assert other.coefficients == pytest.approx([made.coefficients[i] for i in order])


@every_rule
@settings(max_examples=40, deadline=None)
@given(
    ends=st.lists(vectors, min_size=6, max_size=6),
    place=st.integers(0, 6),
    far=st.sampled_from([1e6, -1e6, 1e30, -3e38]),
    reference=references,
)
def test_one_outlier_of_seven_moves_nothing(
    rule: Rule, ends: list[list[float]], place: int, far: float, reference: Reference
) -> None:
    """Neither parameters nor buffers leave the range of the six others."""
    told = [*ends[:place], [far] * 3, *ends[place:]]
    updates = [update(c, end, num_buffers=1) for c, end in enumerate(told)]
    made = combine(RobustMean(rule, reference=reference), weights([0.0] * 3, 1), updates)
    honest = torch.tensor(ends)
    assert bool((made.weights.flat >= honest.min(0).values - 1e-3).all())
    assert bool((made.weights.flat <= honest.max(0).values + 1e-3).all())


@every_rule
@pytest.mark.parametrize("far", [1e6, -1e6])
def test_one_outlier_of_seven_would_have_moved_the_mean(rule: Rule, far: float) -> None:
    updates = [*(update(c, [1.0 + c / 100]) for c in range(6)), update(6, [far])]
    assert abs(float(combine(DiscountedMean(), weights([0.0]), updates).weights.flat)) > 1e5
    made = combine(RobustMean(rule), weights([0.0]), updates)
    assert 1.0 <= float(made.weights.flat) <= 1.05


@every_rule
def test_a_model_is_worked_through_in_slices(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any width, also of one column where there are very many updates."""
    rng = generator(1, "updates")
    updates = [
        update(c, rng.normal(size=50).tolist(), base=rng.normal(size=50).tolist(), num_buffers=11)
        for c in range(9)
    ]
    how, now = RobustMean(rule, reference="base"), weights(rng.normal(size=50).tolist(), 11)
    whole = combine(how, now, updates)
    for most in (9 * 39, 9 * 16, 5):
        monkeypatch.setattr(robust, "MOST_VALUES", most)
        made = combine(how, now, updates)
        assert torch.allclose(made.weights.flat, whole.weights.flat, rtol=1e-6, atol=1e-6)
        assert made.coefficients == whole.coefficients


def test_krum_sees_small_differences_far_away() -> None:
    # Seven near (1000, 1000), some thousandths away. Of the squares to their three nearest, in
    # millionths, 1 + 4 + 36 around 1e-3 is the least; squares of 1000 have no such digits.
    apart = [-9e-3, -8e-3, -1e-3, 0.0, 1e-3, 7e-3, 9e-3]
    updates = [update(c, [1000.0 + x, 1000.0]) for c, x in enumerate(apart)]
    made = combine(RobustMean(Krum()), weights([0.0, 0.0]), updates)
    assert made.coefficients == pytest.approx((0, 0, 0, 0, 1, 0, 0))


@pytest.mark.parametrize("share", [-0.1, 0.5, float("nan")])
def test_senseless_shares_are_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="less than half at each end, not"):
        Trimmed(share)
    with pytest.raises(ConfigError, match="less than half for bad, not"):
        Krum(share)


def test_krum_chooses_somebody() -> None:
    with pytest.raises(ConfigError, match="at least 1 update, not 0"):
        Krum(chosen=0)

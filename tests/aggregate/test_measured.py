"""The measured mean: how long its steps are, and whose word counts how much in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import update, view, weights

from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.measured import MeasuredMean
from pisces.policy import Aggregator, Combination
from pisces.seeds import generator
from pisces.types import Update, Weights

VERSION = 8


def combine(
    rule: Aggregator,
    updates: Sequence[Update],
    at_work: Sequence[int] = (),
    current: Weights | None = None,
) -> Combination:
    """Next to clients still `at_work` with so many samples each; a model of one 0 unless given."""
    num = len(updates)
    seen = view(
        [1] * num + list(at_work),
        buffer=updates,
        running=[(num + i, VERSION, 0.0) for i in range(len(at_work))],
        version=VERSION,
    )
    now = weights([0.0]) if current is None else current
    return rule.combine(now, updates, seen, generator(1, "aggregate"))


def arrived(*told: tuple[int, int], value: float = 1.0) -> list[Update]:
    """Updates from 0 to `value`, each of so many samples and so many versions behind."""
    return [
        update(client, [value], version=VERSION - behind, num_examples=samples)
        for client, (samples, behind) in enumerate(told)
    ]


@pytest.mark.parametrize(
    ("full_share", "coefficients"),
    # 100 and 300 samples have arrived, 600 and 200 are at work elsewhere, 1200 in all. A quarter
    # of them is 300: the step is full. Of a half, 600, there are 2/3, of all of them 1/3.
    [
        (0.0, (1 / 4, 3 / 4)),
        (0.25, (1 / 4, 3 / 4)),
        (1 / 3, (1 / 4, 3 / 4)),
        (0.5, (1 / 6, 1 / 2)),
        (1.0, (1 / 12, 1 / 4)),
    ],
)
def test_few_of_those_at_work_make_a_shorter_step(
    full_share: float, coefficients: tuple[float, float]
) -> None:
    rule = MeasuredMean(full_share=full_share)
    made = combine(rule, arrived((100, 0), (300, 0)), at_work=[600, 200])
    assert made.coefficients == pytest.approx(coefficients)
    assert made.weights.flat.item() == pytest.approx(sum(coefficients))


def test_whoever_declares_very_much_does_not_stop_the_others() -> None:
    # Of 100, 100 and 100 000 000 the median is 100: the last counts as 10 000, so 100 of 10 200.
    made = combine(MeasuredMean(full_share=1.0), arrived((100, 0)), at_work=[100, 100_000_000])
    assert made.coefficients == pytest.approx((1 / 102,))


def test_whoever_declares_very_much_is_not_all_that_counts() -> None:
    # Of 100, 100 and 100 000 000 the last counts as 10 000: 100 of 10 200 are left to each other.
    updates = arrived((100, 0), (100_000_000, 0), (100, 0))
    made = combine(MeasuredMean(full_share=1.0), updates)
    assert made.coefficients == pytest.approx((1 / 102, 100 / 102, 1 / 102))


def test_with_nobody_else_at_work_every_step_is_full() -> None:
    made = combine(MeasuredMean(full_share=1.0), arrived((100, 0)))
    assert made.coefficients == (1.0,)


@pytest.mark.parametrize(
    ("behind", "coefficients"),
    # 100 and 300 samples at beta 1/2: (1 + 3)^-1/2 = 1/2 and (1 + 8)^-1/2 = 1/3.
    [
        ((0, 0), (1 / 4, 3 / 4)),
        ((0, 3), (2 / 5, 3 / 5)),  # 100 : 300 / 2
        ((0, 8), (1 / 2, 1 / 2)),  # 100 : 300 / 3
        ((3, 0), (1 / 7, 6 / 7)),  # 100 / 2 : 300
        ((8, 8), (1 / 4, 3 / 4)),  # stale alike is as if fresh
    ],
)
def test_staleness_weighs_updates_but_does_not_shorten_the_step(
    behind: tuple[int, int], coefficients: tuple[float, float]
) -> None:
    updates = arrived((100, behind[0]), (300, behind[1]))
    made = combine(MeasuredMean(), updates)
    assert made.coefficients == pytest.approx(coefficients)
    assert made.weights.flat.item() == pytest.approx(1.0)
    # Among 1200 at work half of which make a full step, 400 make two thirds of it.
    shorter = combine(MeasuredMean(full_share=0.5), updates, at_work=[800])
    assert shorter.coefficients == pytest.approx([2 / 3 * c for c in coefficients])


def test_the_penalty_is_the_exponent_of_the_discount() -> None:
    # 100 : 300 / 9 with exponent 1, that is 3 : 1; 100 : 300 without one.
    updates = arrived((100, 0), (300, 8))
    for penalty, coefficients in ((1.0, (3 / 4, 1 / 4)), (0.0, (1 / 4, 3 / 4))):
        made = combine(MeasuredMean(staleness_penalty=penalty), updates)
        assert made.coefficients == pytest.approx(coefficients)


def test_buffers_take_the_step_against_the_current_model() -> None:
    # 100 of 200 samples at work make half a step. Parameter 1, buffer 10 now; the client went from
    # (0, 2) to (4, 20). Parameter: 1 + 1/2 x 4. Buffer: 10 + 1/2 (20 - 10) = 15, not against 2.
    one = update(0, [4.0, 20.0], base=[0.0, 2.0], version=VERSION, num_buffers=1)
    current = weights([1.0, 10.0], num_buffers=1)
    made = combine(MeasuredMean(full_share=1.0), [one], at_work=[100], current=current)
    assert made.weights.flat.tolist() == [3.0, 15.0]
    assert made.coefficients == (0.5,)


# --- what the updates tell of the step ------------------------------------------------------------


def steps(*vectors: tuple[float, float], base: tuple[float, float] = (0.0, 0.0)) -> list[Update]:
    """Updates of 100 samples each, from one base by these."""
    ends = [(base[0] + x, base[1] + y) for x, y in vectors]
    return [update(c, end, base=base, version=VERSION) for c, end in enumerate(ends)]


def length(rule: MeasuredMean, updates: list[Update]) -> float:
    """Of the step next to 600 samples at work: with two of 100 here it is 1 / (4 full_share)."""
    return sum(combine(rule, updates, [600], weights([0.0, 0.0])).coefficients)


@pytest.mark.parametrize(
    ("agreed", "expected"),
    # full_share 1/2 up to an agreement of 0.3, 0.45 / 0.6 = 3/4, and 1 from 0.6 on.
    [(-0.5, 1 / 2), (0.0, 1 / 2), (0.29, 1 / 2), (0.45, 1 / 3), (0.61, 1 / 4), (1.0, 1 / 4)],
)
def test_the_more_updates_agree_the_shorter_is_the_step(agreed: float, expected: float) -> None:
    # Two updates of length 1 agree as far as the cosine between them.
    updates = steps((1, 0), (agreed, math.sqrt(1 - agreed**2)))
    assert length(MeasuredMean(memory=2), updates) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("back", "expected"),
    # full_share 1/2 up to a turning back of 0.05, 0.075 / 0.1 = 3/4, and 1 from 0.1 on.
    [(-0.7, 1 / 2), (0.0, 1 / 2), (0.049, 1 / 2), (0.075, 1 / 3), (0.11, 1 / 4), (0.7, 1 / 4)],
)
def test_the_more_updates_turn_back_the_shorter_is_the_step(back: float, expected: float) -> None:
    rule = MeasuredMean(memory=2)
    length(rule, steps((1, 0), (-1, 0)))  # the model stays at (0, 0)
    # From (1, 0) the way back is (-1, 0). Two updates of length 1 go it as far as the cosine, and
    # agree by 2 back^2 - 1, which is below 0 here.
    aside = math.sqrt(1 - back**2)
    updates = steps((-back, aside), (-back, -aside), base=(1.0, 0.0))
    assert length(rule, updates) == pytest.approx(expected)


def test_who_agrees_makes_a_short_step_also_going_on() -> None:
    rule = MeasuredMean(memory=2)
    length(rule, steps((1, 0), (-1, 0)))
    # Turning back is -1 and agreement 1: the larger of -10 and 1 / 0.6, and at most 1.
    assert length(rule, steps((1, 0), (1, 0), base=(1.0, 0.0))) == pytest.approx(1 / 4)


def test_a_given_full_share_does_not_look_at_directions() -> None:
    rule = MeasuredMean(full_share=0.5, memory=2)
    assert length(rule, steps((1, 0), (1, 0))) == pytest.approx(1 / 2)
    assert rule.state().arrays == {}
    assert rule.state() == MeasuredMean().state()


def test_directions_so_far_are_kept() -> None:
    first, second = MeasuredMean(memory=4), MeasuredMean(memory=4)
    length(first, steps((1, 0), (1, 0)))
    second.restore(first.state())
    # One alone tells nothing of agreement, and this one goes neither back nor on: what was is what
    # counts, half of 1, so 1/2 / 0.6 = 5/6 of 700 make a full step.
    lengths = [length(rule, steps((0, 1))) for rule in (first, second)]
    assert lengths == [pytest.approx(100 / (5 / 6 * 700))] * 2


# --- whatever the updates -------------------------------------------------------------------------


@st.composite
def some_updates(draw: st.DrawFn) -> list[Update]:
    """One to five updates of two parameters and a buffer."""
    values = st.floats(-100, 100, width=32)
    vectors = st.tuples(values, values, values)
    return [
        update(
            client,
            draw(vectors),
            base=draw(vectors),
            version=draw(st.integers(0, VERSION)),
            num_examples=draw(st.integers(1, 1000)),
            num_buffers=1,
        )
        for client in range(draw(st.integers(1, 5)))
    ]


@settings(max_examples=40, deadline=None)
@given(updates=some_updates(), at_work=st.lists(st.integers(1, 1000), max_size=3))
def test_without_its_two_settings_it_is_the_plain_mean(
    updates: list[Update], at_work: list[int]
) -> None:
    """To the last bit: it differs from the rule of the paper in these settings alone."""
    current = weights([1.0, -2.0, 3.0], num_buffers=1)
    plain = DiscountedMean(reference="base")
    same = MeasuredMean(staleness_penalty=0.0, full_share=0.0)
    one, other = (combine(rule, updates, at_work, current) for rule in (plain, same))
    assert one.coefficients == other.coefficients
    assert torch.equal(one.weights.flat, other.weights.flat)


@settings(max_examples=60, deadline=None)
@given(
    updates=some_updates(),
    at_work=st.lists(st.integers(1, 1000), max_size=3),
    penalty=st.floats(0.0, 2.0),
    full_share=st.floats(0.0, 1.0),
)
def test_the_length_is_a_matter_of_samples_alone(
    updates: list[Update], at_work: list[int], penalty: float, full_share: float
) -> None:
    rule = MeasuredMean(staleness_penalty=penalty, full_share=full_share)
    current = weights([1.0, -2.0, 3.0], num_buffers=1)
    made = combine(rule, updates, at_work, current)
    sizes = [u.report.num_examples for u in updates]
    here = sum(sizes)
    most = 100 * median([*sizes, *at_work])
    enough = full_share * (here + sum(min(num, most) for num in at_work))
    length = 1.0 if here >= enough else here / enough
    assert sum(made.coefficients) == pytest.approx(length)
    assert min(made.coefficients) > 0

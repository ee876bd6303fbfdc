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

from pisces.aggregate.agreement import Agreement, agreement
from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.measured import MeasuredMean
from pisces.errors import ConfigError
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
    ("full_step", "coefficients"),
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
    full_step: float, coefficients: tuple[float, float]
) -> None:
    rule = MeasuredMean(full_step=full_step)
    made = combine(rule, arrived((100, 0), (300, 0)), at_work=[600, 200])
    assert made.coefficients == pytest.approx(coefficients)
    assert made.weights.flat.item() == pytest.approx(sum(coefficients))


def test_whoever_declares_very_much_does_not_stop_the_others() -> None:
    # Of 100, 100 and 100 000 000 the median is 100: the last counts as 10 000, so 100 of 10 200.
    made = combine(MeasuredMean(full_step=1.0), arrived((100, 0)), at_work=[100, 100_000_000])
    assert made.coefficients == pytest.approx((1 / 102,))


def test_with_nobody_else_at_work_every_step_is_full() -> None:
    made = combine(MeasuredMean(full_step=1.0), arrived((100, 0)))
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
    shorter = combine(MeasuredMean(full_step=0.5), updates, at_work=[800])
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
    made = combine(MeasuredMean(full_step=1.0), [one], at_work=[100], current=current)
    assert made.weights.flat.tolist() == [3.0, 15.0]
    assert made.coefficients == (0.5,)


# --- how far updates agree ------------------------------------------------------------------------


def towards(*vectors: tuple[float, float], num_buffers: int = 0) -> list[Update]:
    """Updates of 100 samples each, from zero to these."""
    return [
        update(c, v, base=(0.0, 0.0), version=VERSION, num_examples=100, num_buffers=num_buffers)
        for c, v in enumerate(vectors)
    ]


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        (towards((1, 0)), None),
        (towards((0, 0), (0, 0)), None),
        (towards((1e30, 0), (1e30, 0)), None),  # their squares are beyond float32
        (towards((1e30, 0), (-1e30, 0)), None),  # these, too, if not their sum
        (towards((2, 1), (2, 1), (2, 1)), 1.0),
        (towards((1, 0), (0, 3)), 0.0),
        (towards((1, 0), (-1, 0)), -1.0),
        # Products 3 + 0 + 0 twice, squares 1 + 9 + 4: 3 / 3 pairs against 14 / 3.
        (towards((1, 0), (3, 0), (0, 2)), 1 / (14 / 3)),
        (towards((1, 5), (1, -5), num_buffers=1), 1.0),  # a buffer has no say
    ],
)
def test_agreement_by_hand(updates: list[Update], expected: float | None) -> None:
    assert agreement(updates) == (None if expected is None else pytest.approx(expected))


def test_agreement_is_that_of_updates_against_their_own_base() -> None:
    one = update(0, (3, 1), base=(2, 1), version=VERSION)
    other = update(1, (5, 9), base=(5, 8), version=VERSION)
    assert agreement([one, other]) == pytest.approx(0.0)


def test_agreement_is_averaged_over_the_last_updates() -> None:
    # Two of four make half of it, so 0, then 1/2, 3/4, and 3/8; four and more all of it.
    recent = Agreement(memory=4)
    for updates, value in (
        (towards((1, 0), (0, 1)), 0.0),
        (towards((1, 0), (1, 0)), 0.5),
        (towards((1, 0), (1, 0)), 0.75),
        (towards((1, 0)), 0.75),
        (towards((1, 0), (0, 1)), 0.375),
        (towards(*[(1, 0)] * 5), 1.0),
    ):
        recent.add(updates)
        assert recent.value == pytest.approx(value)


def test_agreement_needs_a_memory() -> None:
    with pytest.raises(ConfigError, match="memory above 0 updates, not 0"):
        MeasuredMean(memory=0)


@pytest.mark.parametrize(
    ("agreed", "length"),
    # Of 800 samples at work 200 are here. Half of them make a full step where updates have little
    # in common (1/2 of it), all of them where the agreement is 1/5 and more (1/4).
    [(-0.5, 1 / 2), (0.0, 1 / 2), (0.1, 1 / 2), (0.15, 1 / 3), (0.2, 1 / 4), (0.9, 1 / 4)],
)
def test_the_more_updates_agree_the_shorter_is_the_step(agreed: float, length: float) -> None:
    # Two updates of length 1 agree as far as the cosine between them.
    updates = towards((1, 0), (agreed, math.sqrt(1 - agreed**2)))
    made = combine(MeasuredMean(memory=2), updates, [600], weights([0.0, 0.0]))
    assert sum(made.coefficients) == pytest.approx(length)


def test_a_given_full_step_does_not_follow_the_updates() -> None:
    updates = towards((1, 0), (1, 0))
    made = combine(MeasuredMean(full_step=0.5), updates, [600], weights([0.0, 0.0]))
    assert sum(made.coefficients) == pytest.approx(1 / 2)


def test_agreement_so_far_is_kept() -> None:
    first = MeasuredMean(memory=4)
    combine(first, towards((1, 0), (1, 0)), [600], weights([0.0, 0.0]))
    second = MeasuredMean(memory=4)
    second.restore(first.state())
    # One alone tells nothing of agreement: what was is what counts, 1/2, so 100 of 700 it is.
    made = [combine(r, towards((1, 0)), [600], weights([0.0, 0.0])) for r in (first, second)]
    assert [m.coefficients for m in made] == [pytest.approx((1 / 7,))] * 2


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
    same = MeasuredMean(staleness_penalty=0.0, full_step=0.0)
    one, other = (combine(rule, updates, at_work, current) for rule in (plain, same))
    assert one.coefficients == other.coefficients
    assert torch.equal(one.weights.flat, other.weights.flat)


@settings(max_examples=60, deadline=None)
@given(
    updates=some_updates(),
    at_work=st.lists(st.integers(1, 1000), max_size=3),
    penalty=st.floats(0.0, 2.0),
    full_step=st.floats(0.0, 1.0),
)
def test_the_length_is_a_matter_of_samples_alone(
    updates: list[Update], at_work: list[int], penalty: float, full_step: float
) -> None:
    rule = MeasuredMean(staleness_penalty=penalty, full_step=full_step)
    current = weights([1.0, -2.0, 3.0], num_buffers=1)
    made = combine(rule, updates, at_work, current)
    sizes = [u.report.num_examples for u in updates]
    here = sum(sizes)
    most = 100 * median([*sizes, *at_work])
    enough = full_step * (here + sum(min(num, most) for num in at_work))
    length = 1.0 if here >= enough else here / enough
    assert sum(made.coefficients) == pytest.approx(length)
    assert min(made.coefficients) > 0

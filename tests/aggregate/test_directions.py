"""Where updates point: the same way, and back or on, on vectors small enough to check."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import through_json
from worlds import update, weights

from pisces.aggregate.directions import Directions, directions
from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.types import Update

Vector = tuple[float, ...]
ORIGIN = torch.zeros(2)


def agreement(updates: Sequence[Update]) -> float | None:
    return directions(updates, None)[0]


def turning_back(updates: Sequence[Update], lately: torch.Tensor) -> float | None:
    return directions(updates, lately)[1]


def towards(*vectors: Vector, num_buffers: int = 0) -> list[Update]:
    """Updates from zero to these."""
    return [update(c, v, num_buffers=num_buffers) for c, v in enumerate(vectors)]


def between(*ways: tuple[Vector, Vector], num_buffers: int = 0) -> list[Update]:
    """Updates, each from the first of two to the second."""
    return [
        update(c, end, base=start, num_buffers=num_buffers) for c, (start, end) in enumerate(ways)
    ]


# --- the same way ---------------------------------------------------------------------------------


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
        (between(((2, 1), (3, 1)), ((5, 8), (5, 9))), 0.0),  # each against its own base
    ],
)
def test_agreement_by_hand(updates: list[Update], expected: float | None) -> None:
    assert agreement(updates) == (None if expected is None else pytest.approx(expected))


# --- back or on -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("updates", "expected"),
    # The model was at (0, 0) lately.
    [
        (between(((2, 0), (1, 0))), 1.0),  # straight back
        (between(((2, 0), (-7, 0))), 1.0),  # however far
        (between(((2, 0), (3, 0))), -1.0),  # on
        (between(((2, 0), (2, 5))), 0.0),  # neither
        # (-3, 4) of length 5 against (-5, 0): 15 / (5 x 5).
        (between(((5, 0), (2, 4))), 0.6),
        # Back by 1, (-1)(-2) = 2; on by 1 elsewhere, (1)(-2) = -2.
        (between(((2, 0), (1, 0)), ((0, 2), (0, 3))), 0.0),
        # (-2, 0) against (-3, 0) is 6, (1, 0) against (0, -4) is 0. Squares 4 + 1 and 9 + 16.
        (between(((3, 0), (1, 0)), ((0, 4), (1, 4))), 6 / (5 * 25) ** 0.5),
        # Who did not move has no direction, but a way: 2 / sqrt(1 x (4 + 4)).
        (between(((2, 0), (1, 0)), ((2, 0), (2, 0))), 2 / 8**0.5),
    ],
)
def test_turning_back_by_hand(updates: list[Update], expected: float) -> None:
    assert turning_back(updates, ORIGIN) == pytest.approx(expected)


def test_to_follow_where_the_model_has_gone_since_is_no_way_on() -> None:
    # From (0, 0), when the model has been at (2, 0) lately: others have done that already.
    assert turning_back(towards((1, 0)), torch.tensor([2.0, 0.0])) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "updates",
    [
        between(((2, 0), (2, 0)), ((0, 3), (0, 3))),  # nobody moved
        towards((1, 0), (0, 1)),  # the model has not
        between(((2, 0), (1e30, 0))),  # a square beyond float32
        between(((1e30, 0), (1e30, 1))),
        # Infinite products of both signs.
        between(((1e30, 0), (0, 0)), ((1e30, 0), (2e30, 0))),
    ],
)
def test_no_way_back_or_on_can_be_told(updates: list[Update]) -> None:
    assert turning_back(updates, ORIGIN) is None


def test_buffers_turn_nowhere() -> None:
    # The parameter turns back from 2 to 1, the buffer goes on from 9 to 99.
    updates = between(((2, 9), (1, 99)), num_buffers=1)
    assert turning_back(updates, torch.zeros(1)) == pytest.approx(1.0)


points = st.tuples(*[st.integers(-100, 100)] * 3)


@settings(max_examples=60, deadline=None)
@given(
    ways=st.lists(st.tuples(points, points), min_size=1, max_size=5),
    lately=points,
    scale=st.sampled_from([2.0**-20, 1.0, 2.0**20]),
    stride=st.sampled_from([-4, -1, 1, 4]),
)
def test_only_directions_count(
    ways: list[tuple[Vector, Vector]], lately: Vector, scale: float, stride: int
) -> None:
    """Neither the scale of the model nor the length of all steps; the other way is the negative."""

    def told(scale: float, stride: int) -> tuple[float | None, float | None]:
        moves = [
            (
                tuple(scale * a for a in start),
                tuple(scale * (a + stride * b) for a, b in zip(start, step, strict=True)),
            )
            for start, step in ways
        ]
        there = torch.tensor([scale * a for a in lately])
        return agreement(between(*moves)), turning_back(between(*moves), there)

    alike, back = told(1.0, 1)
    alike_too, back_too = told(scale, stride)
    assert alike_too == (None if alike is None else pytest.approx(alike, abs=1e-6))
    if back is None:
        assert back_too is None
    else:
        assert back_too == pytest.approx(back if stride > 0 else -back, abs=1e-6)
        assert abs(back) <= 1 + 1e-6


# --- over the last updates ------------------------------------------------------------------------


def test_agreement_is_averaged_over_the_last_updates() -> None:
    # Two of four make half of it, so 0, then 1/2, 3/4, and 3/8; four and more all of it.
    recent = Directions(memory=4)
    for updates, value in (
        (towards((1, 0), (0, 1)), 0.0),
        (towards((1, 0), (1, 0)), 0.5),
        (towards((1, 0), (1, 0)), 0.75),
        (towards((1, 0)), 0.75),
        (towards((1, 0), (0, 1)), 0.375),
        (towards(*[(1, 0)] * 5), 1.0),
    ):
        recent.add(updates)
        assert recent.agreement == pytest.approx(value)


def version(recent: Directions, at: float, ends: Sequence[float], new: float) -> float:
    """Updates from `at` to `ends` make the version `new`; how far they turn back by then."""
    recent.add(between(*[((at,), (end,)) for end in ends]))
    recent.moved(weights([new]), len(ends))
    return recent.turning_back


def test_turning_back_is_averaged_over_the_last_updates() -> None:
    recent = Directions(memory=4)  # and the versions of the last 8
    assert version(recent, 0.0, [3, 3], new=3.0) == 0.0  # has not moved yet
    assert version(recent, 3.0, [6, 6], new=6.0) == 0.0  # was at 3, is at 3
    # The model was at 3 + 2/3 (6 - 3) = 5 lately: two updates after two are 2 / (2 + 2 / 2).
    # Two of four go back to it, 1/2; then at 6 one of four goes on, 1/2 + 1/4 (-1 - 1/2).
    assert version(recent, 6.0, [5, 5], new=6.0) == pytest.approx(1 / 2)
    assert version(recent, 6.0, [7], new=6.0) == pytest.approx(1 / 8)
    assert version(recent, 6.0, [6], new=6.0) == pytest.approx(1 / 8)  # tells nothing
    assert version(recent, 6.0, [5] * 5, new=6.0) == pytest.approx(1.0)


def test_a_model_that_goes_on_and_one_that_swings() -> None:
    on, swings = Directions(memory=2), Directions(memory=2)
    for k in range(10):
        version(on, k, [k + 1, k + 1], new=k + 1)
        at = (-1.0) ** k
        version(swings, at, [-at, -at], new=-at)
    assert on.turning_back == pytest.approx(-1.0)
    assert swings.turning_back == pytest.approx(1.0)


def test_what_overflows_is_forgotten() -> None:
    recent = Directions(memory=2)
    version(recent, 0.0, [1e30, 1e30], new=1e30)
    version(recent, 1e30, [0, 0, 0, 0], new=0.0)  # four: the model was at 0 lately
    assert (recent.agreement, recent.turning_back) == (0.0, 0.0)
    assert version(recent, 3.0, [2, 2], new=2.0) == pytest.approx(1.0)
    assert recent.agreement == pytest.approx(1.0)


def test_both_go_on_from_saved_state() -> None:
    """Bit for bit, also through JSON."""
    rng = generator(1, "updates")
    first, second = Directions(memory=7), Directions(memory=7)
    at = weights([0.0, 0.0, 0.0])
    for k in range(12):
        ends = rng.normal(size=(1 + k % 3, 3)).tolist()
        new = weights(ends[0])
        for recent in (first,) if k < 6 else (first, second):
            recent.add(between(*[(tuple(at.flat.tolist()), tuple(end)) for end in ends]))
            recent.moved(new, len(ends))
        at = new
        if k == 5:
            second.restore(through_json(first.state()))
    assert first.state().values == second.state().values
    assert 0 < abs(first.turning_back) < 1
    arrays, others = first.state().arrays, second.state().arrays
    assert arrays.keys() == others.keys()
    assert all(torch.equal(arrays[name], others[name]) for name in arrays)


@pytest.mark.parametrize("memory", [0.0, -1.0, float("nan")])
def test_directions_need_a_memory(memory: float) -> None:
    with pytest.raises(ConfigError, match="memory above 0 updates, not"):
        Directions(memory)

"""A model that is trained with measured steps: held back where it goes too far, only there."""

from __future__ import annotations

from collections import deque

import pytest
from worlds import update, view, weights

from pisces.aggregate.measured import MeasuredMean
from pisces.seeds import generator


def trained(rule: MeasuredMean, share: float, num_versions: int) -> tuple[list[float], list[float]]:
    """Lengths of steps, and where they lead from 1, if 0 is best.

    Of four at work two arrive at a time, and two others start from what is made of them. Each goes
    a share of the way to where it would be best for its own data, (0, 2) or (0, -2): they agree on
    the first number, never on the second, and have little in common in all.
    """
    bases = deque([weights([1.0, 0.0])] * 2)
    lengths, places = [], []
    for _ in range(num_versions):
        x, y = bases.popleft().flat.tolist()
        ends = [(x - share * x, y + share * (own - y)) for own in (2.0, -2.0)]
        updates = [update(client, end, base=(x, y)) for client, end in enumerate(ends)]
        seen = view([100] * 4, buffer=updates, running=[(2, 0, 0.0), (3, 0, 0.0)])
        made = rule.combine(bases[-1], updates, seen, generator(1, "aggregate"))
        bases.append(made.weights)
        lengths.append(sum(made.coefficients))
        places.append(float(made.weights.flat[0]))
    return lengths, places


def test_a_model_that_goes_too_far_is_held_back() -> None:
    # Who trains goes all the way. With 1/2, two of four make a full step: x' = x - x_before, which
    # from 1, 1 goes 0, -1, -1, 0, 1, 1 for ever.
    _, swinging = trained(MeasuredMean(full_share=0.5), 1.0, 60)
    assert swinging == pytest.approx([0, -1, -1, 0, 1, 1] * 10)
    # The second two started where the first two did, and go where the model went meanwhile: 1 of
    # a step (1, 2), so they turn back by 0.45, and half of it counts, two of four. That is above
    # 0.1, and steps are half as long from there on, x' = x - x_before / 2.
    lengths, places = trained(MeasuredMean(memory=4), 1.0, 60)
    assert lengths[:6] == pytest.approx([1] + [1 / 2] * 5)
    assert places[:6] == pytest.approx([0, -1 / 2, -1 / 2, -1 / 4, 0, 1 / 8])
    # What is left of the swing is nothing against what clients differ by: 0.1 of a step (0.1, 2)
    # is 0.05, for which no step is shorter.
    assert max(map(abs, places[8:])) < 0.1


def test_a_model_that_goes_on_is_not_held_back() -> None:
    # Who trains goes a tenth of the way. The first versions are careful: their clients started when
    # the model had not been anywhere else. Then all steps are as long as with 1/2: what is left
    # shrinks to 0.887 of it a version (z^2 = z - 1/10), against 0.947 with 1 (z^2 = z - 1/20).
    lengths, places = trained(MeasuredMean(memory=4), 0.1, 30)
    assert lengths[4:] == pytest.approx([1.0] * 26)
    assert places[29] / places[28] == pytest.approx(0.887, abs=1e-3)
    _, slower = trained(MeasuredMean(full_share=1.0), 0.1, 30)
    assert slower[29] / slower[28] == pytest.approx(0.947, abs=1e-3)
    assert 5 * places[29] < slower[29]  # 0.03 and 0.2

"""How many examples nodes are guessed to have, before and after they told."""

from __future__ import annotations

import pytest

from pisces.execute.flower.sizes import Sizes


def test_the_usual_is_guessed_of_those_that_did_not_tell() -> None:
    sizes = Sizes()
    assert [sizes.of(client) for client in range(3)] == [1, 1, 1]  # nobody knows anything
    assert sizes.hear(0, 40) == {0: 40, 1: 40, 2: 40}  # the first is the usual one
    assert sizes.hear(0, 40) == {}  # no news
    assert sizes.hear(1, 10) == {1: 10}  # 2 was guessed well enough
    assert sizes.of(3) == 10  # the lower median of 10 and 40
    assert sizes.hear(2, 90) == {2: 90}
    assert sizes.of(4) == 40  # of 10, 40, 90
    assert [sizes.of(client) for client in range(3)] == [40, 10, 90]  # those who told are known
    assert sizes.hear(1, 11) == {1: 11}  # it may have more by now


@pytest.mark.parametrize("absurd", [0, -5, 101, 10**30])
def test_what_cannot_be_spoils_no_guess(absurd: int) -> None:
    sizes = Sizes(most=100)
    assert sizes.of(1) == 1
    assert sizes.hear(0, absurd) == {}
    assert sizes.of(2) == 1
    assert sizes.hear(1, 100) == {1: 100, 2: 100}
    assert sizes.of(0) == 100

"""How many examples nodes are guessed to have, before and after they told."""

from __future__ import annotations

from typing import Any

import pytest

from pisces.execute.flower.sizes import Sizes
from pisces.types import Joined, Report, Update


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


def test_what_another_process_heard_is_known_unless_it_is_known_better() -> None:
    sizes = Sizes()
    assert not sizes.is_anything_told
    for client, num in ((0, 40), (1, 10), (0, 50)):
        sizes.record(update(client, num))
        sizes.record(Joined(0.0, 2, 7))  # which may be a guess
    assert sizes.is_anything_told
    assert [sizes.of(client) for client in range(3)] == [40, 10, 10]
    sizes.hear(0, 60)
    sizes.record(update(0, 50))
    assert sizes.of(0) == 60
    sizes.close()


def update(client: int, num_examples: int) -> Update:
    nothing: Any = None
    return Update(0, client, 0, nothing, nothing, Report(num_examples), 1.0, 1.0)


@pytest.mark.parametrize("absurd", [0, -5, 101, 10**30])
def test_what_cannot_be_spoils_no_guess(absurd: int) -> None:
    sizes = Sizes(most=100)
    assert sizes.of(1) == 1
    assert sizes.hear(0, absurd) == {}
    assert sizes.of(2) == 1
    assert sizes.hear(1, 100) == {1: 100, 2: 100}
    assert sizes.of(0) == 100

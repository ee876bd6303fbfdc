"""Updates far longer than usual, on vectors small enough to check."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from runs import log_bytes, through_json, train_digits
from worlds import update, view, weights

from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.usual import Usual
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.protocols.pisces import pisces
from pisces.seeds import generator
from pisces.types import Update


class Seen(Aggregator):
    """Does nothing but look."""

    def combine(self, weights, updates, view, rng):  # type: ignore[no-untyped-def]
        self.updates = updates
        return Combination(weights, (0.25,) * len(updates))


def given(
    rule: Usual, updates: Sequence[Update], model: Sequence[float] = (3.0, 4.0)
) -> list[float]:
    """The first number of each update's way, as the inner one sees it; the model's length is 5."""
    rule.combine(weights(list(model)), updates, view(), generator(1, "aggregate"))
    seen = rule.inner.updates  # type: ignore[attr-defined]
    return [float(u.weights.flat[0] - u.base.flat[0]) for u in seen]


def ways(*lengths: float, first: int = 0) -> list[Update]:
    """One update per length, each of another client, from (1, 1) to the right."""
    return [
        update(first + i, [1.0 + length, 1.0], base=[1.0, 1.0]) for i, length in enumerate(lengths)
    ]


def heard(longest: float = 3.0) -> Usual:
    """Of ten clients, whose median length is 2."""
    rule = Usual(2, Seen(), longest=longest)
    given(rule, ways(1, 1, 1, 1, 2, 2, 3, 3, 3, 3))
    return rule


def test_at_first_the_model_is_the_measure() -> None:
    # 3 x 5 is the longest: 15 stays, 16 goes nowhere: nobody knows what is usual.
    rule = Usual(2, Seen(), longest=2.0)
    assert given(rule, ways(15, 16, 0.1, 0.1, 0.1)) == pytest.approx([15, 0, 0.1, 0.1, 0.1])
    assert given(rule, ways(15, 16, first=5)) == pytest.approx([15, 0])  # seven are not enough


def test_then_it_is_the_median_of_those_heard() -> None:
    # 3 x 2 = 6: 6 stays, 7 becomes 2.
    assert given(heard(), ways(6, 7, first=20)) == pytest.approx([6, 2])


def test_what_is_shorter_than_the_model_is_never_too_long() -> None:
    # Of ten clients the middle one went 0.1, and 3 x 0.1 is less than the model's 5.
    rule = Usual(2, Seen(), longest=3.0)
    given(rule, ways(*[0.1] * 10))
    assert given(rule, ways(5, 5.1, first=20)) == pytest.approx([5, 0.1])


def test_lengths_of_a_version_that_was_undone_have_no_say() -> None:
    rule = heard()
    undo = rule.remember()
    given(rule, ways(*[6.0] * 20, first=20))
    undo()
    assert given(rule, ways(6, 7, first=20)) == pytest.approx([6, 2])  # it is still 2
    taken = heard()
    taken.remember()
    given(taken, ways(*[6.0] * 20, first=20))
    assert given(taken, ways(17, 19, first=50)) == pytest.approx([17, 6])  # 18 is the longest


def test_a_length_without_end_is_no_way_at_all() -> None:
    # Its square is infinite: what share of it is 2? It ends where it began, as in `clip.py`.
    far = update(40, [3e38, 1.0], base=[-3e38, 1.0])
    assert given(heard(), [far]) == [0.0]


def test_what_is_not_too_long_is_not_touched() -> None:
    rule, updates = heard(), ways(6, 7, first=20)
    given(rule, updates)
    assert rule.inner.updates[0] is updates[0]  # type: ignore[attr-defined]
    assert updates[1].weights.flat.tolist() == [8.0, 1.0]


def test_buffers_are_neither_measured_nor_changed() -> None:
    rule = heard()
    odd = [update(20, [8.0, 1.0, 90.0], base=[1.0, 1.0, 7.0], num_buffers=1)]
    assert given(rule, odd) == [2.0]
    assert rule.inner.updates[0].weights.flat.tolist() == [3.0, 1.0, 90.0]  # type: ignore[attr-defined]


def test_a_client_has_one_say() -> None:
    # Client 0 was heard with 1, then with 5, five times: the median goes from 2 to 2.5, not to 5.
    rule = heard()
    for _ in range(5):
        given(rule, ways(5))
    assert given(rule, ways(7.4, 7.6, first=20)) == pytest.approx([7.4, 2.5])


def test_a_few_who_shout_do_not_make_it_usual_but_most_do() -> None:
    rule = heard()
    given(rule, ways(*[1e6] * 4))  # four of ten, remembered as 6 each: the median of ten is 3
    assert given(rule, ways(9, 1e6, first=4)) == pytest.approx([9, 3])
    # By now 6 6 6 6 9 9 3 3 3 3: most of them are long, and that is what is usual.
    assert given(rule, ways(17, 19, first=20)) == pytest.approx([17, 6])


def test_nothing_is_shortened_by_the_length_of_nothing() -> None:
    rule = Usual(2, Seen(), longest=3.0)
    assert given(rule, ways(1e6, 2), model=[0.0, 0.0]) == pytest.approx([1e6, 2])
    still = Usual(2, Seen())
    given(still, ways(*[0.0] * 10), model=[0.0, 0.0])  # nobody moves at all
    assert given(still, ways(4, first=20), model=[0.0, 0.0]) == [4.0]


def test_the_lengths_go_on() -> None:
    first, second = heard(), Usual(2, Seen(), longest=3.0)
    second.restore(through_json(first.state()))
    assert given(first, ways(6, 7)) == given(second, ways(6, 7)) == pytest.approx([6, 2])


def test_a_state_from_before_there_were_lengths_has_none() -> None:
    rule = Usual(2, DiscountedMean(reference="base"))
    rule.restore(DiscountedMean().state())
    assert rule.state().values == {"lengths": []}


@pytest.mark.parametrize("longest", [1.0, 0.5, -1.0, float("nan"), float("inf")])
def test_a_senseless_limit_is_refused(longest: float) -> None:
    with pytest.raises(ConfigError, match="more than 1 times, not"):
        Usual(2, Seen(), longest=longest)


# --- in pisces ------------------------------------------------------------------------------------


def test_pisces_has_it_and_an_honest_run_is_the_same_to_the_bit() -> None:
    assert isinstance(pisces(4, average=0.0).aggregator, Usual)
    assert not isinstance(pisces(4, average=0.0, longest=0.0).aggregator, Usual)
    with_it, without = (train_digits("pisces", c) for c in ([], ["protocols.pisces.longest=0"]))
    assert log_bytes(with_it[0]) == log_bytes(without[0])
    assert with_it[1].flat.tolist() == without[1].flat.tolist()


def test_one_that_shouts_spoils_a_run_without_it() -> None:
    shout = ["hostile.share=0.2", "hostile.times=1000"]
    first = train_digits("pisces", shout)[1].parameters.norm()
    spoilt = train_digits("pisces", [*shout, "protocols.pisces.longest=0"])[1].parameters.norm()
    assert first < 20 < spoilt

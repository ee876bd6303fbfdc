"""Nothing learnt: both limits worked out by hand, what moves them, and who is not judged."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import through_json
from torch import nn
from worlds import update

from pisces.clients.learning import NothingLearnt, Recent
from pisces.data.federated import FederatedData
from pisces.models.flat import flatten
from pisces.objective import cross_entropy
from pisces.policy import Verdict
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan, Report, Task, Update, Weights

# C = 4, so four updates are enough to judge by, and eight are kept. These train version 0: guessing
# costs 2 (the median; the mean is 2.03), so nobody is doubted up to 0.75 x 2 = 1.5. Usually 0.25 is
# left (the mean is 0.5), so nobody is doubted up to 2.5 x 0.25 = 0.625 either.
LOSSES = (1.25, 1.75, 2.25, 2.875)
LEFT = (0.125, 0.25, 0.25, 1.375)
# Where 0.75 is usual, nobody is doubted up to 2.5 x 0.75 = 1.875.
MUCH_LEFT = (0.5, 0.75, 0.75, 1.0)

BELIEVED = Verdict(forgives=True)


def told(loss: float | None, left: float | None, version: int = 1) -> Update:
    return update(9, version=version, loss=loss, loss_left=left)


def doubts(judge: NothingLearnt, left: Sequence[float]) -> list[bool]:
    """Of updates with so much left, one after the other; their losses were 2."""
    return [judge.judge(told(2.0, each)).is_outlier for each in left]


def judge_of(
    losses: Sequence[float] = LOSSES, left: Sequence[float] = LEFT, concurrency: int = 4
) -> NothingLearnt:
    """One that has seen these train version 0, and believed them all."""
    judge = NothingLearnt(concurrency)
    for each in zip(losses, left, strict=True):
        assert judge.judge(told(*each, version=0)) == BELIEVED
    return judge


# --- the two limits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usually", "left", "doubted"),
    [
        # 1.5 decides: much more than usual is not enough.
        *[(LEFT, 0.7, False), (LEFT, 1.5, False), (LEFT, 1.501, True), (LEFT, 99.0, True)],
        # 1.875 decides: nearly the loss of guessing is not enough.
        *[(MUCH_LEFT, 1.6, False), (MUCH_LEFT, 1.875, False), (MUCH_LEFT, 1.876, True)],
        # Where usually nothing is left, it is 1.5 again.
        *[((0.0,) * 4, 1.5, False), ((0.0,) * 4, 1.501, True)],
    ],
)
def test_doubted_is_who_is_beyond_both_limits(
    usually: Sequence[float], left: float, doubted: bool
) -> None:
    assert doubts(judge_of(left=usually), [left]) == [doubted]


def test_how_high_the_loss_was_at_first_does_not_matter() -> None:
    judge = judge_of()
    assert not judge.judge(told(99.0, 1.5)).is_outlier
    assert judge.judge(told(0.1, 1.501)).is_outlier


@settings(max_examples=60)
@given(
    left=st.lists(st.integers(0, 40).map(lambda n: n / 8), max_size=30),
    unit=st.integers(-9, 9).map(lambda n: 2.0**n),  # so that nothing is rounded
)
def test_the_unit_of_the_loss_does_not_matter(left: list[float], unit: float) -> None:
    other = judge_of([unit * loss for loss in LOSSES], [unit * each for each in LEFT])
    assert doubts(other, [unit * each for each in left]) == doubts(judge_of(), left)


# --- what guessing costs --------------------------------------------------------------------------


def test_later_versions_do_not_change_what_guessing_costs() -> None:
    judge = judge_of()
    for _ in range(20):
        judge.judge(told(99.0, 0.25))
    assert doubts(judge, [1.5, 1.501]) == [False, True]


def test_slow_clients_tell_of_version_0_too_even_if_doubted() -> None:
    # With 2.5 the median is 2.25, and the limit 1.6875; with another 2.25 they stay.
    judge = judge_of()
    assert judge.judge(told(2.5, 1.688, version=0)).is_outlier
    assert judge.state().values["at_first"] == [*LOSSES, 2.5]
    assert judge.judge(told(2.25, 0.25, version=0)) == BELIEVED
    assert doubts(judge, [1.6875, 1.688]) == [False, True]


def test_version_0_is_known_by_the_last_twice_as_many_as_run_at_once() -> None:
    # Eight of 2, then fours: with four of them the median of eight is 3, with five it is 4.
    judge = judge_of([2.0] * 8, [0.25] * 8)
    for _ in range(4):
        judge.judge(told(4.0, 0.25, version=0))
    assert doubts(judge, [2.25, 2.251]) == [False, True]
    judge.judge(told(4.0, 0.25, version=0))
    assert doubts(judge, [3.0, 3.001]) == [False, True]


@pytest.mark.parametrize(
    ("losses", "doubted"),
    # Guessing costs all of them 2. Nine of ten have to be within 1 and 3, the tenth may be far off.
    [
        ([2.0] * 8 + [3.0, 9.0], True),
        ([2.0] * 8 + [1.0, 0.0], True),
        ([2.0] * 8 + [3.001, 9.0], False),
        ([2.0] * 8 + [0.999, 0.0], False),
    ],
)
def test_nobody_is_judged_where_version_0_costs_some_much_more(
    losses: list[float], doubted: bool
) -> None:
    # As where the first model knows something already, or losses have different scales.
    assert doubts(judge_of(losses, [0.25] * 10, concurrency=5), [1.6]) == [doubted]


# --- what is usual --------------------------------------------------------------------------------


def test_where_what_is_usual_is_negative_nobody_is_doubted() -> None:
    # Of -1, -1, -0.5, -0.5 the median is negative: such losses have no zero to measure from.
    assert doubts(judge_of(left=(-1.0, -1.0, -0.5, -0.5)), [99.0]) == [False]
    assert doubts(judge_of(left=(-1.0, -1.0, 1.0, 1.0)), [99.0]) == [True]


def test_the_doubted_do_not_become_what_is_usual() -> None:
    # As many as those believed, however long.
    judge = judge_of()
    for _ in range(50):
        assert doubts(judge, [1.6, 0.25]) == [True, False]
    assert judge.state().values["left"] == [0.25] * 8
    assert judge.state().values["losses"] == [2.0] * 8


def test_usual_is_what_was_left_to_the_last_twice_as_many_as_run_at_once() -> None:
    # Twelve of 0.25, then 0.75: with four of them the median of eight is 0.5, and 1.5 decides as
    # before; with five it is 0.75.
    judge = judge_of([2.0] * 12, [0.25] * 12)
    doubts(judge, [0.75] * 4)
    assert doubts(judge, [1.6]) == [True]
    doubts(judge, [0.75])
    assert doubts(judge, [1.6]) == [False]


def test_a_doubted_loss_counts_as_the_median_of_those_believed() -> None:
    judge = judge_of()
    doubted = [judge.judge(told(loss, 1.6)) for loss in (50.0, 99.0)]  # the 50 has not moved it
    assert doubted == [Verdict(is_outlier=True, keep=False, loss=2.0)] * 2
    assert judge.judge(told(2.25, 0.25)) == BELIEVED  # of 1, 1.5, 2.25, 2.5, 9 it is the median
    assert judge.judge(told(99.0, 1.6)) == Verdict(is_outlier=True, keep=False, loss=2.25)


# --- where most are doubted -----------------------------------------------------------------------


def test_when_more_than_half_are_doubted_judging_starts_anew() -> None:
    # Of the latest eight, four doubted are half; the fifth is one too many.
    judge = judge_of()
    assert doubts(judge, [1.6] * 4) == [True] * 4
    last = judge.judge(told(2.0, 1.6))
    assert last == Verdict(is_outlier=True, keep=False, loss=2.0)  # by what was believed till now
    assert judge.state().values == {
        "at_first": list(LOSSES),
        "losses": [],
        "left": [],
        "latest": [],
    }
    # Now 1.6 is what is usual, and from the fourth on the limit is 2.5 x 1.6 = 4.
    assert doubts(judge, [1.6] * 4) == [False] * 4
    assert doubts(judge, [4.0, 4.001]) == [False, True]


@pytest.mark.parametrize("concurrency", [2, 7, 20])
def test_half_of_the_latest_is_not_most_of_them(concurrency: int) -> None:
    judge = judge_of([2.0] * concurrency, [0.25] * concurrency, concurrency)
    assert doubts(judge, [1.6] * concurrency) == [True] * concurrency
    assert len(judge.state().values["left"]) == concurrency
    assert doubts(judge, [1.6, 1.6]) == [True, False]


def test_doubts_of_long_ago_do_not_count() -> None:
    judge = judge_of()
    for _ in range(5):
        assert doubts(judge, [1.6] * 4) == [True] * 4
        assert doubts(judge, [0.25] * 4) == [False] * 4


# --- who is not judged ----------------------------------------------------------------------------


@pytest.mark.parametrize(("concurrency", "unjudged"), [(1, 2), (2, 2), (4, 4), (9, 9)])
def test_nobody_is_judged_before_as_many_updates_as_run_at_once(
    concurrency: int, unjudged: int
) -> None:
    num = unjudged - 1
    assert doubts(judge_of([2.0] * num, [0.1] * num, concurrency), [99.0]) == [False]
    num = unjudged
    assert doubts(judge_of([2.0] * num, [0.1] * num, concurrency), [99.0]) == [True]


@pytest.mark.parametrize(("loss", "left"), [(2.0, None), (None, 99.0), (None, None)])
@pytest.mark.parametrize("version", [0, 1])
def test_who_does_not_tell_both_losses_is_not_judged_nor_remembered(
    loss: float | None, left: float | None, version: int
) -> None:
    judge = judge_of()
    before = judge.state()
    assert judge.judge(told(loss, left, version)) == Verdict()
    assert judge.state() == before


def test_nobody_is_judged_where_nobody_told_what_guessing_costs() -> None:
    assert doubts(NothingLearnt(4), [0.25] * 8 + [99.0]) == [False] * 9


@pytest.mark.parametrize("loss", [0.0, -1.0])
def test_nobody_is_judged_where_guessing_costs_nothing(loss: float) -> None:
    assert doubts(judge_of([loss] * 4, [loss] * 4), [99.0]) == [False]


# --- any updates ----------------------------------------------------------------------------------

# Multiples of 1/4 make ties; enough of them stand apart to make it start anew.
some_losses = st.integers(0, 12).map(lambda n: n / 4) | st.floats(-1.0, 3.0) | st.just(20.0)
some_updates = st.lists(
    st.builds(told, st.none() | some_losses, st.none() | some_losses, st.sampled_from([0, 1, 7])),
    max_size=60,
)


def by_the_book(updates: Sequence[Update], concurrency: int) -> list[Verdict]:
    """The verdicts, with every median taken from the start."""
    at_first: list[float] = []
    believed: list[tuple[float, float]] = []
    doubted: list[bool] = []
    verdicts = []
    for each in updates:
        verdict, loss, left = Verdict(), each.report.loss, each.report.loss_left
        if loss is not None and left is not None:
            at_first += [loss] * (each.version == 0)
            is_judged = len(believed) >= concurrency and at_first
            recent = believed[-2 * concurrency :]
            ignorance = median(at_first[-2 * concurrency :]) if is_judged else 0.0
            usual = median(left for _, left in recent) if is_judged else -1.0
            apart = sorted(abs(each - ignorance) for each in at_first[-2 * concurrency :])
            is_guess = is_judged and apart[max(1, 9 * len(apart) // 10) - 1] <= 0.5 * ignorance
            is_outlier = bool(
                is_guess and ignorance > 0 <= usual and left > max(0.75 * ignorance, 2.5 * usual)
            )
            verdict = BELIEVED
            if is_outlier:
                verdict = Verdict(is_outlier, keep=False, loss=median(loss for loss, _ in recent))
            else:
                believed.append((loss, left))
            doubted = [*doubted, is_outlier][-2 * concurrency :]
            if sum(doubted) > concurrency:
                believed, doubted = [], []
        verdicts.append(verdict)
    return verdicts


@settings(max_examples=150, deadline=None)
@given(updates=some_updates, concurrency=st.integers(2, 5))
def test_verdicts_are_those_of_the_book(updates: list[Update], concurrency: int) -> None:
    judge = NothingLearnt(concurrency)
    assert [judge.judge(each) for each in updates] == by_the_book(updates, concurrency)


@settings(max_examples=100, deadline=None)
@given(before=some_updates, after=some_updates, to_be_forgotten=some_updates)
def test_goes_on_from_its_state(
    before: list[Update], after: list[Update], to_be_forgotten: list[Update]
) -> None:
    old, new = NothingLearnt(3), NothingLearnt(3)
    for judge, updates in ((old, before), (new, to_be_forgotten)):
        for each in updates:
            judge.judge(each)
    new.restore(through_json(old.state()))
    assert new.state() == old.state()
    assert [new.judge(each) for each in after] == [old.judge(each) for each in after]
    assert new.state() == old.state()


@given(
    numbers=st.lists(st.integers(-3, 3).map(float) | st.floats(-1e9, 1e9), min_size=1),
    most=st.integers(1, 8),
    num_given=st.integers(0, 20),
)
def test_the_median_is_that_of_the_last_ones(
    numbers: list[float], most: int, num_given: int
) -> None:
    recent = Recent(most, numbers[:num_given])
    for number in numbers[num_given:]:
        recent.add(number)
        assert recent.median == median(list(recent))
    assert list(recent) == numbers[-most:]
    assert len(recent) == min(most, len(numbers))
    assert recent.median == median(numbers[-most:])


# --- a story, with real training ------------------------------------------------------------------

CORNERS = torch.tensor([[2.0, 2.0], [2.0, -2.0], [-2.0, 2.0], [-2.0, -2.0]])  # one for each class
RARE, WRONG = 5, (6, 7)  # of eight clients


def corners(client: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Points near their class's corner: of three classes, of the fourth, or called by chance."""
    labels = torch.full((40,), 3) if client == RARE else torch.randint(3, (40,), generator=rng)
    points = CORNERS[labels] + 0.5 * torch.randn(40, 2, generator=rng)
    return points, torch.randint(4, (40,), generator=rng) if client in WRONG else labels


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rare_data_are_learnt_and_believed_while_wrong_labels_are_not(seed: int) -> None:
    # The rare client's updates are not used, as if it were new each time: the others' model calls
    # its class by another name with more and more certainty.
    rng = torch.Generator().manual_seed(seed)
    data = [corners(client, rng) for client in range(8)]
    model = nn.Linear(2, 4)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    trainer = SequentialTrainer(model, FederatedData.from_clients(data, data[0]), cross_entropy)
    judge, weights = NothingLearnt(8), flatten(model)
    for version in range(15):
        plan = Plan(epochs=5, batch_size=8, learning_rate=0.1)
        tasks = [Task(c, c, version, weights, plan, seed=version) for c in range(8)]
        reports, kept, doubted = {}, [], []
        for done in trainer.train(tasks):
            client, reports[done.task_id] = done.task_id, done.report
            arrived = Update(client, client, version, weights, done.weights, done.report, 0.0, 1.0)
            verdict = judge.judge(arrived)
            doubted += [client] * verdict.is_outlier
            kept += [done.weights.flat] * (verdict.keep and client != RARE)
        assert doubted == ([] if version == 0 else list(WRONG))
        weights = Weights(torch.stack(kept).mean(dim=0), weights.layout)
    assert_only_what_is_left_tells_them_apart(reports, judge)


def assert_only_what_is_left_tells_them_apart(
    reports: dict[int, Report], judge: NothingLearnt
) -> None:
    """By its loss at first the rare client is beyond both limits, too."""
    losses = judge.state().values
    assert reports[RARE].loss is not None
    assert reports[RARE].loss > 0.75 * median(losses["at_first"])
    assert reports[RARE].loss > 2.5 * median(losses["left"])

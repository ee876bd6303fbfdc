"""Stories of a judge: one who lies often, training that changes, and rare data beside wrong labels.

The last has real training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

import pytest
import torch
from torch import nn
from worlds import update

from pisces.data.federated import FederatedData
from pisces.judge.learning import NothingLearnt
from pisces.models.flat import flatten
from pisces.objective import cross_entropy
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan, Report, Task, Update, Weights


def is_doubted(judge: NothingLearnt, client: int, left: float, version: int = 0) -> bool:
    """Of a client whose loss was 2, which is what guessing costs here."""
    return judge.judge(update(client, version=version, loss=2.0, loss_left=left)).is_outlier


# --- one who lies often ---------------------------------------------------------------------------


def doubted_beside(liars: Sequence[int]) -> list[int]:
    """Who is doubted of 19 honest clients, while two liars report after each of the first 15.

    The model is new, C = 4: honest clients are left with 1.6 of 2, more than 3/4 of it.
    """
    judge, doubted, lies = NothingLearnt(4), [], iter(liars)
    for client in range(1, 20):
        doubted += [client] * is_doubted(judge, client, left=1.6)
        for liar in [next(lies), next(lies)] if client <= 15 else []:
            assert not is_doubted(judge, liar, left=0.0)
    return doubted


def test_one_who_lies_often_makes_nobody_doubted() -> None:
    # Client 0 says 30 times that nothing is left. Among the last eight clients it is one, so 1.6
    # is usual and the limit 2.5 x 1.6 = 4.
    assert doubted_beside([0] * 30) == []


def test_as_many_liars_would() -> None:
    # So it was with an entry for each update: after 1.6, 0, 0, 1.6, 0, 0 zero is usual, the limit
    # is 3/4 of 2, and everybody from the third on is doubted.
    assert doubted_beside(range(100, 130)) == list(range(3, 20))


# --- training that changes ------------------------------------------------------------------------


def doubted_until_anew(order: Sequence[int], num_clients: int) -> list[int]:
    """Whom it costs a credit, in order, that 1.6 is left to everybody where it had been 0.25."""
    judge = NothingLearnt(4)
    for client in range(num_clients):
        assert not is_doubted(judge, client, left=0.25)
    return [client for client in order if is_doubted(judge, client, left=1.6, version=1)]


@pytest.mark.parametrize(
    ("order", "doubted"),
    # Six clients, four at a time: the fourth that is doubted is more than half of them.
    [
        ([0, 1, 2, 3, 4, 5] * 10, [0, 1, 2, 3]),
        # Client 0 is three times as fast as the others;
        ([0, 0, 0, 1, 2, 3] * 10, [0, 0, 0, 1, 2, 3]),
        # here 0, 1 and 2 are.
        ([0, 1, 2] * 3 + [3, 4, 5] + [0, 1, 2] * 9, [0, 1, 2] * 3 + [3]),
    ],
)
def test_where_training_changes_judging_starts_anew_before_anybody_is_banned(
    order: list[int], doubted: list[int]
) -> None:
    assert doubted_until_anew(order, 6) == doubted
    assert max(Counter(doubted).values()) < 5  # the credits of a client


# --- rare data beside wrong labels ----------------------------------------------------------------

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
    told = judge.state().values
    assert reports[RARE].loss is not None
    assert reports[RARE].loss > 0.75 * median(loss for _, loss in told["at_first"])
    assert reports[RARE].loss > 2.5 * median(left for _, left in told["left"])

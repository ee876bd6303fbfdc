"""Hostile clients: what they tell and send is false, what anybody else does is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from runs import NUM_EXAMPLES, START, NoopTrainer, log_bytes, outcome, task, train_digits
from worlds import weights

from pisces.config import parse
from pisces.errors import ConfigError
from pisces.train.base import Outcome
from pisces.train.hostile import SYBIL_LOSS, Lies, Lying
from pisces.types import Report
from pisces.world import corrupted_clients, federated_data, lies_of

OWN = Report(NUM_EXAMPLES, loss=2.0, loss_rms=3.0, num_steps=7, loss_left=1.0)


def trained(lies: Lies) -> dict[int, Outcome]:
    """Task i of client i, for three clients."""
    tasks = [task(client, client) for client in range(3)]
    return {made.task_id: made for made in Lying(NoopTrainer(), lies).train(tasks)}


def test_only_hostile_clients_lie() -> None:
    made = trained(Lies(frozenset({1}), loss="high", times=-2.0))
    for client in (0, 2):
        honest = outcome(task(client, client))
        assert torch.equal(made[client].weights.flat, honest.weights.flat)
        assert made[client].report == honest.report
    honest = outcome(task(1, 1))
    # Two of its own steps back; the buffer, which is last, as it came out of training.
    back = START.parameters - 2 * (honest.weights.parameters - START.parameters)
    assert made[1].weights.parameters.tolist() == pytest.approx(back.tolist())
    assert made[1].weights.flat[-1] == honest.weights.flat[-1]
    assert made[1].report.loss == pytest.approx(10 * (honest.report.loss or 0))


@pytest.mark.parametrize(
    ("kind", "loss", "rms", "left"),
    [
        ("own", 2.0, 3.0, 1.0),
        ("high", 20.0, 30.0, 0.1),
        ("low", 0.2, 0.3, 0.1),
        ("same", SYBIL_LOSS, SYBIL_LOSS, 0.1),
    ],
)
def test_what_is_told(kind: str, loss: float, rms: float, left: float) -> None:
    told = Lies(frozenset({0}), loss=kind).told(OWN)  # type: ignore[arg-type]
    assert (told.loss, told.loss_rms, told.loss_left) == pytest.approx((loss, rms, left))
    assert (told.num_examples, told.num_steps) == (NUM_EXAMPLES, 7)


def test_who_did_not_say_says_nothing_still() -> None:
    lies = Lies(frozenset({0}), loss="high")
    assert lies.told(Report(NUM_EXAMPLES)) == Report(NUM_EXAMPLES)
    assert lies.told(replace(OWN, loss_left=None)).loss_left is None


def test_a_shared_direction_is_the_same_for_all_and_as_long_as_their_own_steps() -> None:
    lies = Lies(frozenset({0}), direction="shared", times=2.0, seed=3)
    base, near = weights([1.0, 1.0, 5.0], 1), weights([4.0, 5.0, 6.0], 1)  # a step of length 5
    far = weights([7.0, 9.0, 6.0], 1)  # of length 10
    sent = [lies.sent(base, own).parameters - base.parameters for own in (near, far)]
    assert [float(step.norm()) for step in sent] == pytest.approx([10.0, 20.0])
    assert torch.allclose(2 * sent[0], sent[1])
    assert lies.sent(base, near).flat[-1] == 6.0
    other = replace(lies, seed=4).sent(base, near).parameters - base.parameters
    assert not torch.allclose(other, sent[0])


def test_nothing_given_is_changed_in_place() -> None:
    base, own = weights([1.0, 1.0]), weights([2.0, 3.0])
    Lies(frozenset({0}), times=9.0).sent(base, own)
    assert (base.flat.tolist(), own.flat.tolist()) == ([1.0, 1.0], [2.0, 3.0])


def test_a_number_of_steps_is_finite() -> None:
    with pytest.raises(ConfigError, match="finite number of times, not inf"):
        Lies(frozenset({0}), times=float("inf"))


def test_the_inner_trainer_is_closed() -> None:
    inner = NoopTrainer()
    Lying(inner, Lies(frozenset())).close()
    assert inner.closed


# --- from a config --------------------------------------------------------------------------------

HOSTILE = ["hostile.share=0.4", "hostile.labels=shifted", "clients.count=10"]
SMALL = [*HOSTILE, "clients.concurrency=5"]


def test_they_are_those_who_would_be_corrupted() -> None:
    hostile = corrupted_clients(parse("", SMALL)).tolist()
    others = parse("", ["clients.count=10", "clients.concurrency=5", "data.corrupted=0.4"])
    lies = lies_of(parse("", SMALL))
    assert lies is not None
    assert hostile == corrupted_clients(others).tolist() == sorted(lies.clients)
    assert len(hostile) == 4
    assert lies_of(others) is None


def test_labels_are_shifted_or_drawn() -> None:
    config = parse("", SMALL)
    clean = federated_data(parse("", ["clients.count=10", "clients.concurrency=5"]))
    shifted = federated_data(config)
    for client, rows in enumerate(clean.rows):
        by = (shifted.targets[rows] - clean.targets[rows]) % 10
        assert set(by.tolist()) == ({1} if client in corrupted_clients(config) else {0})
    drawn = federated_data(parse("", [*SMALL, "hostile.labels=random"]))
    without = [change for change in SMALL if not change.startswith("hostile")]
    corrupted = federated_data(parse("", [*without, "data.corrupted=0.4"]))
    assert torch.equal(drawn.targets, corrupted.targets)


@pytest.mark.parametrize("backend", ["pool", "batched"])
def test_any_trainer_will_do(backend: str) -> None:
    lies = ["hostile.share=0.5", "hostile.loss=low", "hostile.times=-2"]
    alone, other = (
        train_digits("fedbuff", [*lies, f"train.backend={name}"])
        for name in ("sequential", backend)
    )
    assert torch.allclose(alone[1].flat, other[1].flat, atol=1e-4)
    if backend == "pool":
        assert log_bytes(alone[0]) == log_bytes(other[0])
    honest = train_digits("fedbuff", ["train.backend=sequential"])
    assert not torch.allclose(alone[1].flat, honest[1].flat, atol=1e-2)

"""The trainer over a cluster, by a cluster in this process to which anything can happen.

What it does on a real one is in `tests/cluster`.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from clusters import PretendCluster, PretendWorker, Thing
from torch import nn

from pisces.cluster.base import Refused, Share
from pisces.data.federated import FederatedData
from pisces.errors import ConfigError, RunError
from pisces.models.flat import flatten
from pisces.train import hands
from pisces.train.base import Outcome, Recipe
from pisces.train.hands import Cargo, Craft, Ready
from pisces.train.ray import RayTrainer, shares
from pisces.train.sequential import SequentialTrainer
from pisces.train.staff import Hired, Lot
from pisces.types import Plan, Task, Weights

SIZES = (5, 40, 12, 21, 3)
RECIPE = Recipe(momentum=0.9)

per_sample = nn.CrossEntropyLoss(reduction="none")


def layers() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def data() -> FederatedData:
    rng = torch.Generator().manual_seed(1)
    clients = [
        (torch.randn(n, 4, generator=rng), torch.randint(3, (n,), generator=rng)) for n in SIZES
    ]
    return FederatedData.from_clients(clients, clients[0])


def tasks_of(num: int = len(SIZES), **plan: Any) -> list[Task]:
    """One task per client and round: two versions of the weights, different seeds."""
    start = flatten(layers())
    starts = [Weights(start.flat + i, start.layout) for i in range(2)]
    work = Plan(**{"epochs": 2, "batch_size": 8, "learning_rate": 0.05, **plan})
    return [Task(10 + i, i % len(SIZES), i % 2, starts[i % 2], work, seed=i) for i in range(num)]


def over(cluster: PretendCluster, data: FederatedData, **more: Any) -> RayTrainer:
    loss = more.pop("loss", per_sample)
    return RayTrainer(cluster, more.pop("model", layers()), data, loss, RECIPE, **more)


def trained(trainer: RayTrainer, tasks: Sequence[Task]) -> dict[int, Outcome]:
    outcomes = list(trainer.train(tasks))
    assert sorted(o.task_id for o in outcomes) == sorted(t.id for t in tasks)  # each once
    return {o.task_id: o for o in outcomes}


def assert_as_in_sequence(
    found: dict[int, Outcome], data: FederatedData, tasks: Sequence[Task]
) -> None:
    for expected in SequentialTrainer(layers(), data, per_sample, RECIPE).train(tasks):
        outcome = found[expected.task_id]
        assert torch.equal(outcome.weights.flat, expected.weights.flat)
        assert outcome.report == expected.report


def at_task(kind: str, turns: Sequence[int], deed: Any) -> Any:
    """Do something before the n-th question of a kind is put."""
    seen: Counter[str] = Counter()

    def before(worker: PretendWorker, thing: Thing) -> None:
        seen[thing.method] += 1
        if thing.method == kind and seen[kind] in turns:
            deed(worker, thing)

    return before


def kill(worker: PretendWorker, _thing: Thing) -> None:
    worker.end()


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("all_at_once", [False, True])
@pytest.mark.parametrize("cores", [{"a": 1}, {"a": 2, "b": 1}, {"a": 7}], ids=str)
def test_results_are_the_sequential_trainers_bit_by_bit(
    data: FederatedData, cores: dict[str, int], all_at_once: bool
) -> None:
    cluster = PretendCluster(cores, all_at_once=all_at_once)
    trainer, tasks = over(cluster, data), tasks_of(11)
    assert_as_in_sequence(trained(trainer, tasks), data, tasks)
    assert_as_in_sequence(trained(trainer, tasks[::-1]), data, tasks)
    trainer.close()


def test_redrawn_samples_are_the_same_ones(data: FederatedData) -> None:
    fewer = replace(data, epoch_sizes=np.maximum(data.num_examples // 2, 2))
    found = trained(over(PretendCluster(), fewer), tasks_of())
    assert_as_in_sequence(found, fewer, tasks_of())


def test_batched_workers_agree_up_to_rounding(data: FederatedData) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    start = flatten(model)
    tasks = [replace(task, weights=start) for task in tasks_of()]
    craft = Craft(batched=True)
    found = trained(
        over(PretendCluster({"a": 2}), data, model=copy.deepcopy(model), craft=craft), tasks
    )
    for expected in SequentialTrainer(model, data, per_sample, RECIPE).train(tasks):
        flat = found[expected.task_id].weights.flat
        assert torch.allclose(flat, expected.weights.flat, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.uint8, torch.bool])
def test_tensors_of_any_type_are_carried(data: FederatedData, dtype: torch.dtype) -> None:
    odd = replace(data, inputs=(10 * data.inputs).to(dtype))
    carried = Cargo.of(odd).data()
    assert carried.inputs.dtype == dtype
    assert torch.equal(carried.inputs, odd.inputs)
    assert torch.equal(carried.targets, odd.targets)
    assert [rows.tolist() for rows in carried.rows] == [rows.tolist() for rows in odd.rows]


def test_samples_that_lie_crosswise_in_memory_are_carried(data: FederatedData) -> None:
    crosswise = replace(data, inputs=data.inputs.T.contiguous().T)
    assert not crosswise.inputs.is_contiguous()
    assert torch.equal(Cargo.of(crosswise).data().inputs, data.inputs)


def test_outcomes_are_in_memory_of_our_own(data: FederatedData) -> None:
    for outcome in trained(over(PretendCluster(), data), tasks_of()).values():
        assert outcome.weights.flat.numpy().flags.writeable  # a cluster's nobody may write


def test_tasks_without_a_step_are_some_work_too(data: FederatedData) -> None:
    tasks = tasks_of(12, max_steps=0)
    for craft in (Craft(), Craft(batched=True)):
        found = trained(over(PretendCluster(), data, craft=craft), tasks)
        assert all(torch.equal(found[t.id].weights.flat, t.weights.flat) for t in tasks)


def test_nobody_trains_on_the_model_that_was_given(data: FederatedData) -> None:
    model = layers()
    before = flatten(model).flat
    trained(over(PretendCluster(), data, model=model), tasks_of())
    assert torch.equal(flatten(model).flat, before)


# --- what is sent ---------------------------------------------------------------------------------


def test_data_and_weights_come_to_a_node_once(data: FederatedData) -> None:
    cluster = PretendCluster({"a": 2, "b": 2})
    trainer = over(cluster, data)
    tasks = tasks_of(20)
    trained(trainer, tasks)
    assert len(cluster.things) == 2 + 2  # parts and data, two versions
    assert len(cluster.arrivals) == 4 * 2  # each to both nodes
    trained(trainer, tasks)
    assert len(cluster.things) == 4  # still there


def test_weights_nobody_starts_from_are_let_go(data: FederatedData) -> None:
    cluster = PretendCluster()
    trainer, tasks = over(cluster, data), tasks_of()
    trained(trainer, tasks)
    trained(trainer, tasks[:1])  # of version 0
    trained(trainer, tasks)
    assert len(cluster.things) == 2 + 3  # version 1 twice


# --- who does what --------------------------------------------------------------------------------


def test_lots_are_cut_by_speed() -> None:
    # 1 + 1 + 1 + 1 + 2 = 6 for a worker, and twice that for one that is twice as fast.
    assert shares([1, 1, 1, 1, 2, 3, 4, 5], [1.0, 2.0]) == [0, 5, 8]
    assert shares([5], [1.0, 1.0, 1.0]) in ([0, 0, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1])
    assert shares([], [1.0]) == [0, 0]


def test_batched_workers_get_lots_of_like_length(data: FederatedData) -> None:
    cluster = PretendCluster({"a": 2})
    lots: list[list[int]] = []

    def note(_worker: PretendWorker, thing: Thing) -> None:
        if thing.method == "train":
            lots.append(sorted(order.client for order in thing.arguments[0]))

    cluster.before = note
    trained(over(cluster, data, craft=Craft(batched=True)), tasks_of())
    # Samples 5, 40, 12, 21 and 3: half of 81 is with the four small ones.
    assert sorted(lots) == [[0, 2, 3, 4], [1]]


def test_whoever_is_faster_gets_more(data: FederatedData) -> None:
    cluster = PretendCluster({"fast": 1, "slow": 1}, seconds={"slow": 10.0})
    done: Counter[str] = Counter()

    def note(worker: PretendWorker, thing: Thing) -> None:
        done[worker.node] += thing.method == "train"

    cluster.before = note
    trainer, tasks = over(cluster, data), tasks_of(22)
    trained(trainer, tasks)
    # Ten times as fast: 20 and 2, give or take what each has ahead.
    assert 1 <= done["slow"] <= 4
    assert done["slow"] + done["fast"] == 22


def test_many_slow_ones_have_something_to_do_beside_a_fast_one(data: FederatedData) -> None:
    cluster = PretendCluster({"a": 11})
    trainer = over(cluster, data)
    trained(trainer, tasks_of(40))
    for number, hired in enumerate(trainer._staff.hired):
        hired.speed = 3.2 if number == 0 else 1.0
    lots = [Lot([task], 100) for task in tasks_of(100)]
    trainer._hand_out(lots)
    assert [len(hired.lots) for hired in trainer._staff.hired] == [2] * 11
    trainer.close()


def test_the_last_lot_waits_for_who_would_have_it_done_sooner(data: FederatedData) -> None:
    cluster = PretendCluster({"a": 2})
    trainer = over(cluster, data)
    trained(trainer, tasks_of(40))
    fast, slow = trainer._staff.hired
    fast.speed, slow.speed = 10.0, 1.0
    fast.lots = [Lot([], 100), Lot([], 100)]  # 20 s, and 30 s with one more: slow takes 100 s
    last = [Lot(tasks_of(1), 100)]
    trainer._hand_out(last)
    assert len(last) == 1
    fast.speed = 2.0  # 150 s
    trainer._hand_out(last)
    assert (last, len(slow.lots)) == ([], 1)
    fast.lots, slow.lots = [], []
    trainer.close()


def test_the_first_lot_says_nothing_of_a_workers_speed() -> None:
    hired = Hired(None, (None, None), frozenset())  # type: ignore[arg-type]
    for seconds in (100.0, 1.0, 2.0):
        lot = Lot([], 10)
        hired.lots.append(lot)
        hired.note(lot, seconds)
    assert hired.speed == pytest.approx(10.0 + 0.3 * (5.0 - 10.0))


def test_as_many_workers_as_asked_for(data: FederatedData) -> None:
    cluster = PretendCluster({"a": 4, "b": 4})
    trained(over(cluster, data, workers=3), tasks_of())
    assert len(cluster.hired) == 3


def test_workers_that_take_two_cores_each(data: FederatedData) -> None:
    cluster = PretendCluster({"a": 3, "b": 4})
    trained(over(cluster, data, share=Share(cpus=2)), tasks_of())
    assert len(cluster.hired) == 3


def test_no_room_at_all_is_said_before_anything_starts(data: FederatedData) -> None:
    with pytest.raises(ConfigError, match=r"no node .* has 1 CPU and 0\.5 GPU"):
        over(PretendCluster(), data, share=Share(gpus=0.5))
    with pytest.raises(ConfigError, match="needs a share of a CPU or of a GPU"):
        Share(0, 0)


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [1, 3, 9])
def test_what_a_dead_worker_had_is_done_by_another(
    data: FederatedData, turn: int, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = PretendCluster(before=at_task("train", [turn], kill))
    tasks = tasks_of(12)
    assert_as_in_sequence(trained(over(cluster, data), tasks), data, tasks)
    assert len(cluster.hired) == 3
    assert "a worker process died while training client" in caplog.text


def test_a_task_that_ends_every_worker_ends_the_run(data: FederatedData) -> None:
    cluster = PretendCluster({"a": 1}, before=at_task("train", range(100), kill))
    with pytest.raises(RunError, match="3 worker processes in a row died while training client 1"):
        trained(over(cluster, data), tasks_of())
    assert not cluster.hired[2].alive
    assert len(cluster.hired) == 4  # the last has nothing to do


def test_workers_that_cannot_even_be_set_up(data: FederatedData) -> None:
    cluster = PretendCluster({"a": 1}, before=at_task("set_up", range(100), kill))
    with pytest.raises(RunError, match="3 worker processes in a row died before they could be set"):
        trained(over(cluster, data), tasks_of())


def test_one_that_died_before_it_was_set_up_is_replaced(data: FederatedData) -> None:
    cluster = PretendCluster(before=at_task("set_up", [1, 2], kill))
    assert_as_in_sequence(trained(over(cluster, data), tasks_of()), data, tasks_of())


def test_a_lost_node_is_reported_and_nobodys_fault(
    data: FederatedData, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pisces")
    cluster = PretendCluster({"a": 1, "b": 2})

    def lose(worker: PretendWorker, _thing: Thing) -> None:
        if worker.node == "b":
            cluster.cores.pop("b", None)
            for one in cluster.hired:
                one.alive &= one.node != "b"

    cluster.before = at_task("train", range(100), lose)
    tasks = tasks_of(12)
    assert_as_in_sequence(trained(over(cluster, data), tasks), data, tasks)
    assert "node node-b of the cluster is lost" in caplog.text
    assert "while training client" not in caplog.text


def test_a_node_that_joins_is_used(
    data: FederatedData, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "pisces")
    monkeypatch.setattr("pisces.train.staff.LOOK_EVERY", 4)
    cluster = PretendCluster({"a": 1})
    cluster.before = at_task("train", [5], lambda *_: cluster.cores.update(b=1))
    tasks = tasks_of(20)
    assert_as_in_sequence(trained(over(cluster, data), tasks), data, tasks)
    assert "node node-b has joined the cluster" in caplog.text
    assert [worker.node for worker in cluster.hired] == ["a", "b"]
    assert cluster.hired[1].num_done > 1


@pytest.mark.parametrize("all_at_once", [False, True])
def test_a_node_that_dies_while_its_workers_are_set_up_ends_nothing(
    data: FederatedData, all_at_once: bool
) -> None:
    cluster = PretendCluster({"a": 1, "b": 5}, all_at_once=all_at_once)

    def lose(worker: PretendWorker, _thing: Thing) -> None:
        if worker.node == "b":
            cluster.cores.pop("b", None)
            for one in cluster.hired:
                one.alive &= one.node != "b"

    cluster.before = at_task("set_up", range(100), lose)
    tasks = tasks_of(12)
    assert_as_in_sequence(trained(over(cluster, data), tasks), data, tasks)


def test_where_no_node_is_left_one_waits_for_the_next(data: FederatedData) -> None:
    cluster = PretendCluster({"a": 1})

    def lose(worker: PretendWorker, _thing: Thing) -> None:
        cluster.cores.clear()
        worker.end()

    cluster.before = at_task("train", [3], lose)
    answers = cluster.answers

    def waited(refs: Sequence[Any], wait_s: float) -> Any:
        if cluster.num_waits == 5:
            cluster.cores["late"] = 2
        return answers(refs, wait_s)

    cluster.answers = waited  # type: ignore[method-assign]
    tasks = tasks_of(12)
    assert_as_in_sequence(trained(over(cluster, data), tasks), data, tasks)
    assert cluster.num_waits == 6  # and once more, before it is seen


def lose_all(cluster: PretendCluster) -> Any:
    def deed(*_: object) -> None:
        for thing in cluster.things:
            thing.is_lost = True

    return deed


@pytest.mark.parametrize("method", ["set_up", "train"])
def test_what_the_cluster_lost_is_put_there_again(
    data: FederatedData, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = PretendCluster()
    cluster.before = at_task(method, [2], lose_all(cluster))
    tasks = tasks_of(12)
    assert_as_in_sequence(trained(over(cluster, data), tasks), data, tasks)
    assert "is put there again" in caplog.text


@pytest.mark.parametrize("method", ["set_up", "train"])
def test_a_cluster_that_loses_everything_ends_the_run(data: FederatedData, method: str) -> None:
    cluster = PretendCluster({"a": 1})
    cluster.before = at_task(method, range(100), lose_all(cluster))
    with pytest.raises(RunError, match=r"lost 3 times what it was given .*-store-memory"):
        trained(over(cluster, data), tasks_of())


def test_what_many_were_given_is_lost_once(data: FederatedData) -> None:
    cluster = PretendCluster({"a": 8}, all_at_once=True)
    cluster.before = at_task("set_up", [1], lose_all(cluster))
    tasks = tasks_of(12)
    assert_as_in_sequence(trained(over(cluster, data), tasks), data, tasks)


def test_what_a_node_cannot_load_is_said(data: FederatedData) -> None:
    cluster = PretendCluster()
    cluster.answers = lambda refs, _wait_s: [(refs[0], Refused("No module named 'mine'"))]
    with pytest.raises(RunError, match=r"\(No module named 'mine'\): .* installed on every node"):
        trained(over(cluster, data), tasks_of())


def test_after_an_error_in_a_set_up_the_next_call_does_not_wait(
    data: FederatedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = over(PretendCluster(), data)
    with monkeypatch.context() as patched:
        patched.setattr("pisces.train.staff.check_software", _refuses)
        with pytest.raises(RunError, match="other software"):
            trained(trainer, tasks_of())
    assert_as_in_sequence(trained(trainer, tasks_of()), data, tasks_of())


def _refuses(*_: object) -> None:
    raise RunError("other software")


def test_an_error_in_training_is_raised_here_and_says_where(data: FederatedData) -> None:
    def loss(_outputs: object, _targets: object) -> torch.Tensor:
        raise LookupError("no such loss")

    globals()["loss"] = loss  # pickled by its name
    loss.__qualname__ = "loss"
    with pytest.raises(LookupError, match="no such loss") as caught:
        trained(over(PretendCluster(), data, loss=loss), tasks_of())
    assert "on node node-a" in caught.value.__notes__[0]


def test_a_worker_that_cannot_make_its_trainer_says_why(
    data: FederatedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ImportError("no such module there")

    monkeypatch.setattr(hands.Parts, "trainer", broken)
    with pytest.raises(ImportError, match="no such module there"):
        trained(over(PretendCluster(), data), tasks_of())


def test_other_software_on_a_node_is_refused(
    data: FederatedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands.Hand, "set_up", lambda *_: Ready("pisces 0.0 and torch 1.0"))
    with pytest.raises(RunError, match=r"node-a has pisces 0\.0 and torch 1\.0, this one p"):
        trained(over(PretendCluster(), data), tasks_of())


def test_what_workers_log_is_logged_here_once(
    data: FederatedData, caplog: pytest.LogCaptureFixture
) -> None:
    craft = Craft(batched=True)  # layers with dropout cannot be
    trained(over(PretendCluster({"a": 2}), data, craft=craft), tasks_of())
    assert caplog.text.count("clients train one after the other") == 1


def test_an_error_leaves_nobody_busy(data: FederatedData) -> None:
    cluster = PretendCluster({"a": 1}, before=at_task("train", range(1, 4), kill))
    trainer = over(cluster, data)
    with pytest.raises(RunError, match="3 worker processes in a row"):
        trained(trainer, tasks_of())
    assert not trainer._staff.busy


def test_workers_that_die_now_and_then_before_they_are_set_up_are_not_in_a_row(
    data: FederatedData,
) -> None:
    cluster = PretendCluster({"a": 1}, before=at_task("set_up", [1, 2, 4, 5], kill))
    trainer = over(cluster, data)
    tasks = tasks_of()
    assert_as_in_sequence(trained(trainer, tasks), data, tasks)
    trainer._staff.dismiss(trainer._staff.hired[0])
    assert_as_in_sequence(trained(trainer, tasks), data, tasks)


def test_a_call_that_is_given_up_leaves_nobody_busy(data: FederatedData) -> None:
    cluster = PretendCluster()
    trainer, tasks = over(cluster, data), tasks_of(12)
    some = trainer.train(tasks)
    next(some)
    some.close()
    assert_as_in_sequence(trained(trainer, tasks), data, tasks)
    again = trainer.train(tasks)
    next(again)
    assert_as_in_sequence(trained(trainer, tasks), data, tasks)
    with pytest.raises(RuntimeError, match="called again"):
        next(again)


def test_closing_ends_all_workers_and_lets_go_of_the_cluster(data: FederatedData) -> None:
    cluster = PretendCluster()
    trainer = over(cluster, data)
    trained(trainer, tasks_of())
    trainer.close()
    assert cluster.closed
    assert not any(worker.alive for worker in cluster.hired)


def test_one_waits_for_room_and_says_so_once(
    data: FederatedData, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = PretendCluster()
    answers, num_waits = cluster.answers, [0]

    def late(refs: Sequence[Any], wait_s: float) -> Any:
        num_waits[0] += 1
        return [] if num_waits[0] <= 25 else answers(refs, wait_s)

    cluster.answers = late  # type: ignore[method-assign]
    trained(over(cluster, data), tasks_of())
    assert caplog.text.count("no worker of the cluster is there yet, with 1 CPU each") == 1


def test_where_nobody_is_left_one_waits_and_does_not_spin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = pytest.importorskip("ray")
    from pisces.cluster.ray import RayCluster

    monkeypatch.setattr(ray, "wait", lambda *_, **__: ([], []))  # so it does, at once
    connected_to_nobody = object.__new__(RayCluster)
    began = time.monotonic()
    assert connected_to_nobody.answers([], 0.2) == []
    assert time.monotonic() - began >= 0.2

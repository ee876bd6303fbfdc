"""The pool against the sequential trainer, and against everything that can happen to a process."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pisces.data.federated import FederatedData
from pisces.errors import ConfigError, RunError
from pisces.models.flat import flatten
from pisces.train import pool, processes, sequential
from pisces.train.base import Outcome, Recipe, Trainer
from pisces.train.pool import PoolTrainer
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan, Task, Weights

SIZES = (5, 40, 12, 21, 3)
PATIENCE_S = 60.0  # a machine may be busy; nothing here takes a second
RECIPE = Recipe(momentum=0.9)

per_sample = nn.CrossEntropyLoss(reduction="none")


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    ends_at = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < ends_at, "waited in vain"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Has the process ended? One that only waits to be buried has."""
    status = Path(f"/proc/{pid}/status")
    try:
        return "State:\tZ" in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def layers() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


class Doing(nn.Module):
    """Does something in each worker process before it computes; cannot be pickled."""

    def __init__(self, deed: Callable[[], object]) -> None:
        super().__init__()
        self.layers = layers()
        self.deed = deed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if multiprocessing.parent_process():
            self.deed()
        out: torch.Tensor = self.layers(x)
        return out


@pytest.fixture(scope="module")
def data() -> FederatedData:
    rng = torch.Generator().manual_seed(1)
    clients = [
        (torch.randn(n, 4, generator=rng), torch.randint(3, (n,), generator=rng)) for n in SIZES
    ]
    return FederatedData.from_clients(clients, clients[0])


def tasks_of(model: nn.Module, shift: float = 0.0, **plan: Any) -> list[Task]:
    """One task per client: two versions of the weights, different seeds."""
    start = flatten(model)
    starts = [Weights(start.flat + shift + i, start.layout) for i in range(2)]
    work = Plan(**{"epochs": 2, "batch_size": 8, "learning_rate": 0.05, **plan})
    return [Task(10 + i, i, i % 2, starts[i % 2], work, seed=i) for i in range(len(SIZES))]


@contextmanager
def pooled(model: nn.Module, data: FederatedData, workers: int = 2, **more: Any) -> Iterator[Any]:
    trainer = PoolTrainer(model, data, more.pop("loss", per_sample), RECIPE, workers=workers)
    try:
        yield trainer
    finally:
        trainer.close()


def trained(trainer: Trainer, tasks: Sequence[Task]) -> dict[int, Outcome]:
    outcomes = list(trainer.train(tasks))
    assert sorted(o.task_id for o in outcomes) == sorted(t.id for t in tasks)
    return {o.task_id: o for o in outcomes}


def assert_as_in_sequence(found: dict[int, Outcome], data: FederatedData, shift: float = 0) -> None:
    """Bit by bit what the sequential trainer makes of the same tasks."""
    trainer = SequentialTrainer(layers(), data, per_sample, RECIPE)
    expected = trained(trainer, tasks_of(layers(), shift))
    for number, outcome in found.items():
        assert torch.equal(outcome.weights.flat, expected[number].weights.flat)
        assert outcome.report == expected[number].report


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


# --- results --------------------------------------------------------------------------------------


def test_redrawn_samples_are_the_same_ones(data: FederatedData) -> None:
    fewer = replace(data, epoch_sizes=np.maximum(data.num_examples // 2, 2))
    model = layers()
    with pooled(model, fewer) as trainer:
        found = trained(trainer, tasks_of(model))
    assert_as_in_sequence(found, fewer)
    examples = [found[task.id].report.num_examples for task in tasks_of(model)]
    assert examples == fewer.num_examples.tolist()


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_results_are_the_sequential_trainers_bit_by_bit(data: FederatedData, workers: int) -> None:
    model = layers()
    with pooled(model, data, workers) as trainer:
        assert_as_in_sequence(trained(trainer, tasks_of(model)), data)
        assert_as_in_sequence(trained(trainer, tasks_of(model, 0.5)[::-1]), data, 0.5)


class Lingering:
    """Garbage that waits, where it was forked along, for what was not."""

    def __init__(self, told: Path) -> None:
        self.myself, self.told, self.made_in = self, told, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.made_in:
            self.told.touch()


def test_workers_collect_nothing_that_is_their_parents(data: FederatedData, tmp_path: Path) -> None:
    told = tmp_path / "collected"
    gc.disable()
    try:
        Lingering(told)
        model = Doing(gc.collect)
        with pooled(model, data) as trainer:
            assert len(trained(trainer, tasks_of(model))) == len(SIZES)
    finally:
        gc.enable()
    assert not told.exists()


def test_the_longest_come_first(data: FederatedData) -> None:
    # Sizes 5, 40, 12, 21 and 3, two epochs each; none does more than 4 batches of 8 = 32 samples:
    # 10, 32, 24, 32 and 6.
    model = layers()
    with pooled(model, data, workers=1) as trainer:
        order = [outcome.task_id for outcome in trainer.train(tasks_of(model, max_steps=4))]
    assert sorted(order[:2]) == [11, 13]
    assert order[2:] == [12, 10, 14]


def test_weights_of_another_precision_are_rounded_as_in_sequence(data: FederatedData) -> None:
    model = layers()
    tasks = tasks_of(model)
    third = torch.full_like(tasks[0].weights.flat, 1 / 3, dtype=torch.float64)
    task = Task(1, 1, 0, Weights(third, tasks[0].weights.layout), tasks[0].plan, 3)
    with pooled(model, data) as trainer:
        found = trained(trainer, [task])[1]
    expected = trained(SequentialTrainer(model, data, per_sample, RECIPE), [task])[1]
    assert torch.equal(found.weights.flat, expected.weights.flat)
    assert found.weights.flat.dtype == torch.float32


def test_no_more_workers_than_tasks(data: FederatedData) -> None:
    model = layers()
    with pooled(model, data, workers=4) as trainer:
        assert len(multiprocessing.active_children()) == 0  # none before there is work
        trained(trainer, tasks_of(model)[:2])
        assert len(multiprocessing.active_children()) == 2


def private_bytes(pid: int | None) -> int:
    """Memory that a process shares with nobody."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private"))


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_the_data_is_not_copied() -> None:
    # Against a worker without data: what else a fork does not share depends on the tests before.
    large = 64 << 20
    assert worker_bytes(num_clients=100_000, size=large) < worker_bytes(1, 400) + large / 2


def worker_bytes(num_clients: int, size: int) -> int:
    """What a worker has of its own after a task, where all clients together have so much data."""
    inputs = torch.ones(num_clients, size // 4 // num_clients)
    targets = torch.zeros(num_clients, dtype=torch.int64)
    rows = tuple(np.array([i]) for i in range(num_clients))  # a tensor for each would be large too
    data = FederatedData(inputs, targets, rows, inputs[:1], targets[:1])
    model = nn.Linear(inputs.shape[1], 2)
    task = Task(0, 0, 0, flatten(model), Plan(epochs=1), seed=1)
    with pooled(model, data) as trainer:
        trained(trainer, [task])
        (worker,) = multiprocessing.active_children()
        return private_bytes(worker.pid)


def test_what_workers_say_is_said_once(
    data: FederatedData, caplog: pytest.LogCaptureFixture
) -> None:
    sequential._say_once_that_losses_are_means.cache_clear()
    model = layers()
    with pooled(model, data, loss=nn.CrossEntropyLoss()) as trainer:
        trained(trainer, tasks_of(model))
    (said,) = warnings_in(caplog)
    assert "one value per batch" in said


# --- deaths ---------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_replaced_and_its_task_run_again(
    data: FederatedData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = tmp_path / "died"

    def die_once() -> None:
        if not mark.exists():
            mark.touch()
            die()

    model = Doing(die_once)
    with pooled(model, data) as trainer:
        found = trained(trainer, tasks_of(model))
    assert_as_in_sequence(found, data)
    (said,) = warnings_in(caplog)
    assert "died (exit code -9) while training client" in said


def test_workers_that_died_idle_are_nobodys_fault(
    data: FederatedData, caplog: pytest.LogCaptureFixture
) -> None:
    model = layers()
    with pooled(model, data, workers=4) as trainer:  # more than a task may end
        trained(trainer, tasks_of(model))
        victims = [child.pid or 0 for child in multiprocessing.active_children()]
        assert len(victims) == 4
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        # without a wait: a dying process may still be given the task
        assert_as_in_sequence(trained(trainer, tasks_of(model)[:1]), data)
    said = warnings_in(caplog)
    assert len(said) == 4
    assert all("an idle worker process died" in line for line in said)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_died_idle_is_replaced(
    data: FederatedData, caplog: pytest.LogCaptureFixture, blow: signal.Signals
) -> None:
    model = layers()
    handler = signal.signal(signal.SIGTERM, lambda *_: None)  # the parent's own
    try:
        with pooled(model, data) as trainer:
            trained(trainer, tasks_of(model))
            victim = multiprocessing.active_children()[0].pid or 0
            os.kill(victim, blow)
            until(lambda: is_gone(victim))
            assert_as_in_sequence(trained(trainer, tasks_of(model, 0.5)), data, 0.5)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert len(warnings_in(caplog)) == 1


def test_a_task_that_kills_every_worker_is_an_error(
    data: FederatedData, caplog: pytest.LogCaptureFixture
) -> None:
    model = Doing(die)
    with (
        pooled(model, data) as trainer,
        pytest.raises(RunError, match=r"3 worker processes in a row died .* client 2, .* fewer"),
    ):
        trained(trainer, tasks_of(model)[2:3])
    assert len(warnings_in(caplog)) == 3


def test_a_process_that_ends_itself_is_told_from_one_that_is_killed(data: FederatedData) -> None:
    model = Doing(lambda: sys.exit(3))
    with (
        pooled(model, data) as trainer,
        pytest.raises(RunError, match=r"died \(exit code 3\) .* does its model or loss end"),
    ):
        trained(trainer, tasks_of(model)[:1])


# --- errors ---------------------------------------------------------------------------------------


def log_wrongly() -> None:
    logging.getLogger("pisces").warning("%d", "x")


def test_what_is_logged_wrongly_does_not_end_the_training(
    data: FederatedData, capfd: pytest.CaptureFixture[str]
) -> None:
    model = Doing(log_wrongly)
    with pooled(model, data) as trainer:
        assert_as_in_sequence(trained(trainer, tasks_of(model)), data)
    assert "Logging error" in capfd.readouterr().err


class OddError(Exception):
    """One that cannot be unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raise_key_error() -> None:
    raise KeyError("no such thing")


def raise_odd_error() -> None:
    raise OddError(1, 2)


@pytest.mark.parametrize(
    ("deed", "kind", "text"),
    [
        (raise_key_error, KeyError, "'no such thing'"),
        (raise_odd_error, RuntimeError, "OddError: 1 and 2"),
    ],
)
def test_an_error_in_a_worker_is_raised_here(
    data: FederatedData, deed: Callable[[], None], kind: type[Exception], text: str
) -> None:
    model = Doing(deed)
    with pooled(model, data) as trainer:
        for _ in range(2):  # and the trainer is as good as before
            with pytest.raises(kind) as caught:
                trained(trainer, tasks_of(model))
            assert str(caught.value) == text
            assert f"in {deed.__name__}" in caught.value.__notes__[0]  # the worker's traceback


# --- calls given up -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "interrupt"])
def test_a_call_given_up_leaves_nothing_behind(data: FederatedData, how: str) -> None:
    model = layers()
    with pooled(model, data) as trainer:
        results = trainer.train(tasks_of(model, epochs=200))
        next(results)
        if how == "close":
            results.close()
        else:
            with pytest.raises(KeyboardInterrupt):
                results.throw(KeyboardInterrupt)
        assert multiprocessing.active_children() == []  # nobody goes on with it
        assert_as_in_sequence(trained(trainer, tasks_of(model, 0.5)), data, 0.5)


def test_a_call_overtaken_by_another_says_so(data: FederatedData) -> None:
    model = layers()
    with pooled(model, data) as trainer:
        results = trainer.train(tasks_of(model, epochs=200))
        next(results)
        later = trainer.train(tasks_of(model, 0.5))
        first = next(later)
        with pytest.raises(RuntimeError, match="called again"):
            next(results)
        found = {outcome.task_id: outcome for outcome in [first, *later]}
        assert_as_in_sequence(found, data, 0.5)
        assert len(found) == len(SIZES)


# --- processes ------------------------------------------------------------------------------------


def test_closing_ends_all_workers_and_leaves_no_memory(data: FederatedData) -> None:
    before = set(os.listdir("/dev/shm"))
    model = layers()
    with pooled(model, data) as trainer:
        trained(trainer, tasks_of(model))
        pids = [child.pid or 0 for child in multiprocessing.active_children()]
        trainer.close()
        trainer.close()
        assert len(pids) == 2
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)  # not even to be buried
        assert_as_in_sequence(trained(trainer, tasks_of(model)), data)  # it can go on
    mine = {name for name in os.listdir("/dev/shm") if str(os.getpid()) in name}
    assert mine <= before


def test_workers_of_a_trainer_nobody_holds_end(data: FederatedData) -> None:
    model = layers()
    trainer = PoolTrainer(model, data, per_sample, workers=3)
    trained(trainer, tasks_of(model))
    pids = [child.pid or 0 for child in multiprocessing.active_children()]
    del trainer
    gc.collect()
    until(lambda: all(map(is_gone, pids)))
    assert len(pids) == 3


def test_workers_are_deaf_to_ctrl_c_and_have_one_thread(
    data: FederatedData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def note() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        (tmp_path / "threads").write_text(str(torch.get_num_threads()))

    model = Doing(note)
    torch.set_num_threads(2)
    try:
        with pooled(model, data) as trainer:
            found = trained(trainer, tasks_of(model))
    finally:
        torch.set_num_threads(1)
    assert_as_in_sequence(found, data)
    assert warnings_in(caplog) == []
    assert (tmp_path / "threads").read_text() == "1"


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_do_not_outlive_their_parent(data: FederatedData, blow: signal.Signals) -> None:
    hear, tell = os.pipe()

    def sleep() -> None:
        os.write(tell, b"%d\n" % os.getpid())
        time.sleep(2 * PATIENCE_S)

    def run() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pooled(Doing(sleep), data) as trainer:
            trained(trainer, tasks_of(layers()))

    parent = multiprocessing.get_context("fork").Process(target=run)
    parent.start()
    with open(hear) as lines:
        pids = [int(lines.readline()) for _ in range(2)]
    os.close(tell)
    assert not any(map(is_gone, pids))
    os.kill(parent.pid or 0, blow)
    until(lambda: all(map(is_gone, pids)))
    parent.join(PATIENCE_S)
    assert parent.exitcode == (1 if blow == signal.SIGINT else -blow)


@pytest.mark.parametrize("daemon", [True, False])
def test_within_another_process(data: FederatedData, daemon: bool, tmp_path: Path) -> None:
    def run() -> None:
        model = layers()
        try:
            with pooled(model, data) as trainer:
                assert_as_in_sequence(trained(trainer, tasks_of(model)), data)
            (tmp_path / "said").write_text("trained")
        except ConfigError as error:
            (tmp_path / "said").write_text(str(error))

    process = multiprocessing.get_context("fork").Process(target=run, daemon=daemon)
    process.start()
    process.join(PATIENCE_S)
    said = (tmp_path / "said").read_text()
    assert (
        said.endswith("set backend = 'sequential', or run in a process that is not daemonic")
        is daemon
    )
    assert (said == "trained") is not daemon


def test_a_process_that_does_not_close_it_can_end(data: FederatedData) -> None:
    held = []

    def run() -> None:
        model = layers()
        held.append(PoolTrainer(model, data, per_sample, workers=2))
        trained(held[0], tasks_of(model))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(PATIENCE_S)
    ended = process.exitcode
    process.kill()
    assert ended == 0


def test_at_least_one_worker(data: FederatedData) -> None:
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        PoolTrainer(layers(), data, per_sample, workers=0)


# --- where forking is not safe --------------------------------------------------------------------


def test_spawned_workers_do_the_same(data: FederatedData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "can_fork", lambda: False)
    model = layers()
    with pooled(model, data) as trainer:
        assert_as_in_sequence(trained(trainer, tasks_of(model)), data)


@pytest.mark.parametrize("part", ["model", "loss"])
def test_what_cannot_be_sent_is_named(
    data: FederatedData, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(pool, "can_fork", lambda: False)
    model = Doing(lambda: None) if part == "model" else layers()
    loss = (lambda x, y: per_sample(x, y)) if part == "loss" else per_sample
    with (
        pooled(model, data, loss=loss) as trainer,
        pytest.raises(
            ConfigError, match=rf"the {part} cannot be sent .* set backend = 'sequential'"
        ),
    ):
        trained(trainer, tasks_of(model))


def test_no_fork_where_autograd_has_threads() -> None:
    assert processes.can_fork() == (sys.platform == "linux")
    named, done = threading.Event(), threading.Event()

    def pretend() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pt_autograd_0")
        named.set()
        done.wait()

    thread = threading.Thread(target=pretend)
    thread.start()
    named.wait()
    try:
        assert not processes.can_fork()
    finally:
        done.set()
        thread.join()


def test_ctrl_c_that_another_thread_takes_is_put_off() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        with processes.born_deaf():
            os.kill(os.getpid(), signal.SIGINT)  # blocked here, so the other thread takes it
            for _ in range(100):
                time.sleep(0.001)
            assert heard == []
        assert heard == [signal.SIGINT]
    finally:
        over.set()
        other.join()
        signal.signal(signal.SIGINT, before)

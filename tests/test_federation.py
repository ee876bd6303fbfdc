"""A run that is the server's alone: no model, no data, no trainer; the clients have those."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from runs import NUM_EXAMPLES, START, digits, measure, outcome, policies

from pisces import running
from pisces.errors import ConfigError, RunError
from pisces.evaluate import Schedule
from pisces.execute.base import Capabilities
from pisces.execute.fake import FakeExecutor
from pisces.federation import Federation, Yardstick
from pisces.keeping import identity
from pisces.models.flat import flatten
from pisces.record.checkpoint import Checkpoints
from pisces.record.reader import Run
from pisces.report.goal import Goal
from pisces.report.table import run_table
from pisces.stop import Stop
from pisces.types import Arrived, Event, Joined, Task

in_the_main_thread = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="others hear no signals"
)
MEASURED = Yardstick(("accuracy",), lambda: measure)


class Remote(FakeExecutor):
    """Three clients, 1, 2 and 3 s away, in real time as far as the loop can tell."""

    def __init__(self, num_joining: int = 3) -> None:
        joins = [Joined(0.0, client, NUM_EXAMPLES) for client in range(num_joining)]
        can = Capabilities(real_time=True, cancels=True, takes_over=True)
        super().__init__(joins, self.answer, can)
        self.num_closed = 0

    def answer(self, task: Task, now: float) -> Iterable[Event]:
        done = outcome(task)
        yield Arrived(now + task.client + 1, task.id, task.client, done.weights, done.report)

    def close(self) -> None:
        self.num_closed += 1


def federation(**parts: Any) -> Federation:
    chosen = policies("fedbuff", 2, buffer_size=2)
    return Federation(**{"policies": chosen, "weights": START, "stop": Stop(versions=3), **parts})


def go(federation: Federation, executor: FakeExecutor, **how: Any) -> running.Ran:
    told = {"protocol": "fedbuff", "by_whom": "clients", "made": {}, **how}
    return running.run(federation, lambda _folder: executor, **told)


def test_without_a_hook_nothing_is_evaluated_and_all_else_is_as_ever(tmp_path: Path) -> None:
    ran = go(federation(), remote := Remote(), out=tmp_path / "run", checkpoints=Checkpoints())
    run = Run.open(tmp_path / "run")
    kinds = [line["kind"] for line in run.events()]
    assert kinds.count("aggregated") == 3
    assert "evaluated" not in kinds
    assert run.summary["reason"] == "versions"
    assert run.summary["final"] == {}
    assert run.summary["trained_by"] == "clients"
    assert run_table(run, Goal.of([run])).row_count > 0
    assert remote.num_closed == 1
    saved = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    assert {*saved} == {s.name for s in START.layout.slices}
    flat = torch.cat([saved[s.name].reshape(-1) for s in START.layout.slices])
    assert torch.equal(flat, ran.weights.flat)
    assert not torch.equal(flat, START.flat)


def test_the_hook_changes_no_decision() -> None:
    without = go(federation(), Remote())
    within = go(federation(yardstick=MEASURED, schedule=Schedule(every_s=0.7)), Remote())
    lines = [line for line in within.memory.lines if line["kind"] != "evaluated"]
    assert without.memory.lines == lines
    assert len(lines) < len(within.memory.lines)


@pytest.mark.parametrize("yardstick", [None, MEASURED])
def test_it_goes_on_where_it_was(tmp_path: Path, yardstick: Yardstick | None) -> None:
    whole = go(federation(yardstick=yardstick, stop=Stop(versions=6)), Remote())
    how: dict[str, Any] = {"out": tmp_path / "run", "checkpoints": Checkpoints(), "resume": True}
    go(federation(yardstick=yardstick), Remote(), **how)
    again = go(federation(yardstick=yardstick, stop=Stop(versions=6)), Remote(0), **how)
    assert again.summary["versions"] == 6
    assert torch.equal(again.weights.flat, whole.weights.flat)
    with pytest.raises(RunError, match="seed was 1, and is 2"):
        go(federation(seed=2, yardstick=yardstick), Remote(0), **how)


def test_it_is_told_apart_by_what_makes_it_what_it_is() -> None:
    one = identity(federation(), "fedbuff", {"made": 1})
    assert one == identity(federation(stop=Stop(versions=9)), "fedbuff", {"made": 1})
    others = (
        identity(federation(seed=2), "fedbuff", {"made": 1}),
        identity(federation(deadline_s=9.0), "fedbuff", {"made": 1}),
        identity(federation(weights=flatten(torch.nn.Linear(2, 1))), "fedbuff", {"made": 1}),
        identity(federation(), "pisces", {"made": 1}),
        identity(federation(), "fedbuff", {"made": 2}),
    )
    assert one not in others


def test_the_executor_is_opened_in_the_folder_and_closed_whatever_happens(tmp_path: Path) -> None:
    remote, seen = Remote(), []

    def opens(folder: Path | None) -> FakeExecutor:
        assert folder is not None
        seen.append((folder / "config.toml").exists())
        return remote

    port = federation(policies=policies("port", 2), deadline_s=9.0)  # pulls, which it cannot
    with pytest.raises(ConfigError, match="cannot"):
        running.run(port, opens, protocol="port", by_whom="clients", made={}, out=tmp_path / "run")
    assert seen == [True]
    assert remote.num_closed == 1
    assert not (tmp_path / "run").exists()  # another try may take the same folder


def test_what_is_broken_off_stays(tmp_path: Path) -> None:
    def opens(_folder: Path | None) -> FakeExecutor:
        raise KeyboardInterrupt

    how: dict[str, Any] = {"protocol": "fedbuff", "by_whom": "clients", "made": {}}
    with pytest.raises(KeyboardInterrupt):
        running.run(federation(), opens, out=tmp_path / "run", **how)
    assert (tmp_path / "run" / "config.toml").exists()
    go(federation(), Remote(), out=tmp_path / "run", resume=True, checkpoints=Checkpoints())


class Deaf(Remote):
    """Waits for ever, and cannot be broken off when it has just begun to."""

    def __init__(self) -> None:
        super().__init__(0)
        self._bell, self.listens = threading.Event(), False

    @property
    def interruptible(self) -> bool:
        return self.listens

    def wait(self, until: float) -> list[Event]:
        os.kill(os.getpid(), signal.SIGINT)  # at the worst moment
        self.listens = True
        assert self._bell.wait(30)
        return []


@in_the_main_thread
def test_an_interruption_is_heard_however_early_it_comes() -> None:
    with pytest.raises(KeyboardInterrupt):
        go(federation(), deaf := Deaf())
    assert deaf.num_closed == 1
    assert not deaf.is_dismissed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"stop": Stop(versions=3, target=0.9)}, "nothing is: say how"),
        ({"stop": Stop(versions=3, patience=2)}, "nothing is: say how"),
        (
            {"stop": Stop(versions=3, target=0.9, metric="f1"), "yardstick": MEASURED},
            "stop.metric: must be one of accuracy, not 'f1'",
        ),
        ({"stop": Stop(target=0.9)}, "never end"),
        ({"tick_s": 1e-9}, "tick_s: must be 0 or"),
        ({"deadline_s": 0.0}, "deadline_s: must be greater than 0"),
        ({"credits": 0}, "credits and staleness_window"),
        ({"num_clients": 1}, "waits for 2 updates at once, but there are only 1"),
        ({"policies": policies("autofl", 2)}, "the selector learns from what is evaluated"),
    ],
)
def test_refuses_what_cannot_be(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        federation(**wrong)


def test_a_simulation_makes_one_of_its_own_parts() -> None:
    simulation = digits("fedbuff")
    made = simulation.federation()
    assert made.num_clients == 6
    assert made.measured == ("accuracy", "loss")
    assert torch.equal(made.weights.flat, flatten(simulation.model).flat)
    assert (made.stop, made.seed, made.limits) == (
        simulation.stop,
        simulation.seed,
        simulation.limits,
    )
    with pytest.raises(ConfigError, match=r"stop\.metric"):
        replace(simulation, stop=Stop(versions=1, metric="f1"))

"""What no world and no protocol may break: whole runs, most of them drawn by hypothesis."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import (
    World,
    any_protocol,
    any_world,
    assemble,
    assert_lawful,
    log_bytes,
    max_staleness,
    of_kind,
    quarters,
    simulate,
    train_digits,
)

from pisces.execute.base import Capabilities, Executor
from pisces.execute.fake import FakeExecutor
from pisces.names import PROTOCOLS
from pisces.stop import Stop
from pisces.types import Event, Task


def with_setting(*names: str) -> st.SearchStrategy[str]:
    """Protocols that have these settings, and do something with them."""
    takes = {p for p in PROTOCOLS if {*names} <= signature(PROTOCOLS[p]).parameters.keys()}
    return st.sampled_from(sorted(takes - {"pisces-without-adaptive-pace"}))


bounded, paced = with_setting("staleness_bound", "unseen_latency_s"), with_setting("pace")


def by_the_paper(protocol: str, guess_s: float) -> dict[str, Any]:
    """Settings for the paper's pace; `pisces-paper` has no other."""
    pace = {"pace": "paper"} if "pace" in signature(PROTOCOLS[protocol]).parameters else {}
    return {**pace, "unseen_latency_s": guess_s}


@settings(max_examples=150)
@given(protocol=any_protocol, world=any_world())
def test_every_run_is_lawful(protocol: str, world: World) -> None:
    assert_lawful(simulate(protocol, world), world.concurrency)


@pytest.mark.long
@settings(max_examples=5000)
@given(protocol=any_protocol, world=any_world())
def test_thousands_of_runs_are_lawful(protocol: str, world: World) -> None:
    assert_lawful(simulate(protocol, world), world.concurrency)


@pytest.mark.long
@settings(max_examples=3000)
@given(protocol=paced, world=any_world(deadline_s=quarters), bound=st.integers(1, 6))
def test_thousands_of_strict_runs_keep_the_bound(protocol: str, world: World, bound: int) -> None:
    lines = simulate(protocol, world, pace="strict", staleness_bound=bound)
    assert max_staleness(lines) <= bound


# --- the staleness bound --------------------------------------------------------------------------


@settings(max_examples=100)
@given(protocol=bounded, world=any_world(jitter=st.just(0.0)), bound=st.sampled_from([1, 2, 4, 8]))
def test_exact_latencies_keep_the_bound(protocol: str, world: World, bound: int) -> None:
    # Theorem 1 of the paper: m aggregations while a client of latency L runs are at least L / b
    # apart, the first one right after its start, so (m - 1) L / b < L and m <= b. A tick only
    # makes the aggregations rarer; failures only end tasks sooner. Latencies and bounds are chosen
    # so that no sum is rounded: where an aggregation and an arrival coincide on paper, an error in
    # the last bit may let one more version slip in between.
    pace = by_the_paper(protocol, max(world.latencies))
    lines = simulate(protocol, world, staleness_bound=bound, **pace)
    assert max_staleness(lines) <= bound


@settings(max_examples=100)
@given(protocol=paced, world=any_world(deadline_s=quarters), bound=st.integers(1, 6))
def test_a_strict_pace_keeps_the_bound_whatever_happens(
    protocol: str, world: World, bound: float
) -> None:
    lines = simulate(protocol, world, pace="strict", staleness_bound=bound)
    assert max_staleness(lines) <= bound
    assert_lawful(lines, world.concurrency)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "latencies",
    [[7.0, 7.0, 4.2, 2.8, 0.7, 0.7, 1.4, 2.1], [0.1 * k for k in (70, 63, 42, 28, 7, 14, 21)]],
    ids=["sevenths", "tenths"],
)
def test_rounding_does_not_break_the_bound(latencies: list[float], seed: int) -> None:
    # On a grid that floats cannot hit, aggregations and arrivals coincide on paper only.
    world = World(latencies=latencies, concurrency=6, stop=Stop(time_s=60.0), seed=seed)
    name = "pisces-without-selection"
    lines = simulate(name, world, staleness_bound=10, **by_the_paper(name, max(latencies)))
    assert max_staleness(lines) <= 10


# Three slow clients among fast ones, five at a time: the slow ones start while versions are made.
BUSY = World(
    latencies=[16.0, 16.0, 16.0, *[0.5 + client / 4 for client in range(9)]],
    concurrency=5,
    stop=Stop(time_s=200.0),
)


@pytest.mark.parametrize("tick_s", [0.0, 1.0])
@pytest.mark.parametrize("bound", [1, 2, 4, 8])
def test_the_bound_is_reached_and_not_passed(bound: int, tick_s: float) -> None:
    # or the tests above would be content with a pace that is too slow
    name, world = "pisces-without-guard", replace(BUSY, tick_s=tick_s)
    lines = simulate(name, world, staleness_bound=bound, **by_the_paper(name, 16.0))
    assert max_staleness(lines) == bound


@pytest.mark.parametrize(
    ("pace", "holds"), [("remaining", False), ("paper", False), ("strict", True)]
)
def test_when_latencies_vary_only_a_strict_pace_keeps_the_bound(pace: str, holds: bool) -> None:
    world = replace(BUSY, jitter=0.8, deadline_s=60.0)
    lines = simulate("pisces-without-guard", world, staleness_bound=4, pace=pace)
    assert (max_staleness(lines) <= 4) == holds


# --- equal seeds ----------------------------------------------------------------------------------


@settings(max_examples=40)
@given(protocol=any_protocol, world=any_world())
def test_equal_seeds_give_equal_logs(protocol: str, world: World) -> None:
    assert log_bytes(simulate(protocol, world)) == log_bytes(simulate(protocol, world))


def test_with_real_training_equal_seeds_give_equal_logs_and_weights() -> None:
    (once, one), (again, other) = (train_digits("pisces", seed=3) for _ in range(2))
    assert log_bytes(once) == log_bytes(again)
    assert torch.equal(one.flat, other.flat)
    others, another = train_digits("pisces", seed=4)
    assert log_bytes(others) != log_bytes(once)
    assert not torch.equal(another.flat, one.flat)


IN_ANOTHER_PROCESS = """
import sys, torch
torch.set_num_threads(1)
from runs import log_bytes, train_digits
for protocol in ("pisces", "oort"):
    lines, weights = train_digits(protocol)
    sys.stdout.buffer.write(log_bytes(lines) + weights.flat.numpy().tobytes())
"""


def test_another_process_writes_the_same_log() -> None:
    here = b""
    for protocol in ("pisces", "oort"):
        lines, weights = train_digits(protocol)
        here += log_bytes(lines) + weights.flat.numpy().tobytes()
    tests = str(Path(__file__).parents[1])
    # another hash seed: no order may come from a set of strings
    environment = {**os.environ, "PYTHONPATH": tests, "PYTHONHASHSEED": "12345"}
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS]
    there = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert there == here


# --- same events, same decisions ------------------------------------------------------------------


class Recording(Executor):
    """Passes everything on, and remembers what the executor said."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.events: list[Event] = []
        self.pulled: dict[int, float] = {}  # task -> when it was asked for what there is
        self.handed_in: dict[int, Event] = {}  # and what came of it
        self.quiets: list[bool] = []

    @property
    def now(self) -> float:
        return self.inner.now

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def quiet(self) -> bool:
        self.quiets.append(self.inner.quiet)
        return self.quiets[-1]

    def submit(self, task: Task) -> None:
        self.inner.submit(task)

    def wait(self, until: float) -> list[Event]:
        events = self.inner.wait(until)
        for event in events:
            task_id = getattr(event, "task_id", None)
            if task_id in self.pulled and self.pulled[task_id] == event.at:
                self.handed_in[task_id] = event
            else:
                self.events.append(event)
        return events

    def cancel(self, task_id: int) -> None:
        self.inner.cancel(task_id)

    def pull(self, task_id: int) -> None:
        self.pulled[task_id] = self.now
        self.inner.pull(task_id)


class Replay(FakeExecutor):
    """Says again, in real time so to speak, what another executor said."""

    def __init__(self, recording: Recording) -> None:
        real_time = replace(recording.capabilities, real_time=True)
        super().__init__(recording.events, capabilities=real_time, hand_in=self.again)
        self.handed_in = recording.handed_in
        self.quiets = iter(recording.quiets)

    def again(self, task: Task, now: float) -> list[Event]:
        event = self.handed_in.get(task.id)
        return [event] if event is not None and event.at == now else []

    @property
    def quiet(self) -> bool:
        return next(self.quiets)


@settings(max_examples=80)
@given(protocol=any_protocol, world=any_world())
def test_same_events_same_decisions(protocol: str, world: World) -> None:
    recording = Recording(world.executor())
    first = assemble(protocol, world, executor=recording).run()
    again = assemble(protocol, world, executor=Replay(recording)).run()
    assert log_bytes(again) == log_bytes(first)


# --- the guard ------------------------------------------------------------------------------------


def test_the_guard_alone_changes_nothing_while_nobody_is_an_outlier() -> None:
    # Judged by ten to twenty, losses from 1 to 1.09 are alike; by three to six they are not always.
    world = World(latencies=[1.0, 2.0, 4.0] * 4, concurrency=10, stop=Stop(time_s=60.0))
    guarded, free = (simulate(name, world) for name in ("pisces", "pisces-without-guard"))
    assert of_kind(guarded, "outlier") == []
    assert log_bytes(guarded) == log_bytes(free)

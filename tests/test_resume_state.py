"""A run broken off anywhere and taken up by fresh objects goes on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import (
    Assembled,
    NoopTrainer,
    World,
    any_protocol,
    any_world,
    assemble,
    assert_lawful,
    digits,
    log_bytes,
    of_kind,
    simulate,
    through_json,
)

from pisces.build import simulated
from pisces.evaluate import Schedule
from pisces.execute.failures import Failures
from pisces.execute.virtual import VirtualExecutor
from pisces.names import PROTOCOLS
from pisces.record.lines import Line, Memory
from pisces.stop import REASONS, Stop
from pisces.train.base import Outcome
from pisces.types import State, Task, Weights

TROUBLED = World(
    latencies=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
    concurrency=6,
    jitter=0.3,
    failures=Failures(0.1, 0.1, 0.1, return_after_s=3.0),
    deadline_s=10.0,
    odd_every=4,
    stop=Stop(time_s=40.0),
)


def broken_off(protocol: str, world: World, num_steps: int) -> tuple[list[Line], Weights]:
    """The run in two parts: so many steps, then the rest in fresh objects."""
    first = assemble(protocol, world)
    advance(first, num_steps)
    second = take_up(first, protocol, world)
    return first.memory.lines + second.run(), second.coordinator.weights


def run_to_a_stop(run: Assembled) -> tuple[list[Line], State]:
    """The run to its end: what was written before it was wound up, and its state there."""
    kept: list[tuple[list[Line], State]] = []

    def rest() -> None:
        if run.coordinator.reason is not None:
            kept.append((list(run.memory.lines), through_json(run.coordinator.state())))

    run.coordinator.run(rest)
    ((lines, state),) = kept
    return lines, state


def go_on(protocol: str, world: World, lines: list[Line], state: State) -> Assembled:
    """A run made anew, to its end, with those lines before its own."""
    fresh = assemble(protocol, world)
    fresh.coordinator.restore(state)
    fresh.coordinator.go_on()
    fresh.memory.lines[:0] = lines
    fresh.run()
    return fresh


def advance(run: Assembled, num_steps: int) -> None:
    """So many steps, or fewer where there is a reason to stop."""
    for _ in range(num_steps):
        if run.coordinator.reason is None:
            run.coordinator.step()


def take_up(run: Assembled, protocol: str, world: World) -> Assembled:
    """Another run, made anew, from where this one stands; as finished as it is."""
    fresh = assemble(protocol, world)
    fresh.coordinator.restore(through_json(run.coordinator.state()))
    fresh.coordinator.reason = run.coordinator.reason
    return fresh


@settings(max_examples=80)
@given(protocol=any_protocol, world=any_world(), num_steps=st.integers(0, 40))
def test_any_run_goes_on_from_any_step(protocol: str, world: World, num_steps: int) -> None:
    whole = assemble(protocol, world)
    lines, weights = broken_off(protocol, world, num_steps)
    assert log_bytes(lines) == log_bytes(whole.run())
    assert torch.equal(weights.flat, whole.coordinator.weights.flat)


@pytest.mark.parametrize("tick_s", [0.0, 5.0])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_goes_on_after_every_few_steps(protocol: str, tick_s: float) -> None:
    world = replace(TROUBLED, tick_s=tick_s)
    whole = assemble(protocol, world)
    expected = log_bytes(whole.run())
    run, lines = assemble(protocol, world), []
    while run.coordinator.reason is None:
        advance(run, 3)
        lines += run.memory.lines
        run = take_up(run, protocol, world)
    lines += run.run()
    assert log_bytes(lines) == expected
    assert torch.equal(run.coordinator.weights.flat, whole.coordinator.weights.flat)
    assert_lawful(lines, world.concurrency)


early_stops = st.one_of(
    st.floats(0.5, 70.0).map(lambda time_s: Stop(time_s=time_s)),
    st.integers(1, 240).map(lambda quarters: Stop(time_s=quarters / 4)),
    st.integers(1, 20).map(lambda versions: Stop(versions=versions, time_s=99.0)),
    st.integers(1, 60).map(lambda updates: Stop(updates=updates, time_s=99.0)),
)


@settings(max_examples=80)
@given(protocol=any_protocol, world=any_world(), stop=early_stops)
def test_any_run_goes_on_beyond_any_stop(protocol: str, world: World, stop: Stop) -> None:
    whole = assemble(protocol, replace(world, stop=Stop(time_s=80.0)))
    expected = log_bytes(whole.run())
    stopped = assemble(protocol, replace(world, stop=stop))
    lines, state = run_to_a_stop(stopped)
    resumed = go_on(protocol, replace(world, stop=Stop(time_s=80.0)), lines, state)
    if stopped.coordinator.reason in REASONS and resumed.memory.lines[-1]["at"] <= 80.0:
        assert log_bytes(resumed.memory.lines) == expected
        assert torch.equal(resumed.coordinator.published.flat, whole.coordinator.published.flat)


@pytest.mark.parametrize("tick_s", [0.0, 5.0])
@pytest.mark.parametrize(
    "stop",
    [
        Stop(versions=3),
        Stop(time_s=12.5),
        Stop(time_s=15.0),
        Stop(target=0.26, time_s=40.0),
    ],
)
def test_a_stop_that_still_holds_ends_the_run_as_it_did(stop: Stop, tick_s: float) -> None:
    # Targets are also met between decisions, where the model is only looked at.
    world = replace(TROUBLED, stop=stop, tick_s=tick_s, schedule=Schedule(every_s=0.7))
    whole = assemble("pisces", world)
    lines, state = run_to_a_stop(whole)
    resumed = go_on("pisces", world, lines, state)
    assert log_bytes(resumed.memory.lines) == log_bytes(whole.memory.lines)


def test_where_nobody_is_left_no_later_stop_helps() -> None:
    world = World(failures=Failures(dropout=1.0), deadline_s=9.0, stop=Stop(versions=9))
    lines, state = run_to_a_stop(assemble("fedbuff", world))
    resumed = go_on("fedbuff", replace(world, stop=Stop(versions=99)), lines, state)
    assert resumed.coordinator.reason == "no clients left"


@pytest.mark.parametrize("protocol", ["pisces", "fedavg", "port", "fedcompass"])
@pytest.mark.parametrize("call", [0, 1, 4])
def test_a_run_broken_off_while_training_goes_on_as_if_it_had_not_been(
    protocol: str, call: int
) -> None:
    class Pressed(NoopTrainer):
        """Ctrl-C comes in the middle of a call."""

        def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
            outcomes = super().train(tasks)
            yield next(outcomes)
            if len(self.groups) == call + 1:
                run.coordinator.interrupt()
            yield from outcomes

    whole = assemble(protocol, TROUBLED, executor=TROUBLED.executor(all_of_it := NoopTrainer(4)))
    whole.run()
    run = assemble(protocol, TROUBLED, executor=TROUBLED.executor(begun := Pressed(4)))
    lines, state = run_to_a_stop(run)
    assert run.coordinator.reason == "interrupted"
    fresh = assemble(protocol, TROUBLED, executor=TROUBLED.executor(rest := NoopTrainer(4)))
    fresh.coordinator.restore(state)
    fresh.coordinator.go_on()
    assert log_bytes(lines + fresh.run()) == log_bytes(whole.memory.lines)
    # What was broken off is trained again, together with the same others.
    assert begun.groups[:-1] + rest.groups == all_of_it.groups


def test_ctrl_c_while_nothing_is_trained_waits_for_the_turn_to_end() -> None:
    class Pressing(VirtualExecutor):
        """Ctrl-C comes when an event has been taken off the heap."""

        def _end(self, task_id: int) -> None:
            run.coordinator.interrupt()
            super()._end(task_id)

    executor = TROUBLED.executor()
    executor.__class__ = Pressing
    run = assemble("fedbuff", TROUBLED, executor=executor)
    lines, state = run_to_a_stop(run)
    whole = assemble("fedbuff", TROUBLED)
    whole.run()
    assert of_kind(lines, "arrived", "failed", "left")  # nothing that happened was lost
    resumed = go_on("fedbuff", TROUBLED, lines, state)
    assert log_bytes(resumed.memory.lines) == log_bytes(whole.memory.lines)


@pytest.mark.parametrize("protocol", ["pisces", "pisces-paper"])
@pytest.mark.parametrize("tick_s", [0.0, 5.0])
def test_there_are_losses_that_stand_apart(protocol: str, tick_s: float) -> None:
    # or the test above would tell nothing of what judges remember
    assert len(of_kind(simulate(protocol, replace(TROUBLED, tick_s=tick_s)), "outlier")) >= 3


def test_saving_changes_nothing() -> None:
    whole, saved = assemble("pisces", TROUBLED), assemble("pisces", TROUBLED)
    while saved.coordinator.reason is None:
        saved.coordinator.state()
        saved.coordinator.step()
    assert log_bytes(saved.run()) == log_bytes(whole.run())


def test_what_was_saved_does_not_change_with_the_run() -> None:
    run = assemble("pisces", TROUBLED)
    for _ in range(12):
        run.coordinator.step()
    state = run.coordinator.state()
    kept = through_json(state)
    run.run()
    after = through_json(state)
    assert after.values == kept.values
    bits = [{n: np.asarray(a).tobytes() for n, a in s.arrays.items()} for s in (kept, after)]
    assert bits[0] == bits[1]


def test_a_version_is_saved_once_however_many_tasks_need_it() -> None:
    run = assemble("fedavg", World())
    run.coordinator.step()  # three tasks start from version 0
    names = [name for name in run.coordinator.state().arrays if "version" in name]
    assert sorted(names) == [
        "executor/version/0",
        "manager/table/last_version",
        "manager/version/0",
    ]


@pytest.mark.parametrize("backend", ["sequential", "batched"])
@pytest.mark.parametrize("protocol", ["pisces", "oort"])
def test_real_training_goes_on_bit_by_bit(protocol: str, backend: str) -> None:
    whole, first, second = Memory(), Memory(), Memory()
    how = [f"train.backend={backend}"]
    expected = simulated(digits(protocol, how), whole).run()
    coordinator = simulated(digits(protocol, how), first)
    for _ in range(3):
        coordinator.step()
    assert coordinator.reason is None
    fresh = simulated(digits(protocol, how), second)
    fresh.restore(through_json(coordinator.state()))
    weights = fresh.run()
    assert log_bytes(first.lines + second.lines) == log_bytes(whole.lines)
    assert torch.equal(weights.flat, expected.flat)

"""Fault injection: what the server hears of each fault, when, and what it never hears."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import (
    START,
    World,
    assemble,
    assert_lawful,
    log_bytes,
    num_versions,
    of_kind,
    reason,
    task,
    through_json,
)

from pisces.errors import ConfigError
from pisces.execute.faults import Fault, FaultPlan, Faults
from pisces.execute.faulty import NEVER_SENT, FaultyExecutor
from pisces.names import PROTOCOLS
from pisces.stop import Stop
from pisces.types import Arrived, Event


@dataclass
class Chosen(FaultPlan):
    """The faults of these tasks."""

    faults: Mapping[int, Fault]
    delay_s: float = 2.5
    away_s: float = 20.0

    def draw(self, task_id: int, client: int) -> Fault | None:
        return self.faults.get(task_id)


def executor(**faults: Fault) -> FaultyExecutor:
    """Three clients that need 1, 2 and 4 s; `t0=...` is the fault of task 0."""
    plan = Chosen({int(name[1:]): fault for name, fault in faults.items()})
    inner = World(latencies=[1.0, 2.0, 4.0]).executor()
    made = FaultyExecutor(inner, plan, layout=START.layout)
    made.wait(0.0)
    return made


def told(events: list[Event]) -> list[tuple[str, float, int]]:
    return [(type(event).__name__, event.at, event.client) for event in events]


def all_of(made: FaultyExecutor) -> list[tuple[str, float, int]]:
    """To the end."""
    heard = []
    while not made.quiet:
        heard += told(made.wait(math.inf))
    return heard


# --- on the way -----------------------------------------------------------------------------------


def test_a_lost_result_ends_with_its_deadline_and_its_client_is_there_again() -> None:
    made = executor(t0=Fault.LOSE)
    made.submit(task(0, 0, deadline_s=8.0))
    assert all_of(made) == [("Left", 8.0, 0), ("Joined", 8.0, 0)]


def test_a_lost_result_without_a_deadline_is_silence() -> None:
    made = executor(t0=Fault.LOSE)
    made.submit(task(0, 0))
    assert made.wait(math.inf) == []
    assert made.quiet
    made.cancel(0)
    made.submit(task(1, 0))  # its client is well
    assert all_of(made) == [("Arrived", 2.0, 0)]


def test_a_result_comes_twice() -> None:
    made = executor(t0=Fault.DUPLICATE)
    made.submit(task(0, 0))
    assert all_of(made) == [("Arrived", 1.0, 0), ("Arrived", 3.5, 0)]


def test_a_result_is_overtaken_by_the_next() -> None:
    made = executor(t0=Fault.REORDER)
    made.submit(task(0, 0))
    made.submit(task(1, 1))
    assert all_of(made) == [("Arrived", 2.0, 1), ("Arrived", 2.0, 0)]


def test_a_result_that_nothing_overtakes_comes_all_the_same() -> None:
    made = executor(t0=Fault.REORDER)
    made.submit(task(0, 0))
    assert all_of(made) == [("Arrived", 3.5, 0)]


def test_a_late_result_in_time() -> None:
    made = executor(t0=Fault.DELAY)
    made.submit(task(0, 0, deadline_s=8.0))
    assert all_of(made) == [("Arrived", 3.5, 0)]


def test_a_result_after_its_deadline_comes_too_and_brings_its_client_back() -> None:
    made = executor(t0=Fault.DELAY)
    made.submit(task(0, 0, deadline_s=3.0))
    assert all_of(made) == [("Left", 3.0, 0), ("Arrived", 3.5, 0), ("Joined", 3.5, 0)]


# --- with the client ------------------------------------------------------------------------------


def test_the_dead_do_not_come_back() -> None:
    made = executor(t0=Fault.DIE)
    made.submit(task(0, 0, deadline_s=8.0))
    assert all_of(made) == [("Left", 1.0, 0)]


def test_who_loses_its_connection_joins_again() -> None:
    made = executor(t0=Fault.REJOIN)
    made.submit(task(0, 0, deadline_s=8.0))
    assert all_of(made) == [("Left", 1.0, 0), ("Joined", 21.0, 0)]


def test_who_hangs_is_silent_until_it_is_not() -> None:
    made = executor(t0=Fault.HANG)
    made.submit(task(0, 0, deadline_s=8.0))
    assert all_of(made) == [("Left", 8.0, 0), ("Joined", 21.0, 0)]


def test_who_hangs_does_not_hear_of_further_tasks() -> None:
    made = executor(t0=Fault.HANG)
    made.submit(task(0, 0))
    made.wait(5.0)
    made.cancel(0)  # so the server takes it to be free
    made.submit(task(1, 0))
    made.pull(1)
    assert told(made.wait(math.inf)) == [("Failed", 21.0, 0)]  # it came back without its task
    made.submit(task(2, 0))
    assert all_of(made) == [("Arrived", 22.0, 0)]


# --- lies -----------------------------------------------------------------------------------------


def result(fault: Fault, task_id: int = 0) -> Arrived:
    made = executor(**{f"t{task_id}": fault})
    made.submit(task(task_id, 0))
    (event,) = made.wait(math.inf)
    assert isinstance(event, Arrived)
    return event


def test_weights_are_falsified() -> None:
    assert bool(result(Fault.NAN).weights.flat.isnan().all())
    assert result(Fault.ZEROS).weights.flat.tolist() == [0.0] * 4
    assert result(Fault.HUGE).weights.flat.tolist() == pytest.approx([3e38] * 4)
    assert result(Fault.HUGE, 1).weights.flat.tolist() == pytest.approx([4e14] * 4)
    assert result(Fault.SHAPE).weights.flat.shape == (3,)
    assert result(Fault.DTYPE).weights.flat.dtype == torch.float16
    assert result(Fault.OLD).weights.flat.equal(START.flat)


def test_reports_are_falsified() -> None:
    assert [result(Fault.SIZE, i).report.num_examples for i in range(5)] == [0, -1, 2.5, 10**12, 1]
    assert [result(Fault.LOSS, i).report.loss for i in (1, 3, 4)] == [math.inf, -1.0, 1e5]


def test_an_answer_to_a_task_never_sent_comes_before_the_true_one() -> None:
    made = executor(t0=Fault.UNKNOWN)
    made.submit(task(0, 0))
    made_up, true = made.wait(math.inf)
    assert isinstance(made_up, Arrived)
    assert isinstance(true, Arrived)
    assert (made_up.task_id, true.task_id) == (NEVER_SENT, 0)


@pytest.mark.parametrize(("others", "answered"), [([1], 1), ([], NEVER_SENT)])
def test_an_answer_to_anothers_task(others: list[int], answered: int) -> None:
    made = executor(t0=Fault.FOREIGN)
    made.submit(task(0, 0))
    for task_id in others:
        made.submit(task(task_id, 2))
    made_up, true = made.wait(math.inf)
    assert isinstance(made_up, Arrived)
    assert (made_up.task_id, made_up.client) == (answered, 0)
    assert isinstance(true, Arrived)


# --- plans ----------------------------------------------------------------------------------------


def test_chances_are_chances() -> None:
    plan = Faults({Fault.LOSE: 0.25, Fault.NAN: 0.5}, seed=3)
    drawn = [plan.draw(task_id, 0) for task_id in range(2000)]
    assert drawn == [plan.draw(task_id, 0) for task_id in range(2000)]
    # 500 and 1000 of 2000, give or take five times sqrt(2000 x 1/4 x 3/4) = 19
    assert drawn.count(Fault.LOSE) == pytest.approx(500, abs=100)
    assert drawn.count(Fault.NAN) == pytest.approx(1000, abs=110)


def test_faults_happen_to_whom_they_are_to() -> None:
    plan = Faults({Fault.LOSE: 1.0}, clients={1})
    assert [plan.draw(0, client) for client in range(3)] == [None, Fault.LOSE, None]


@pytest.mark.parametrize(
    ("chances", "more", "says"),
    [
        ({Fault.LOSE: 1.5}, {}, "add up to at most 1"),
        ({Fault.LOSE: -0.1}, {}, "add up to at most 1"),
        ({Fault.LOSE: 0.6, Fault.NAN: 0.6}, {}, "add up to at most 1"),
        ({}, {"delay_s": math.inf}, "delay_s must be finite"),
        ({}, {"away_s": -1.0}, "negative"),
    ],
)
def test_senseless_plans_are_refused(
    chances: dict[Fault, float], more: dict[str, float], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        Faults(chances, **more)  # type: ignore[arg-type]


# --- whole runs -----------------------------------------------------------------------------------

EVERYTHING = Faults(
    {fault: 0.5 / len(Fault) for fault in Fault}, delay_s=3.0, away_s=12.0, clients=range(1, 6)
)
TROUBLED = World(
    latencies=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    concurrency=4,
    deadline_s=8.0,
    credits=1000,
    stop=Stop(time_s=150.0),
)


def over_faults() -> FaultyExecutor:
    return FaultyExecutor(TROUBLED.executor(), EVERYTHING, layout=START.layout)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_goes_on_through_all_of_them(protocol: str) -> None:
    run = assemble(protocol, TROUBLED, executor=over_faults())
    lines = run.run()
    assert reason(lines) == "time"
    assert num_versions(lines) >= 8
    assert of_kind(lines, "ignored")
    assert of_kind(lines, "left")
    assert_lawful(lines, TROUBLED.concurrency)


@pytest.mark.parametrize("protocol", ["pisces", "fedavg", "papaya", "port"])
def test_a_run_broken_off_among_faults_goes_on_as_if_it_had_not_been(protocol: str) -> None:
    whole = assemble(protocol, TROUBLED, executor=over_faults())
    expected = log_bytes(whole.run())
    run, lines = assemble(protocol, TROUBLED, executor=over_faults()), []
    while run.coordinator.reason is None:
        for _ in range(3):
            if run.coordinator.reason is None:
                run.coordinator.step()
        lines += run.memory.lines
        fresh = assemble(protocol, TROUBLED, executor=over_faults())
        fresh.coordinator.restore(through_json(run.coordinator.state()))
        run = fresh
    assert log_bytes(lines + run.run()) == expected


def test_the_example_of_the_docs_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text("utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    few = '"clients.count=12", "clients.concurrency=4", "stop.time_s=60"'
    small = f'["clients.deadline_s=60", {few}]'
    assert '["clients.deadline_s=60"]' in code
    names: dict[str, Any] = {}
    exec(code.replace('["clients.deadline_s=60"]', small), names)
    assert names["result"].summary["num_updates"] > 0
    assert names["result"].summary["trained_by"] == "FaultyExecutor"

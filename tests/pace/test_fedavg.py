"""Rounds: when a cohort is done, who is let go, and what is too late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from worlds import update, view, weights

from pisces.aggregate.mean import DiscountedMean
from pisces.clients.manager import ClientManager
from pisces.coordinator import Coordinator
from pisces.evaluate import Inline, Schedule
from pisces.execute.base import Capabilities
from pisces.execute.fake import FakeExecutor
from pisces.pace.fedavg import Rounds
from pisces.policy import Policies, Release
from pisces.record.lines import Memory
from pisces.select.uniform import Uniform
from pisces.stop import Stop
from pisces.types import Arrived, Failed, Joined, Plan, Report

# --- what it says of one instant ------------------------------------------------------------------


def test_a_cohort_starts_only_when_the_last_one_is_done() -> None:
    pacer = Rounds(3)
    assert pacer.slots(view()) == 3
    assert pacer.slots(view(running=[(0, 0, 0.0)])) == 0  # two seats are free, but not now
    assert pacer.slots(view(buffer=[update(0)])) == 0  # everybody reported: aggregate first


def test_a_member_that_failed_does_not_hang_the_round() -> None:
    pacer = Rounds(3)
    assert not pacer.ready(view(running=[(1, 0, 0.0)], buffer=[update(0)]))
    assert pacer.ready(view(buffer=[update(0)]))  # client 1 failed: one of three is all there is


def test_whoever_works_for_an_older_round_is_no_part_of_the_cohort() -> None:
    # Client 0 still runs for version 0 where the executor could not call it off.
    late = view(running=[(0, 0, 0.0)], version=1)
    pacer = Rounds(3)
    assert pacer.slots(late) == 2  # but it holds its seat
    assert pacer.ready(view(running=[(0, 0, 0.0)], version=1, buffer=[update(1, version=1)]))


def test_enough_of_an_over_selected_cohort_end_the_round() -> None:
    pacer = Rounds(4, enough=2)
    running = [(2, 0, 0.0), (3, 0, 0.0)]
    assert not pacer.ready(view([1] * 4, running=running, buffer=[update(0)]))
    assert pacer.ready(view([1] * 4, running=running, buffer=[update(0), update(1)]))
    assert pacer.ready(view([1] * 4, buffer=[update(0)]))  # the three others failed


def test_the_deadline_counts_from_the_start_of_the_round() -> None:
    # Started at 3, five seconds: over at 8.
    pacer = Rounds(3, deadline_s=5.0)
    running, buffer = [(0, 2, 3.0)], [update(1, version=2)]
    early = view(running=running, buffer=buffer, version=2, now=7.99)
    assert not pacer.ready(early)
    assert pacer.next_check(early) == 8.0
    assert pacer.ready(view(running=running, buffer=buffer, version=2, now=8.0))


def test_without_a_deadline_only_events_matter() -> None:
    waiting = view(running=[(0, 0, 3.0)], buffer=[update(1)], now=1e9)
    assert Rounds(3).next_check(waiting) == math.inf
    assert not Rounds(3).ready(waiting)


def test_a_deadline_is_of_no_concern_once_nobody_runs() -> None:
    assert Rounds(3, deadline_s=5.0).next_check(view(buffer=[update(0)])) == math.inf


def test_accepts_only_the_current_version() -> None:
    pacer = Rounds(3)
    assert pacer.accepts(view(version=4), update(0, version=4))
    assert not pacer.accepts(view(version=4), update(0, version=3))


def test_releases_those_whose_round_is_over() -> None:
    running = [(0, 1, 0.0), (1, 2, 5.0), (2, 0, 0.0)]  # task ids 0, 1, 2
    assert Rounds(3).release(view(running=running, version=2)) == [
        Release(0, "its round is over"),
        Release(2, "its round is over"),
    ]
    assert Rounds(3).release(view()) == []


@pytest.mark.parametrize(("enough", "needed"), [(None, 1), (1, 1), (7, 7)])
def test_needs_as_many_clients_as_make_a_round(enough: int | None, needed: int) -> None:
    assert Rounds(10, enough=enough).min_clients == needed
    assert not Rounds(10, enough=enough).needs_deadline


# --- whole rounds ---------------------------------------------------------------------------------


def play(
    pacer: Rounds,
    latency_s: Sequence[float],
    *,
    until: float,
    fails: int = -1,
    cancels: bool = True,
) -> list[dict[str, Any]]:
    """The record of clients with these latencies; the task of client `fails` fails instead."""

    def respond(task, now):  # type: ignore[no-untyped-def]
        at = now + latency_s[task.client]
        if task.client == fails:
            return [Failed(at, task.client, "crashed", task.id)]
        return [Arrived(at, task.id, task.client, task.weights, Report(10))]

    script = [Joined(0.0, client, 10) for client in range(len(latency_s))]
    executor = FakeExecutor(script, respond, Capabilities(cancels=cancels))
    model, memory = weights([0.0]), Memory()
    Coordinator(
        policies=Policies(Uniform(), pacer, DiscountedMean()),
        executor=executor,
        manager=ClientManager(model.layout),
        evaluator=Inline(lambda _version, _weights: {}),
        recorder=memory,
        weights=model,
        plans=lambda _: Plan(),
        stop=Stop(time_s=until),
        schedule=Schedule(),
        seed=1,
    ).run()
    return memory.lines


def instants(lines: list[dict[str, Any]], kind: str, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(x[k] for k in ("at", *keys)) for x in lines if x["kind"] == kind]


def test_a_round_takes_as_long_as_its_slowest() -> None:
    # Latencies 1, 2, 5: everybody starts at 0, 5 and 10, and is aggregated at 5 and 10.
    lines = play(Rounds(3), [1.0, 2.0, 5.0], until=11.0)
    assert [at for (at,) in instants(lines, "started")] == [0.0] * 3 + [5.0] * 3 + [10.0] * 3
    assert [at for (at,) in instants(lines, "aggregated")] == [5.0, 10.0]
    assert all(x["staleness"] == [0, 0, 0] for x in lines if x["kind"] == "aggregated")


def test_a_failure_shrinks_the_round() -> None:
    # Client 2 fails at 5 in every round: the other two are aggregated then.
    lines = play(Rounds(3), [1.0, 2.0, 5.0], until=6.0, fails=2)
    assert [at for (at,) in instants(lines, "aggregated")] == [5.0]
    assert [len(x["tasks"]) for x in lines if x["kind"] == "aggregated"] == [2]


def test_a_round_in_which_all_fail_starts_over_from_the_same_version() -> None:
    lines = play(Rounds(1), [4.0], until=9.0, fails=0)
    assert instants(lines, "started", "version") == [(0.0, 0), (4.0, 0), (8.0, 0)]


def test_over_selection_takes_the_first_and_calls_the_rest_off() -> None:
    # Latencies 1, 2, 9 and two are enough: rounds end at 2, 4, ... and client 2's tasks with them.
    lines = play(Rounds(3, enough=2), [1.0, 2.0, 9.0], until=4.5)
    assert [at for (at,) in instants(lines, "aggregated")] == [2.0, 4.0]
    called_off = [(x["at"], x["client"]) for x in lines if "round is over" in x.get("reason", "")]
    assert called_off == [(2.0, 2), (4.0, 2)]


def test_a_late_update_is_dropped_where_nobody_can_be_called_off() -> None:
    # The first round ends at 2, two being enough. Client 2 runs on for it and arrives at 9.
    lines = play(Rounds(3, enough=2), [1.0, 2.0, 9.0], until=9.5, cancels=False)
    late = next(x for x in lines if x["kind"] == "dropped")
    assert (late["at"], late["reason"]) == (9.0, "too late")
    assert not any("round is over" in x.get("reason", "") for x in lines)


def test_the_deadline_ends_a_round() -> None:
    # Client 0 takes 3 s, client 1 takes 9 s, five seconds are given: 5, 10, each with client 0.
    lines = play(Rounds(2, deadline_s=5.0), [3.0, 9.0], until=11.0)
    assert [at for (at,) in instants(lines, "aggregated")] == [5.0, 10.0]
    assert [len(x["tasks"]) for x in lines if x["kind"] == "aggregated"] == [1, 1]


def test_when_nobody_made_it_the_first_arrival_ends_the_round() -> None:
    # Five seconds are given, but the faster client takes 7: its arrival makes the version.
    lines = play(Rounds(2, deadline_s=5.0), [7.0, 9.0], until=8.0)
    assert [at for (at,) in instants(lines, "aggregated")] == [7.0]
    assert instants(lines, "started")[2:] == [(7.0,), (7.0,)]

"""What holds of every pacer: add yours to the table and it is held to all of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import implementations, through_json, with_those_of_protocols, without_a_row
from worlds import NAN, update, view

import pisces.pace
from pisces.clients.view import View
from pisces.pace.fedavg import Rounds
from pisces.pace.fedbuff import Buffered
from pisces.pace.fedcompass import Grouped
from pisces.pace.papaya import Papaya
from pisces.pace.pisces import Adaptive
from pisces.pace.port import Port
from pisces.pace.remaining import Remaining
from pisces.pace.timed import Timed
from pisces.policy import Pacer

C = 4  # concurrency
PACERS: dict[str, Callable[[], Pacer]] = {
    "rounds": lambda: Rounds(C),
    "rounds, over-selected": lambda: Rounds(C, enough=3),
    "rounds, with a deadline": lambda: Rounds(C, deadline_s=7.5),
    "buffered": lambda: Buffered(C, 2),
    "buffered, fresh only": lambda: Buffered(C, 2, max_staleness=1),
    "adaptive, paper": lambda: Adaptive(C, 3),
    "adaptive, paper, bound 1": lambda: Adaptive(C, 1, unseen_latency_s=5.0),
    "adaptive, elapsed": lambda: Adaptive(C, 3, mode="elapsed", unseen_latency_s=5.0),
    "adaptive, elapsed, bound 1": lambda: Adaptive(C, 1, mode="elapsed"),
    "adaptive, strict": lambda: Adaptive(C, 3, mode="strict", unseen_latency_s=5.0),
    "papaya": lambda: Papaya(C, 2),
    "papaya, fresh and quick only": lambda: Papaya(C, 2, timeout_s=30.0, max_staleness=1),
    "port": lambda: Port(C, 2, 3),
    "port, bound 1": lambda: Port(C, 3, 1),
    "timed": lambda: Timed(C, 7.5),
    "grouped": lambda: Grouped(C),
    "grouped, much slack": lambda: Grouped(C, slack=3.0),
    "remaining": lambda: Remaining(C, 3),
    "remaining, bound 1": lambda: Remaining(C, 1),
}

PACERS = with_those_of_protocols("pacer", PACERS, C)
every_pacer = pytest.mark.parametrize("name", PACERS)


@st.composite
def situations(draw: st.DrawFn, *, min_buffer: int = 0) -> View:
    """An instant in the middle of a run: up to C running, some updates waiting."""
    version = draw(st.integers(0, 6))
    versions, past = st.integers(0, version), st.floats(0.0, 50.0)
    num_running, num_waiting = draw(st.integers(0, C)), draw(st.integers(min_buffer, 4))
    running = [(i, draw(versions), draw(past)) for i in range(num_running)]
    waiting = [update(C + i, version=draw(versions)) for i in range(num_waiting)]
    return view(
        [10] * 2 * C,
        num_steps=draw(st.lists(st.integers(0, 9), min_size=8, max_size=8)),
        max_steps=draw(st.lists(st.integers(-1, 9), min_size=num_running, max_size=num_running)),
        latency_s=draw(st.lists(st.floats(0.1, 60.0) | st.just(NAN), min_size=8, max_size=8)),
        running=running,
        buffer=waiting,
        now=draw(st.floats(50.0, 200.0)),
        last_aggregated_at=draw(past) if version else 0.0,
        version=version,
    )


def answers(pacer: Pacer, seen: View) -> list[Any]:
    """All it says of an instant."""
    return [
        pacer.slots(seen),
        pacer.ready(seen),
        pacer.next_check(seen),
        list(pacer.release(seen)),
        pacer.next_release(seen),
        [pacer.accepts(seen, u) for u in seen.buffer],
        (pacer.min_clients, pacer.needs_deadline, pacer.needs_pull),
    ]


def columns(seen: View) -> list[bytes]:
    return [getattr(seen.clients, f.name).tobytes() for f in fields(seen.clients)]


def test_every_pacer_has_a_row() -> None:
    assert implementations(pisces.pace, "ready") <= {type(make()) for make in PACERS.values()}
    assert without_a_row("pace", PACERS) == []


@every_pacer
@settings(max_examples=40)
@given(seen=situations())
def test_never_starts_more_than_may_run(name: str, seen: View) -> None:
    slots = PACERS[name]().slots(seen)
    assert type(slots) is int
    assert slots + len(seen.running) <= C


@every_pacer
@settings(max_examples=20)
@given(seen=situations())
def test_answers_are_pure(name: str, seen: View) -> None:
    pacer, before = PACERS[name](), columns(seen)
    state = through_json(pacer.state())
    first = answers(pacer, seen)
    assert answers(pacer, seen) == first
    assert columns(seen) == before
    assert through_json(pacer.state()) == state


@every_pacer
@settings(max_examples=20)
@given(seen=situations())
def test_goes_on_from_saved_state(name: str, seen: View) -> None:
    pacer, restored = PACERS[name](), PACERS[name]()
    restored.restore(through_json(pacer.state()))
    assert answers(restored, seen) == answers(pacer, seen)


@every_pacer
@settings(max_examples=60)
@given(seen=situations(min_buffer=1))
def test_is_ready_at_the_instant_it_named(name: str, seen: View) -> None:
    # An event-driven loop sleeps until exactly then: a later `ready` would never fire.
    pacer = PACERS[name]()
    at = pacer.next_check(seen)
    assert isinstance(at, float)
    if pacer.ready(seen):
        return
    assert at > seen.now, "the instant to ask again has not passed"
    if at < math.inf:
        assert pacer.ready(replace(seen, now=at))


@every_pacer
@settings(max_examples=20)
@given(seen=situations())
def test_speaks_plain_python(name: str, seen: View) -> None:
    pacer = PACERS[name]()
    assert type(pacer.ready(seen)) is bool
    assert all(type(pacer.accepts(seen, u)) is bool for u in seen.buffer)


@every_pacer
@settings(max_examples=40)
@given(seen=situations())
def test_releases_only_what_runs_and_says_why(name: str, seen: View) -> None:
    released = PACERS[name]().release(seen)
    assert {r.task_id for r in released} <= set(seen.running.task_ids.tolist())
    assert len({r.task_id for r in released}) == len(released)
    assert all(type(r.task_id) is int and r.reason for r in released)
    assert PACERS[name]().needs_pull or not any(r.pull for r in released)


@every_pacer
@settings(max_examples=60)
@given(seen=situations())
def test_releases_somebody_at_the_instant_it_named(name: str, seen: View) -> None:
    # If nobody else wakes the loop it sleeps until exactly then.
    pacer = PACERS[name]()
    at = pacer.next_release(seen)
    assert type(at) is float
    assert at > seen.now
    if at < math.inf:
        before, then = pacer.release(seen), pacer.release(replace(seen, now=at))
        assert then
        assert {r.task_id for r in before} <= {r.task_id for r in then}


@every_pacer
def test_is_ready_once_its_fewest_clients_wait_and_nobody_runs(name: str) -> None:
    pacer = PACERS[name]()
    waiting = [update(i, version=3) for i in range(pacer.min_clients)]
    assert pacer.ready(view([10] * C, buffer=waiting, version=3, now=9.0, last_aggregated_at=8.0))


@every_pacer
def test_a_fresh_update_is_wanted(name: str) -> None:
    fresh = update(0, version=3)
    assert PACERS[name]().accepts(view([10] * C, version=3), fresh)


@every_pacer
def test_starts_somebody_in_an_empty_world(name: str) -> None:
    assert PACERS[name]().slots(view([10] * C)) == C


def test_only_a_pacer_that_waits_for_the_slowest_needs_a_deadline() -> None:
    # One client silent since time began, everybody else waiting: who never aggregates must say so.
    waiting = [update(i, version=9) for i in (1, 2, 3)]
    stuck = view(
        [10] * C,
        latency_s=np.full(C, 2.0).tolist(),
        num_steps=[5] * C,
        running=[(0, 0, 0.0)],
        buffer=waiting,
        version=9,
        now=1e6,
        last_aggregated_at=50.0,
    )
    says_never = {n for n, make in PACERS.items() if not make().ready(stuck)}
    strict = {"adaptive, strict", "adaptive, elapsed, bound 1", "port", "port, bound 1"}
    assert says_never == strict
    assert {n for n, make in PACERS.items() if make().needs_deadline} == says_never


def test_only_a_pacer_that_pulls_says_so() -> None:
    assert {n for n, make in PACERS.items() if make().needs_pull} == {"port", "port, bound 1"}


@every_pacer
@settings(max_examples=40)
@given(seen=situations())
def test_what_it_goes_by_is_numbers_by_name(name: str, seen: View) -> None:
    pacer = PACERS[name]()
    terms = pacer.terms(seen)
    assert all(type(value) in (int, float) for value in terms.values())
    np.testing.assert_equal(pacer.terms(seen), terms)  # and told again


@every_pacer
@settings(max_examples=40)
@given(seen=situations(min_buffer=1))
def test_where_it_names_a_limit_that_is_when_it_is_ready(name: str, seen: View) -> None:
    pacer = PACERS[name]()
    limit_s = pacer.terms(seen).get("limit_s")
    if limit_s is None or not math.isfinite(limit_s) or not len(seen.running):
        return
    due_at = seen.last_aggregated_at + limit_s
    assert pacer.ready(replace(seen, now=due_at + 1e-6 * (1 + abs(due_at))))
    if due_at > 1e-3:
        assert not pacer.ready(replace(seen, now=due_at - 1e-6 * (1 + abs(due_at))))

"""Whatever goes wrong, in whatever order: nothing lost, nothing used twice, nobody stalls the run.

Hypothesis plays the world against coordinator, manager and `FaultyExecutor`: every rule is one
mishap (or an honest answer, or a turn of the loop), and all laws are looked at after every one.
"""

from __future__ import annotations

import os
from math import ceil
from random import Random
from typing import Any

from hand import HONEST, SOON
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from runs import World
from scene import Scene, Tally

from pisces.evaluate import Schedule
from pisces.execute.faults import Fault
from pisces.names import PROTOCOLS
from pisces.stop import Stop
from pisces.types import State

# Every protocol as it is, and some where tasks are called off, late or not enough.
PLAYED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in PROTOCOLS),
    ("papaya", {"timeout_s": 4.0, "max_staleness": 1}),
    ("fedavg", {"round_deadline_s": 3.0}),
    ("oort", {"round_deadline_s": 3.0}),
    ("fedavg", {"over_selection": 1.5}),
    ("fedbuff", {"buffer_size": 3, "max_staleness": 1}),
    ("port", {"staleness_bound": 1, "buffer_size": 2}),
]

SEED = int(os.environ.get("PISCES_MACHINE_SEED", "20261116"))

some = st.integers(0, 99)  # one of those there are, counted around
soon = st.sampled_from(SOON)
turns = st.integers(0, 3)  # of the loop, afterwards: hypothesis leaves out some rules in every run
anybody = st.integers(-1, 7)  # also clients that never were
NONSENSE = ("leave", "join_absurdly", "make_up", "make_up_failure")


class Mishaps(RuleBasedStateMachine):
    """One run, and all that may happen to it."""

    played: tuple[str, dict[str, Any]]
    tally: Tally
    scene: Scene
    kept: tuple[State, int] | None = None

    @initialize(
        num_clients=st.sampled_from([6, 5, 4, 3, 6, 5, 4, 3, 1]),
        share=st.sampled_from([1.0, 0.7, 0.5, 0.1]),
        deadline_s=st.sampled_from([8.0, 8.0, 8.0, None]),
        tick_s=st.sampled_from([0.0, 0.0, 5.0]),
        credits=st.sampled_from([9, 3, 1]),
        every_s=st.sampled_from([None, 3.0]),
        seed=st.integers(0, 99),
        luck=st.none() | st.integers(0, 2**32),
    )
    def begin(
        self,
        num_clients: int,
        share: float,
        deadline_s: float | None,
        tick_s: float,
        credits: int,
        every_s: float | None,
        seed: int,
        luck: int | None,
    ) -> None:
        world = World(
            latencies=[1.0] * num_clients,
            concurrency=ceil(share * num_clients),
            deadline_s=deadline_s,
            tick_s=tick_s,
            credits=credits,
            schedule=Schedule(every_versions=1) if every_s is None else Schedule(every_s=every_s),
            stop=Stop(versions=10_000),
            seed=seed,
        )
        self.scene = Scene(*self.played, world, luck, self.tally)
        self.go_on(2)

    def go_on(self, num: int) -> None:
        for _ in range(num):
            if not self.scene.is_over:
                self.scene.turn()
                self.scene.check()

    # --- what clients do --------------------------------------------------------------------------

    @rule(luck=st.integers(0, 2**32), then=turns)
    def clients_answer(self, luck: int, then: int) -> None:
        """Most of those who run, each in its own time and with a fault of its own."""
        chance = Random(luck)
        for number in range(len(self.scene.hand.open)):
            fault = chance.choice([None, None, None, *Fault])
            if chance.random() < 0.8:
                self.scene.end("answer", number, chance.choice(SOON), fault)
        self.go_on(then)

    @rule(number=some, verb=st.sampled_from(["answer", "fail"]), after_s=soon, then=turns)
    def a_task_ends(self, number: int, verb: str, after_s: float, then: int) -> None:
        if self.scene.hand.open:
            self.scene.end(verb, number, after_s)
        self.go_on(then)

    @rule(number=some, verb=st.sampled_from(["join", "join", "leave"]), after_s=soon, then=turns)
    def a_client_comes_or_goes(self, number: int, verb: str, after_s: float, then: int) -> None:
        client = number % len(self.scene.world.latencies)
        self.scene.hand.plan(verb, client, after_s=after_s)
        self.go_on(then)

    @rule(verb=st.sampled_from(NONSENSE), client=anybody, back=st.integers(-2, 6), then=turns)
    def a_client_talks_nonsense(self, verb: str, client: int, back: int, then: int) -> None:
        """Of one of the last tasks, of one never sent, its own or another's."""
        if client != HONEST:
            self.scene.hand.plan(verb, client, self.scene.books.num_started - back)
        self.go_on(then)

    # --- what the server does ---------------------------------------------------------------------

    @rule(num=st.integers(1, 8))
    def time_passes(self, num: int) -> None:
        self.go_on(num)

    @rule()
    def goes_on_in_another_process(self) -> None:
        self.scene.take_up(self.scene.save())

    @rule()
    def is_saved(self) -> None:
        self.kept = self.scene.save()

    @precondition(lambda self: self.kept is not None)
    @rule()
    def is_killed_and_goes_on_from_what_was_saved(self) -> None:
        assert self.kept is not None
        self.scene.take_up(self.kept)

    @invariant()
    def the_laws_hold(self) -> None:
        if hasattr(self, "scene"):
            self.scene.check()

    def teardown(self) -> None:
        if hasattr(self, "scene"):
            if not self.scene.is_over:
                self.scene.progress()
            self.scene.finish()


# Hypothesis plays variations of a run after its first ten; we want others instead.
IN_ONE_GO = 10


def play(
    played: tuple[str, dict[str, Any]],
    number: int,
    num: int = IN_ONE_GO,
    tally: Tally | None = None,
    **more: Any,
) -> None:
    """So many scenarios of one protocol, others for every number."""
    members = {"played": played, "tally": tally or Tally()}
    machine = seed(SEED + number)(type("Played", (Mishaps,), members))
    chosen = settings(max_examples=num, stateful_step_count=40, deadline=None, **more)
    run_state_machine_as_test(machine, settings=chosen)

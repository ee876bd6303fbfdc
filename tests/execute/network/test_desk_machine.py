"""Clients that come, go and lie, a loop that is late and restarts: the desk's laws hold."""

from __future__ import annotations

from collections import Counter
from random import Random

from desks import FLAT, FakeLine, Honest, Loop, result
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from runs import task

from pisces.execute.network.messages import (
    Failure,
    Hello,
    Over,
)
from pisces.execute.network.server.desk import Desk
from pisces.execute.roster import Roster

NAMES = "abc"
LIES = ["enter", "result", "failure", "bye", "leave"]
which = st.integers(0, 9)


class Talk(RuleBasedStateMachine):
    """Words are under way between the loop and the desk, and between the desk and clients."""

    def __init__(self) -> None:
        super().__init__()
        self.roster = Roster()
        for name in NAMES:
            self.roster.number_of(name)
        self.loop = Loop(self.roster)
        self.clients = [Honest(name) for name in NAMES]
        self.liar = FakeLine()
        self.owners: dict[int, int] = {}  # of all tasks
        self.ends: Counter[int] = Counter()

    @property
    def desk(self) -> Desk:
        return self.loop.desk

    # --- clients ----------------------------------------------------------------------------------

    @rule(number=which)
    def connects(self, number: int) -> None:
        self.clients[number % 3].connect(self.desk)

    @rule(number=which)
    def is_cut_off(self, number: int) -> None:
        client = self.clients[number % 3]
        if client.line is not None and client.member is not None:
            self.desk.leave(client.member, client.line)
            client.line = None

    @rule(number=which, says_bye=st.booleans())
    def an_older_line_is_heard(self, number: int, says_bye: bool) -> None:
        """What was under way when its client came anew."""
        client = self.clients[number % 3]
        if client.old is not None and client.member is not None:
            for late in client.late:
                self.desk.arrive(client.member, result(late), FLAT)
            if says_bye:
                self.desk.bye(client.member, client.old)
            self.desk.leave(client.member, client.old)
            client.old, client.late = None, []

    @rule(number=which)
    def says_goodbye(self, number: int) -> None:
        client = self.clients[number % 3]
        if client.line is not None and client.member is not None:
            self.desk.bye(client.member, client.line)
            self.desk.leave(client.member, client.line)
            client.line = None

    @rule(number=which, deeds=st.lists(st.sampled_from(["listen", "finish", "send", "stop"])))
    def acts(self, number: int, deeds: list[str]) -> None:
        client = self.clients[number % 3]
        for deed in deeds:
            if deed == "finish":
                client.finish()
            elif client.line is not None:
                getattr(client, deed)(*([] if deed == "listen" else [self.desk]))

    @rule(task=which, deed=st.sampled_from(LIES))
    def a_liar_acts(self, task: int, deed: str) -> None:
        if deed == "enter" or self.liar.member is None:
            self.liar = FakeLine(self.desk)
            run, some = self.roster.run, (task, task, task + 1)
            hello = Hello(task + 1, "liar", run=run, holds=some, trains=some)
            self.liar.member = self.desk.enter("liar", hello, self.liar)
        elif deed == "result":
            self.desk.arrive(self.liar.member, result(task), FLAT)
        elif deed == "failure":
            self.desk.fail(self.liar.member, Failure(task, "ha"))
        elif deed == "bye":
            self.desk.bye(self.liar.member, self.liar)
        else:
            self.desk.leave(self.liar.member, self.liar)

    # --- time and the loop ------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.loop.service.pass_by(seconds)

    @rule()
    def the_loop_hears(self) -> None:
        for number in self.loop.hear():
            self.ends[number] += 1
            assert self.ends[number] == 1

    @rule()
    def the_loop_hands_out(self) -> None:
        for client in sorted(self.loop.present - {*self.loop.running.values()}):
            number = len(self.owners)
            self.owners[number] = client
            self.loop.executor.submit(task(number, client))

    @rule(number=which, verb=st.sampled_from(["cancel", "expire", "pull"]))
    def gives_up(self, number: int, verb: str) -> None:
        if running := sorted(self.loop.running):
            chosen = running[number % len(running)]
            if verb == "expire":
                self.loop.expire(chosen)
            else:
                getattr(self.loop.executor, verb)(chosen)
            self.ends[chosen] += verb == "cancel"

    @rule()
    def the_loop_writes_down(self) -> None:
        self.loop.acknowledge()

    @rule()
    def the_loop_sends(self) -> None:
        self.loop.executor.send()

    @rule()
    def the_desk_hears(self) -> None:
        self.loop.service.do_all()

    @rule()
    def the_server_restarts(self) -> None:
        """What was heard and not written down never happened; what was, is known."""
        for number in self.loop.unsafe:
            self.ends[number] -= 1
        self.loop = Loop(self.roster, self.loop.left(self.owners))
        for client in self.clients:
            client.line = client.old = None
        self.liar = FakeLine()

    @rule(luck=st.integers(0, 2**32), num=st.integers(1, 60))
    def much_happens(self, luck: int, num: int) -> None:
        """What hypothesis would seldom choose: long stories in which most things go on."""
        chance = Random(luck)
        for _ in range(num):
            self._happens(chance)
            self.when_nothing_is_under_way_both_know_the_same()
            self.nobody_is_taken_to_be_there_for_ever()
            self.what_is_forgotten_is_safe_or_not_wanted()

    def _happens(self, chance: Random) -> None:
        number = chance.randrange(3)
        deeds = ["listen", chance.choice(["finish", "listen"]), "send", "stop"]
        often = [
            *(self.the_loop_hears, self.the_loop_hands_out, self.the_loop_sends),
            *(self.the_desk_hears, self.the_loop_writes_down),
            lambda: self.acts(number, deeds[: chance.randint(1, 4)]),
        ]
        seldom = [
            *(lambda: self.connects(number), lambda: self.connects(number)),
            *(lambda: self.is_cut_off(number), lambda: self.says_goodbye(number)),
            lambda: self.an_older_line_is_heard(number, chance.random() < 0.5),
            lambda: self.time_passes(chance.choice([1.0, 30.0, 61.0])),
            lambda: self.gives_up(chance.randrange(9), chance.choice(["cancel", "expire", "pull"])),
            lambda: self.a_liar_acts(chance.randrange(30), chance.choice(LIES)),
        ]
        if chance.random() < 0.01:
            self.the_server_restarts()
        chance.choice(often if chance.random() < 0.6 else seldom)()

    # --- laws -------------------------------------------------------------------------------------

    @invariant()
    def when_nothing_is_under_way_both_know_the_same(self) -> None:
        if not self.loop.is_quiet:
            return
        members = self.desk.members.values()
        assert {m.number for m in members if m.is_present} == self.loop.present
        assert {n: g.client for n, g in self.desk.given.items()} == self.loop.running
        assert self.desk.unsafe.keys() == {*self.loop.unsafe}

    @invariant()
    def nobody_is_taken_to_be_there_for_ever(self) -> None:
        for member in self.desk.members.values():
            if member.is_present and member.line is None:
                assert member.leaving is not None
                assert not member.leaving.is_cancelled

    @invariant()
    def what_is_forgotten_is_safe_or_not_wanted(self) -> None:
        for client in self.clients:
            for number in client.forgot:
                assert number not in self.loop.running
                assert number not in self.loop.unsafe

    def teardown(self) -> None:
        """Who stays connected and answers is free and known to be there; nobody holds anything."""
        for client in self.clients:
            if client.line is None:
                client.connect(self.desk)
        for _ in range(6):
            self.the_loop_hears()
            self.the_loop_writes_down()
            self.the_loop_sends()
            self.the_desk_hears()
            for client in self.clients:
                client.listen()
                client.stop(self.desk)
                while client.at:
                    client.finish()
                client.send(self.desk)
        for number, client in enumerate(self.clients):
            assert number in self.loop.present, number
            assert number not in self.loop.running.values()
            assert client.held == []
        mine = {n: c for n, c in self.loop.running.items() if c < len(NAMES)}
        assert mine == {}
        assert not [n for n, g in self.desk.given.items() if g.client < len(NAMES)]
        self.desk.end(Over("done", again=False))
        for client in self.clients:
            client.listen()
            assert client.is_over


TestTalk = Talk.TestCase
TestTalk.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)

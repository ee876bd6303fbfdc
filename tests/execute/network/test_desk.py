"""The desk by itself, path by path."""

from __future__ import annotations

from typing import Any

import pytest
from desks import FLAT, FakeLine, desk, result
from runs import START, task

from pisces.execute.inbox import Landed
from pisces.execute.network.messages import (
    Acknowledged,
    CalledOff,
    Failure,
    Hello,
    Over,
    Pull,
    Welcome,
)
from pisces.execute.network.server.endings import TurnedAwayError
from pisces.execute.roster import Roster
from pisces.types import Failed, Joined, Layout, Left, Slice

JOINED, BYE = Joined(0.0, 0, 10), Left(0.0, 0, "said goodbye")
GONE = Left(0.0, 0, "did not come back")


def entered(at: Any, name: str = "a", **hello: Any) -> tuple[Any, FakeLine]:
    line = FakeLine(at)
    line.member = at.enter(name, Hello(10, name, run=at.roster.run, **hello), line)
    return line.member, line


def test_who_comes_is_welcome_and_the_loop_hears_so() -> None:
    at, told, _ = desk(beat_s=7.0)
    _, line = entered(at)
    assert told == [JOINED]
    assert line.said == [Welcome(0, at.roster.run, START.layout, beat_s=7.0)]


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (Hello(10, protocol=2), "it speaks version 2, and this server 1"),
        (Hello(0), "0 examples, outside 1"),
        (Hello(10**9), "1000000000 examples, outside 1"),
        (Hello(10, wished=10**7), "beyond the 10000000"),
    ],
)
def test_who_is_refused_leaves_no_trace(hello: Hello, why: str) -> None:
    at, told, _ = desk()
    with pytest.raises(TurnedAwayError, match=why):
        at.enter("a", hello, FakeLine())
    assert (told, at.members, at.roster.names) == ([], {}, {})


def test_a_refused_connection_does_not_replace_a_good_one() -> None:
    at, _, _ = desk()
    _, line = entered(at)
    with pytest.raises(TurnedAwayError):
        at.enter("a", Hello(0, "a"), FakeLine())
    assert line.replaced is None


def test_weights_of_float64_are_wanted_as_such() -> None:
    at, _, _ = desk()
    at.layout = Layout((Slice("w", (1,), "float64", "parameter", 0, 1),))
    _, line = entered(at)
    assert isinstance(line.said[0], Welcome)
    assert line.said[0].encoding == "float64"


def test_one_end_per_task() -> None:
    at, told, _ = desk()
    member, line = entered(at)
    at.give(task(5, 0))
    at.arrive(member, result(5), FLAT)
    assert isinstance(told[-1], Landed)
    del told[:]
    at.arrive(member, result(5), FLAT)
    assert at.fail(member, Failure(5, "")) is False
    at.call_off(5, "late")
    at.pull(5)
    assert told == []
    assert Acknowledged(5) not in line.take()  # it is not safe yet
    at.settle([5, 5, 99])
    assert line.take() == [Acknowledged(5)]
    at.arrive(member, result(5), FLAT)  # again: it is safe, and may be forgotten
    assert line.take() == [Acknowledged(5)]


def test_word_of_others_tasks_counts_for_nothing() -> None:
    at, told, _ = desk()
    entered(at)
    other, line = entered(at, "b")
    at.give(task(5, 0))
    del told[:]
    line.take()
    assert not at.fail(other, Failure(5, "ha"))
    at.arrive(other, result(5), FLAT)
    assert told == []
    assert 5 in at.given
    assert line.take() == [Acknowledged(5)]


def test_to_ask_changes_nothing() -> None:
    at, told, _ = desk()
    member, line = entered(at)
    at.give(task(5, 0))
    at.expire(5, 0, 1)
    line.said.clear()
    assert at.wants(member, 5) is None
    assert (told, line.said) == ([JOINED], [])
    at.decline(member, 5)
    assert (told, line.said) == ([JOINED, JOINED], [Acknowledged(5)])


def test_failures_say_why() -> None:
    at, told, _ = desk()
    member, _ = entered(at)
    at.give(task(5, 0))
    assert at.fail(member, Failure(5, ""))
    assert told[-1] == Failed(0.0, 0, "failed", 5)


def test_a_cut_a_goodbye_and_patience() -> None:
    at, told, timers = desk()
    member, line = entered(at)
    at.leave(member, line)
    timers.pass_by(59)
    member, line = entered(at)
    timers.pass_by(100)
    assert told == [JOINED]
    at.leave(member, line)
    timers.pass_by(60)
    assert told == [JOINED, GONE]
    member, line = entered(at)
    at.bye(member, line)
    at.bye(member, line)
    at.leave(member, line)
    timers.pass_by(100)
    assert told == [JOINED, GONE, JOINED, BYE]


def test_what_an_older_line_says_of_leaving_does_not_count() -> None:
    at, told, timers = desk()
    member, old = entered(at)
    member, _ = entered(at)
    assert old.replaced == "a newer connection has this name"
    at.bye(member, old)
    at.leave(member, old)
    timers.pass_by(100)
    assert told == [JOINED]


def test_overdue_until_heard_of() -> None:
    at, told, _ = desk()
    member, line = entered(at)
    at.give(task(5, 0))
    line.take()
    at.expire(5, 0, 1)
    assert line.take() == [CalledOff(5, "its deadline passed")]
    assert told == [JOINED]
    at.fail(member, Failure(4, "another"))
    assert told == [JOINED]
    at.fail(member, Failure(5, "called off"))
    assert told == [JOINED, JOINED]


def test_overdue_and_never_sent() -> None:
    at, told, _ = desk()
    _, line = entered(at)
    at.give(task(5, 0))
    at.expire(5, 0, 1)
    line.take()
    assert told == [JOINED, JOINED]


def test_overdue_while_its_result_is_on_its_way() -> None:
    at, told, _ = desk()
    member, _ = entered(at)
    at.give(task(5, 0))
    at.arrive(member, result(5), FLAT)
    at.expire(5, 0, 1)
    assert told[-1] == JOINED


def test_overdue_and_gone_meanwhile_is_not_there() -> None:
    at, told, timers = desk()
    member, line = entered(at)
    at.give(task(5, 0))
    at.arrive(member, result(5), FLAT)
    at.bye(member, line)
    at.leave(member, line)
    timers.pass_by(100)
    at.expire(5, 0, 1)
    assert told[-1] == BYE  # no Joined of somebody who is not there
    entered(at)
    assert told[-1] == JOINED


def test_overdue_and_come_anew_meanwhile_is_there() -> None:
    at, told, _ = desk()
    member, line = entered(at)
    at.give(task(5, 0))
    at.bye(member, line)
    member, line = entered(at)
    at.expire(5, 0, 1)  # said before the loop heard of the second join
    assert told == [JOINED, BYE, JOINED]
    assert member.is_present
    at.bye(member, line)
    assert told[-1] == BYE


def test_a_pull_is_for_who_is_at_it() -> None:
    at, _, _ = desk()
    _, line = entered(at)
    line.pulls = False
    at.give(task(5, 0))
    line.take()
    at.pull(5)
    at.pull(6)
    assert line.take() == []
    _, line = entered(at, trains=(5,))
    assert line.take()[1:] == [Pull(5)]
    at.call_off(5, "enough")
    assert at.pulled == set()


def test_goes_on_for_another_server() -> None:
    roster = Roster()
    for name in "ab":
        roster.number_of(name)
    at, told, timers = desk(roster)
    at.take_over([task(5, 0), task(6, 1)], [0, 1])
    _, line = entered(at, holds=(5, 4))
    assert isinstance(line.said[0], Welcome)
    assert (line.said[0].wanted, line.said[0].settled) == ((5,), (4,))
    assert line.expected == {5}
    timers.pass_by(60)
    assert told == [JOINED, Left(0.0, 1, "did not come back")]


def test_who_comes_after_the_end_hears_of_it() -> None:
    at, _, _ = desk()
    _, early = entered(at)
    over = Over("done", again=False)
    at.end(over)
    _, late = entered(at, "b")
    assert early.said[-1] == late.said[-1] == over


def test_a_client_overdue_since_before_a_restart_is_used_again() -> None:
    at, told, _ = desk()
    at.roster.number_of("a")
    at.take_over([task(5, 0)], [0])
    at.expire(5, 0, 0)
    member, _ = entered(at, trains=(5,))
    assert told == []  # it is at the task whose time is up
    at.fail(member, Failure(5, "called off"))
    assert told == [JOINED]


def test_who_comes_back_with_other_data_is_told_with_it() -> None:
    at, told, _ = desk()
    entered(at)
    line = FakeLine(at)
    at.enter("a", Hello(11, "a", run=at.roster.run), line)
    at.enter("a", Hello(11, "a", run=at.roster.run), FakeLine(at))
    assert told == [JOINED, Joined(0.0, 0, 11)]


def test_a_result_on_its_way_to_the_disk_is_neither_asked_for_nor_forgotten() -> None:
    at, _, _ = desk()
    member, _ = entered(at)
    at.give(task(0, 0))
    at.arrive(member, result(0), FLAT)
    _, line = entered(at, holds=(0,))
    assert (line.said[0].wanted, line.said[0].settled) == ((), ())
    at.settle([0])
    assert line.said[1:] == [Acknowledged(0)]
    _, later = entered(at, holds=(0,))
    assert (later.said[0].wanted, later.said[0].settled) == ((), (0,))


def test_results_and_tasks_of_another_run_are_not_this_ones() -> None:
    at, _, _ = desk()
    entered(at)
    at.give(task(0, 0))
    line = FakeLine(at)
    at.enter("a", Hello(10, "a", run="another", holds=(0,), trains=(0,)), line)
    assert (line.said[0].wanted, line.said[0].settled) == ((), ())
    assert [words.id for words in line.said[1:]] == [0]  # and it is sent this one's


def test_who_fails_again_and_again_is_told_of_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at, _, _ = desk()
    member, _ = entered(at)

    def fail(times: int) -> None:
        for number in range(times):
            at.give(task(number, 0))
            at.fail(member, Failure(number, "no such column: age"))

    fail(4)
    assert caplog.messages == []
    fail(46)
    assert [message[:30] for message in caplog.messages] == [
        "client 0: 5 tasks failed in a ",
        "client 0: 50 tasks failed in a",
    ]
    at.give(task(0, 0))
    at.arrive(member, result(0), FLAT)
    fail(5)
    assert len(caplog.messages) == 3

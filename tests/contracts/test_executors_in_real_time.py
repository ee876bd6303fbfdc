"""What holds of every executor in real time: add yours to the table in `sites` and it is held to
all of it.

A row is three clients that answer within moments; nobody can ask what happens at 1.0 s, so these
tests ask what happens, in which order, how often, and to whom.
"""

from __future__ import annotations

import math
import threading
import time

import pytest
from runs import START, implementations, task, through_json
from sites import HAS_FLOWER, NUM_EXAMPLES, SITES, Site, site

import pisces.execute
from pisces.execute.base import Handover
from pisces.execute.realtime import RealTime
from pisces.types import Arrived, Event, Failed, Joined, Left

every_executor = pytest.mark.parametrize("name", SITES)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower is asked who is there every few seconds; nobody here has the time."""
    if HAS_FLOWER:
        from pisces.execute.flower import courier, nodes

        monkeypatch.setattr(courier, "LOOK_S", 0.05)
        monkeypatch.setattr(courier, "QUICKEST_S", 0.005)
        monkeypatch.setattr(nodes, "REST_S", 0.2)


def ends(events: list[Event]) -> list[Event]:
    """But news of who is there and how many examples it has."""
    return [event for event in events if not isinstance(event, Joined)]


def ended(there: Site, *tasks: int) -> dict[int, Event]:
    """How each of these ended; fails if one did twice, or another did."""
    found: dict[int, Event] = {}
    events = there.until(lambda events: len(ends(events)) >= len(tasks))
    for event in ends([*events, *there.silence(0.1)]):
        assert event.task_id not in found, event
        found[event.task_id] = event
    assert sorted(found) == sorted(tasks)
    return found


def test_every_executor_in_real_time_has_a_row() -> None:
    found = {
        kind for kind in implementations(pisces.execute, "submit") if issubclass(kind, RealTime)
    }
    rows = set()
    for name in SITES:
        with site(name) as there:
            rows.add(type(there.executor))
    assert found - {RealTime} == rows


@every_executor
def test_can_be_kept_and_never_falls_quiet(name: str) -> None:
    with site(name) as there:
        assert there.executor.capabilities.real_time
        assert there.executor.capabilities.takes_over
        assert not there.executor.quiet
        there.begun()
        assert not there.executor.quiet


@every_executor
def test_clients_join_at_the_start(name: str) -> None:
    with site(name) as there:
        assert there.executor.now == 0.0
        joined = there.begun()
        assert sorted(event.client for event in joined) == [0, 1, 2]
        assert {(type(event), event.at) for event in joined} == {(Joined, 0.0)}
        assert there.executor.now == 0.0


@every_executor
def test_time_begins_when_there_are_enough(name: str) -> None:
    with site(name, at_least=2) as there:
        there.clients.come(0)
        later = threading.Timer(0.3, there.clients.come, (1,))
        later.start()
        began = time.monotonic()
        assert {event.client for event in there.executor.wait(math.inf)} == {0, 1}
        assert time.monotonic() - began >= 0.2
        assert there.executor.now == 0.0
        later.join()  # it may be seen before it has wholly come


@every_executor
def test_waits_until_then_and_no_longer(name: str) -> None:
    with site(name) as there:
        there.begun()
        until = there.executor.now + 0.1
        assert there.executor.wait(until) == []
        assert there.executor.now == until


@every_executor
def test_time_never_runs_backwards(name: str) -> None:
    with site(name) as there:
        there.begun()
        there.executor.wait(0.1)
        there.executor.wait(0.05)
        now = there.executor.now
        assert now >= 0.1
        there.executor.submit(task(0, 0))
        for event in there.heard():
            assert now < event.at <= there.executor.now


@every_executor
def test_all_of_one_wait_is_of_one_instant(name: str) -> None:
    with site(name) as there:
        there.begun()
        instants = [there.executor.now]
        for number in range(9):
            there.executor.submit(task(number, number % 3))
            if number % 3 == 2:
                seen = 0
                while seen < 3:
                    events = there.executor.wait(math.inf)
                    assert {event.at for event in events} == {there.executor.now}
                    instants.append(there.executor.now)
                    seen += len(ends(events))
        assert instants == sorted(set(instants))  # none comes twice


@every_executor
def test_every_task_ends_once(name: str) -> None:
    with site(name) as there:
        there.begun()
        for client in range(3):
            there.executor.submit(task(client, client))
        found = ended(there, 0, 1, 2)
        assert {type(event) for event in found.values()} == {Arrived}


@every_executor
def test_the_result_is_the_tasks_own(name: str) -> None:
    with site(name) as there:
        there.begun()
        for number, client in ((7, 1), (8, 2)):
            there.executor.submit(task(number, client, version=3))
        found = ended(there, 7, 8)
        for number, client in ((7, 1), (8, 2)):
            event = found[number]
            assert isinstance(event, Arrived)
            assert event.client == client
            assert event.weights.layout.size == START.layout.size
            assert event.weights.flat.equal(START.flat + (client + 1) / 8)
            assert (event.report.num_examples, event.report.loss) == (NUM_EXAMPLES, 1.0)


@every_executor
def test_who_tells_of_more_examples_was_said_to_have_them(name: str) -> None:
    # Else the update would be refused: more than it joined with.
    with site(name) as there:
        sizes = {event.client: event.num_examples for event in there.begun()}
        for client in range(3):
            there.executor.submit(task(client, client))
        for event in there.until(lambda events: len(ends(events)) == 3):
            if isinstance(event, Joined):
                sizes[event.client] = event.num_examples
            else:
                assert event.report.num_examples <= sizes[event.client]


@every_executor
def test_nothing_goes_out_before_it_is_sent(name: str) -> None:
    with site(name) as there:
        there.begun()
        there.executor.submit(task(0, 0))
        time.sleep(0.3)
        assert not there.executor._inbox  # nobody could have answered
        for _ in range(3):
            there.executor.send()
        assert isinstance(ended(there, 0)[0], Arrived)  # once


@every_executor
def test_a_client_can_be_asked_again(name: str) -> None:
    with site(name) as there:
        there.begun()
        for number in range(5):
            there.executor.submit(task(number, 0, version=number))
            assert isinstance(ended(there, number)[number], Arrived)


@every_executor
def test_a_task_that_fails_leaves_its_client_there(name: str) -> None:
    with site(name) as there:
        there.begun()
        there.clients.does[1] = "fail"
        there.executor.submit(task(0, 1))
        failed = ended(there, 0)[0]
        assert isinstance(failed, Failed)
        assert failed.client == 1
        assert "it raised" in failed.reason
        there.clients.does[1] = "answer"
        there.executor.submit(task(1, 1))
        assert isinstance(ended(there, 1)[1], Arrived)


@every_executor
def test_a_deadline_that_passes_takes_the_client_away(name: str) -> None:
    with site(name) as there:
        there.begun()
        there.clients.does[0] = "nothing"
        there.executor.submit(task(0, 0, deadline_s=0.3))
        there.executor.submit(task(1, 1, deadline_s=60.0))
        found = ended(there, 0, 1)
        assert isinstance(found[1], Arrived)
        assert found[0] == Left(found[0].at, 0, "deadline passed", 0)
        assert found[0].at >= 0.3


@every_executor
def test_who_leaves_takes_its_task_along_and_comes_back_as_who_it_was(name: str) -> None:
    with site(name) as there:
        there.begun()
        there.clients.does[2] = "nothing"
        there.executor.submit(task(0, 2))
        there.executor.send()
        time.sleep(0.1)
        there.clients.leave(2)
        left = ended(there, 0)[0]
        assert isinstance(left, Left)
        assert (left.client, left.task_id) == (2, 0)
        there.clients.does[2] = "answer"
        there.clients.come(2)
        there.until(lambda events: any(isinstance(e, Joined) and e.client == 2 for e in events))
        there.executor.submit(task(1, 2))
        assert isinstance(ended(there, 1)[1], Arrived)


@every_executor
def test_who_leaves_with_nothing_to_do_is_said_to(name: str) -> None:
    with site(name) as there:
        there.begun()
        there.clients.leave(1)
        [left] = there.heard()
        assert isinstance(left, Left)
        assert (left.client, left.task_id) == (1, None)


@every_executor
def test_somebody_may_come_later(name: str) -> None:
    with site(name, at_least=1) as there:
        there.begun(1)
        there.clients.come(1)
        [joined] = there.heard()
        assert isinstance(joined, Joined)
        assert joined.client == 1
        assert joined.at > 0.0
        there.executor.submit(task(0, 1))
        ended(there, 0)


@every_executor
def test_a_cancelled_task_gives_no_event_and_frees_its_client(name: str) -> None:
    with site(name) as there:
        if not there.executor.capabilities.cancels:
            pytest.skip("it cannot call tasks off")
        there.begun()
        there.clients.does[0] = "nothing"
        there.executor.submit(task(0, 0))
        there.executor.send()
        there.executor.cancel(0)
        there.clients.does[0] = "answer"
        there.executor.submit(task(1, 0))
        assert isinstance(ended(there, 1)[1], Arrived)


@every_executor
def test_what_ended_can_be_cancelled_and_pulled_in_vain(name: str) -> None:
    with site(name) as there:
        there.begun()
        there.executor.submit(task(0, 0))
        ended(there, 0)
        there.executor.cancel(0)
        there.executor.pull(0)
        there.executor.send()
        assert there.silence() == []
        there.executor.submit(task(1, 0))
        ended(there, 1)


@every_executor
def test_state_is_a_snapshot(name: str) -> None:
    with site(name) as there:
        there.begun()
        there.executor.submit(task(0, 0))
        before = through_json(there.executor.state()).values
        assert through_json(there.executor.state()).values == before
        there.executor.restore(through_json(there.executor.state()))
        assert isinstance(ended(there, 0)[0], Arrived)


@every_executor
def test_what_another_process_began_ends_once(name: str) -> None:
    # Client 1 never heard of its task, 0 is there, and 2 did not come back.
    with site(name) as there:
        roster = there.executor._roster
        if name == "network":
            for client in range(3):
                roster.number_of(f"client-{client}")
        else:
            for client in range(3):
                there.clients.come(client)
            there.clients.leave(2)
        running = ((task(7, 1), 4.5), (task(8, 2), 4.5))
        there.executor.take_over(Handover(5.0, running, (0, 1, 2)))
        assert there.executor.now == 5.0
        if name == "network":
            for client in range(2):
                there.clients.come(client)
        found = ended(there, 7, 8)
        assert isinstance(found[7], Arrived)
        assert isinstance(found[8], Left)
        assert all(event.at > 5.0 for event in found.values())
        there.executor.submit(task(9, 0))
        ended(there, 9)


@every_executor
def test_a_deadline_counts_from_when_the_other_process_began(name: str) -> None:
    with site(name) as there:
        there.clients.does[0] = "nothing"
        if name == "network":
            there.executor._roster.number_of("client-0")
        else:
            there.clients.come(0)
        running = ((task(7, 0, deadline_s=1.2), 4.0),)
        there.executor.take_over(Handover(5.0, running, (0,)))
        left = ended(there, 7)[7]
        assert left == Left(left.at, 0, "deadline passed", 7)
        assert 5.2 <= left.at < 6.2  # not a whole 1.2 s


@every_executor
def test_word_that_all_is_written_down_is_taken_at_any_time(name: str) -> None:
    with site(name) as there:
        there.begun()
        there.executor.acknowledge()
        there.executor.submit(task(0, 0))
        there.executor.acknowledge()
        ended(there, 0)
        there.executor.acknowledge([0])
        there.executor.acknowledge()
        there.executor.send()


@every_executor
def test_can_be_broken_off_only_while_it_listens(name: str) -> None:
    with site(name) as there:
        there.begun()
        seen: list[bool] = []
        bell = there.executor._inbox._bell

        class Bell:
            def get(self, timeout: float) -> None:
                seen.append(there.executor.interruptible)
                raise KeyboardInterrupt

        assert not there.executor.interruptible
        there.executor._inbox._bell = Bell()
        there.executor.submit(task(0, 0))
        with pytest.raises(KeyboardInterrupt):
            there.executor.wait(math.inf)
        assert seen == [True]
        assert not there.executor.interruptible
        there.executor._inbox._bell = bell
        assert isinstance(ended(there, 0)[0], Arrived)  # nothing was lost


@pytest.mark.parametrize("for_good", [True, False])
@every_executor
def test_can_be_closed_at_any_time_and_twice(name: str, for_good: bool) -> None:
    with site(name) as there:
        there.begun()
        there.executor.submit(task(0, 0))
        if for_good:
            there.executor.dismiss()
        there.executor.close()
        there.executor.close()
    with site(name) as there:
        there.executor.close()  # before anything happened


@every_executor
def test_nothing_piles_up(name: str) -> None:
    with site(name) as there:
        there.begun()
        for number in range(150):
            there.executor.submit(task(number, number % 3, version=number, deadline_s=1e6))
            there.until(lambda events: bool(ends(events)))
            there.executor.acknowledge()
        there.executor.send()
        time.sleep(0.2)
        executor = there.executor
        assert len(executor._due) <= 103
        assert executor._inbox._bell.qsize() <= 1
        for pile in (executor._running, executor._inbox, executor._handed_out, executor._unsaid):
            assert not pile

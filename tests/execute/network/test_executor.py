"""The executor's contract over a real network, on this machine."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from networks import Network, flat, network
from runs import START, task

from pisces.execute.network.messages import (
    Acknowledged,
    Beat,
    Bye,
    CalledOff,
    Failure,
    Pull,
)
from pisces.types import Arrived, Failed, Joined, Left


def test_begins_with_clients_enough_and_so_does_time() -> None:
    with network(at_least=2) as net:
        net.executor.open()
        net.joined("a")
        time.sleep(0.05)
        assert net.executor.now == 0.0
        net.joined("b", num_examples=7)
        assert net.executor.wait(0.0) == [Joined(0.0, 0, 10), Joined(0.0, 1, 7)]
        assert net.executor.now == 0.0
        assert net.executor.capabilities.real_time
        assert not net.executor.quiet


def test_who_left_again_is_not_enough() -> None:
    with network(at_least=2) as net:
        net.executor.open()
        [gone] = net.joined("a")
        gone.say(Bye())
        net.becomes(lambda: len(net.executor._inbox) == 2)
        net.joined("b")
        net.becomes(lambda: len(net.executor._inbox) == 3)
        assert net.executor._inbox.num_present == 1
        net.joined("c")
        assert [type(event) for event in net.executor.wait(0.0)] == [Joined, Left, Joined, Joined]


def test_waits_until_then_and_no_longer() -> None:
    with network() as net:
        net.begun("a")
        until = net.executor.now + 0.1
        assert net.executor.wait(until) == []
        assert net.executor.now == until
        assert net.executor.wait(until / 2) == []
        assert net.executor.now >= until


def test_a_task_there_and_its_result_back() -> None:
    with network() as net:
        [client] = net.begun("a")
        asked = replace(task(7, 0, version=3, seed=5, deadline_s=60.0), weights=START)
        net.executor.submit(asked)
        assert client.is_silent()  # nothing goes out before it may
        net.executor.send()
        order = client.order()
        assert (order.task, order.version, order.plan, order.seed) == (7, 3, asked.plan, 5)
        assert client.weights[3].tolist() == flat(START)
        client.answer(order, 0.5)
        [event] = net.heard()
        assert isinstance(event, Arrived)
        assert (event.task_id, event.client, event.at) == (7, 0, net.executor.now)
        assert flat(event.weights) == [0.5, 0.5, 0.5, 1.5]
        assert (event.report.num_examples, event.report.loss) == (10, 1.0)


def test_results_are_safe_when_that_was_said_and_sent() -> None:
    with network() as net:
        [client] = net.begun("a")
        net.executor.submit(task(0, 0))
        net.executor.send()
        client.answer(client.order())
        net.heard()
        net.executor.send()
        assert client.is_silent()
        net.executor.acknowledge()
        assert client.is_silent()
        net.executor.send()
        assert client.expect(Acknowledged) == Acknowledged(0)
        net.executor.acknowledge()
        net.executor.send()
        assert client.is_silent()  # once


def test_weights_are_sent_once_per_version_and_connection() -> None:
    with network() as net:
        [client] = net.begun("a")
        for number, version in enumerate((1, 1, 2, 2)):
            net.executor.submit(task(number, 0, version=version))
            net.executor.send()
            client.answer(client.order(), version)
            net.heard()
        assert client.num_contents == 2
        client.hang_up()
        [client] = net.joined("a")
        net.executor.submit(task(9, 0, version=2))
        net.executor.send()
        client.order()
        assert client.num_contents == 1


def test_weights_are_sent_again_to_whom_they_failed() -> None:
    with network() as net:
        [client] = net.begun("a")
        for number in range(2):
            net.executor.submit(task(number, 0))
            net.executor.send()
            client.say(Failure(client.order().task, "I lost them"))
            assert net.heard() == [Failed(net.executor.now, 0, "I lost them", number)]
        assert client.num_contents == 2


def test_a_second_result_is_refused_and_the_first_counts() -> None:
    with network() as net:
        [client] = net.begun("a")
        net.executor.submit(task(0, 0))
        net.executor.send()
        result = client.result(client.order())
        client.say(*result)
        net.heard()
        client.hang_up()
        [again] = net.joined("a")
        again.hang_up()
        client = net.raw("a")
        welcome = client.join(run=_run(net), holds=(0,))
        assert (welcome.wanted, welcome.settled) == ((), ())  # here, and not safe yet
        net.executor.acknowledge()
        net.executor.send()
        assert client.expect(Acknowledged) == Acknowledged(0)
        net.nothing_heard()
        client.say(*result)
        assert client.ended().code.name == "INVALID_ARGUMENT"
        net.nothing_heard()


def _run(net: Network) -> str:
    return net.executor._roster.run


def test_a_result_that_was_held_is_wanted_or_settled() -> None:
    with network() as net:
        [client] = net.begun("a")
        net.executor.submit(task(4, 0))
        net.executor.send()
        order = client.order()
        result = client.result(order)
        client.hang_up()
        client = net.raw("a")
        welcome = client.join(run=_run(net), holds=(3, 4, 4))
        assert (welcome.wanted, welcome.settled) == ((4,), (3,))
        assert client.is_silent()  # nobody has to do again what is done
        client.say(*result)
        assert isinstance(net.heard()[0], Arrived)
        net.executor.acknowledge()
        net.executor.send()
        assert client.expect(Acknowledged) == Acknowledged(4)


def test_results_of_another_run_are_left_alone() -> None:
    with network() as net:
        [client] = net.begun("a")
        net.executor.submit(task(4, 0))
        net.executor.send()
        client.order()
        client.hang_up()
        client = net.raw("a")
        welcome = client.join(run="another", holds=(4,), trains=(4,))
        assert (welcome.wanted, welcome.settled) == ((), ())
        assert client.order().task == 4


def test_who_trains_goes_on_after_a_cut_and_others_are_reminded() -> None:
    with network() as net:
        training, forgetful = net.begun("a", "b")
        for number in range(2):
            net.executor.submit(task(number, number))
        net.executor.send()
        order = training.order()
        result = training.result(order)
        forgetful.order()
        for client in (training, forgetful):
            client.hang_up()
        training, forgetful = net.raw("a"), net.raw("b")
        training.join(run=_run(net), trains=(0,))
        forgetful.join(run=_run(net))
        assert training.is_silent()
        forgetful.answer(forgetful.order())
        training.say(*result)
        assert {e.task_id for e in net.heard(2) if isinstance(e, Arrived)} == {0, 1}


def test_a_cut_is_forgiven_for_a_while_and_no_longer() -> None:
    with network(patience_s=0.3) as net:
        [client] = net.begun("a")
        net.executor.submit(task(0, 0))
        net.executor.send()
        client.order()
        client.hang_up()
        net.nothing_heard(0.1)
        [client] = net.joined("a")
        assert client.order().task == 0
        net.nothing_heard(0.4)
        client.hang_up()
        assert net.heard() == [Left(net.executor.now, 0, "did not come back", 0)]
        net.executor.send()
        [client] = net.joined("a")
        assert net.heard() == [Joined(net.executor.now, 0, 10)]
        assert client.is_silent()


def test_goodbye_is_for_now_and_what_was_sent_before_counts() -> None:
    with network() as net:
        [client] = net.begun("a")
        net.executor.submit(task(0, 0))
        net.executor.send()
        client.answer(client.order())
        client.say(Bye())
        arrived, left = net.heard(2)
        assert isinstance(arrived, Arrived)
        assert left == Left(left.at, 0, "said goodbye")
        net.executor.acknowledge()
        net.executor.send()
        assert client.expect(Acknowledged) == Acknowledged(0)
        client.stop_talking()
        assert client.ended().code.name == "OK"
        net.joined("a")
        assert net.heard() == [Joined(net.executor.now, 0, 10)]


def test_who_says_goodbye_and_stays_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisces.execute.network.server.session.GOODBYE_S", 0.1)
    with network() as net:
        [client] = net.begun("a")
        client.say(Bye(), Bye())
        assert len(net.heard()) == 1
        assert client.ended().code.name == "OK"
        net.becomes(lambda: net.stats.num_connected == 0)
        net.nothing_heard()


def test_a_deadline_frees_the_server_and_its_client_when_that_answers() -> None:
    with network() as net:
        quick, late = net.begun("a", "b")
        net.executor.submit(task(0, 1, deadline_s=0.2))
        net.executor.send()
        late.order()
        [left] = net.heard()
        assert left == Left(net.executor.now, 1, "deadline passed", 0)
        net.executor.send()
        assert late.expect(CalledOff) == CalledOff(0, "its deadline passed")
        net.nothing_heard()  # it may still be at it
        late.say(Failure(0, "called off"))
        assert net.heard() == [Joined(net.executor.now, 1, 10)]
        net.executor.submit(task(1, 1))
        net.executor.send()
        late.answer(late.order())
        assert isinstance(net.heard()[0], Arrived)
        assert quick.is_silent()


def test_who_is_late_may_also_answer_with_what_it_has() -> None:
    with network() as net:
        [late] = net.begun("a")
        net.executor.submit(task(0, 0, deadline_s=0.1))
        net.executor.send()
        result = late.result(late.order())
        net.heard()
        net.executor.send()
        late.expect(CalledOff)
        late.say(*result)
        assert net.heard() == [Joined(net.executor.now, 0, 10)]
        assert late.expect(Acknowledged) == Acknowledged(0)  # it is not wanted any more


def test_who_is_late_may_also_come_anew() -> None:
    with network() as net:
        [late] = net.begun("a")
        net.executor.submit(task(0, 0, deadline_s=0.1))
        net.executor.send()
        late.order()
        net.heard()
        net.executor.send()
        late.hang_up()
        late = net.raw("a")
        late.join(run=_run(net), trains=(0,))
        assert late.expect(CalledOff) == CalledOff(0, "it ended without you")
        net.nothing_heard()
        late.hang_up()
        late = net.raw("a")
        late.join(run=_run(net))
        assert net.heard() == [Joined(net.executor.now, 0, 10)]


def test_an_order_that_was_never_sent_makes_nobody_wait() -> None:
    with network() as net:
        [client] = net.begun("a")
        net.executor.submit(task(0, 0, deadline_s=0.0))
        [left] = net.executor._expired()
        assert isinstance(left, Left)
        net.executor.send()  # given and called off in one go
        assert client.expect(CalledOff) == CalledOff(0, "its deadline passed")
        assert net.heard() == [Joined(net.executor.now, 0, 10)]


def test_a_cancelled_task_gives_no_event() -> None:
    with network() as net:
        [client] = net.begun("a")
        net.executor.submit(task(0, 0))
        net.executor.send()
        order = client.order()
        net.executor.cancel(0)
        net.executor.cancel(0)
        net.executor.cancel(99)
        net.executor.send()
        assert client.expect(CalledOff) == CalledOff(0, "called off")
        net.executor.submit(task(1, 0))
        net.executor.send()
        client.say(Failure(0, "called off"))
        client.answer(client.order())
        [event] = net.heard()
        assert isinstance(event, Arrived)
        assert event.task_id == 1
        assert order.task == 0


def test_a_result_that_crosses_with_its_cancellation_is_not_handed_out() -> None:
    with network() as net:
        [client] = net.begun("a")
        net.executor.submit(task(0, 0))
        net.executor.send()
        client.answer(client.order())
        net.becomes(lambda: len(net.executor._inbox) == 1)
        net.executor.cancel(0)
        net.executor.send()
        net.nothing_heard()
        net.executor.send()
        assert client.expect(Acknowledged) == Acknowledged(0)


def test_who_says_that_it_stopped_what_it_had_sent_is_not_refused() -> None:
    with network() as net:
        [client] = net.begun("a")
        net.executor.submit(task(0, 0))
        net.executor.send()
        order = client.order()
        net.executor.cancel(0)
        net.executor.send()
        client.answer(order)  # before it hears of that
        assert client.expect(CalledOff) == CalledOff(0, "called off")
        client.say(Failure(0, "called off"))
        assert client.expect(Acknowledged) == Acknowledged(0)
        net.executor.submit(task(1, 0))
        net.executor.send()
        client.answer(client.order())
        assert isinstance(net.heard()[0], Arrived)


def test_a_pull_reaches_who_can_hand_in() -> None:
    with network() as net:
        net.executor.open()
        can, cannot = net.raw("a"), net.raw("b")
        can.join(pulls=True)
        cannot.join()
        net.heard(2)
        for number in range(2):
            net.executor.submit(task(number, number))
        net.executor.send()
        order = can.order()
        cannot.order()
        for number in (0, 1, 99):
            net.executor.pull(number)
        net.executor.send()
        assert can.expect(Pull) == Pull(0)
        assert cannot.is_silent()
        can.hang_up()
        can = net.raw("a")
        can.weights[0] = cannot.weights[0]
        can.join(pulls=True, run=_run(net), trains=(0,))
        assert can.expect(Pull) == Pull(0)  # the wish may have been lost with the line
        can.answer(order)
        assert isinstance(net.heard()[0], Arrived)


def test_a_newer_connection_of_a_name_replaces_the_older() -> None:
    with network() as net:
        [old] = net.begun("a")
        net.executor.submit(task(0, 0))
        net.executor.send()
        old.order()
        [new] = net.joined("a")
        ended = old.ended()
        assert (ended.code.name, ended.details) == ("ABORTED", "a newer connection has this name")
        new.answer(new.order())
        assert isinstance(net.heard()[0], Arrived)
        assert net.stats.num_connected == 1
        net.nothing_heard()


def test_another_size_is_news() -> None:
    with network() as net:
        net.begun("a")
        net.raw("a").join(10)
        net.nothing_heard()
        net.raw("a").join(11)
        assert net.heard() == [Joined(net.executor.now, 0, 11)]


def test_nobody_was_silent_while_the_server_did_not_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pisces.execute.network.server.service.ROUND_S", 0.5)
    listens = threading.Event()
    with network(beat_s=0.4) as net:  # 1.2 s are silence
        [client] = net.begun("a")
        net.executor._service.post(lambda: time.sleep(2.0), listens.set)
        listens.wait()
        client.say(Beat())
        assert isinstance(client.hear(), Beat)


def test_beats_are_answered_and_silence_is_not_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisces.execute.network.server.service.ROUND_S", 0.05)
    with network(beat_s=0.2, patience_s=0.1) as net:
        beating, silent = net.begun("a", "b")
        for _ in range(8):
            beating.say(Beat())
            assert isinstance(beating.hear(), Beat)
            time.sleep(0.1)
        assert silent.ended().details == "nothing was heard of it"
        assert net.heard() == [Left(net.executor.now, 1, "did not come back")]
        assert net.stats.refused == {"silent": 1}

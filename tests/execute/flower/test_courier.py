"""What is said to Flower and heard of it, turn by turn, on a clock that stands still."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity
from postbox import Postbox, record, reply

from pisces.errors import ConfigError
from pisces.execute.flower import courier as module
from pisces.execute.flower.arrays import Arrays
from pisces.execute.flower.courier import LOOK_S, NODE_GONE, TOO_LATE, Courier, Told
from pisces.execute.flower.letters import Letters
from pisces.execute.flower.nodes import REST_S
from pisces.execute.flower.replies import Metrics
from pisces.execute.flower.sizes import Sizes
from pisces.execute.inbox import Broken, Said
from pisces.execute.roster import Roster
from pisces.types import Failed, Joined, Left, Plan, Task, Weights

ARRAYS, WEIGHTS = Arrays.of(record(w=[[1.0, 2.0]], n=np.array(3, np.int64)), None)
A, B, C = 111, 222, 333  # nodes


class Desk:
    """A courier whose clock is set by hand, and all that it told."""

    def __init__(self, *nodes: int, most: int = 100, **letters: Any) -> None:
        # Flower's own: without a run and a sender no message can be written.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.grid, self.now, self.said = Postbox(*nodes), 0.0, list[Said]()
        self.roster = Roster(max_clients=most)
        self.courier = Courier(
            self.grid,
            ARRAYS,
            self.roster,
            self.said.append,
            letters=Letters(**letters),
            metrics=Metrics(),
            sizes=Sizes(),
            clock=lambda: self.now,
        )

    def turn(self, after_s: float = 0.0) -> list[Said]:
        """What is told in a turn that comes so much later."""
        self.now += after_s
        self.courier.turn()
        said, self.said[:] = self.said[:], []
        return said

    def given(self, *clients: int, **how: Any) -> None:
        """All that are there were seen, and these have a task of their own number."""
        self.turn(LOOK_S)
        for client in clients:
            self.courier.give(task(client, client, **how))


def task(number: int, client: int, version: int = 0, **how: Any) -> Task:
    weights = Weights(WEIGHTS.flat + version, WEIGHTS.layout)
    return Task(number, client, version, weights, how.pop("plan", Plan()), 0, **how)


# --- a task there, and its reply back -------------------------------------------------------------


def test_a_task_is_put_as_flowers_own_strategies_do() -> None:
    desk = Desk(A, B, settings={"lr": 0.1, "server-round": 99})
    desk.given(1, version=4, deadline_s=60.0, plan=Plan(proximal=0.5, max_steps=3))
    [letter] = desk.grid.sent
    assert letter.metadata.dst_node_id == B
    assert letter.metadata.message_type == "train"
    assert letter.metadata.ttl == 60.0
    assert letter.metadata.group_id == "5"
    [arrays] = letter.content.array_records.values()
    assert {name: array.numpy().tolist() for name, array in arrays.items()} == {
        "w": [[5.0, 6.0]],
        "n": 3,
    }
    told = {"lr": 0.1, "server-round": 5, "proximal-mu": 0.5, "max-steps": 3}
    assert dict(letter.content["config"]) == told


def test_names_of_records_are_the_apps() -> None:
    desk = Desk(A, arrays="model", config="settings")
    desk.given(0)
    [letter] = desk.grid.sent
    assert [*letter.content] == ["model", "settings"]
    assert dict(letter.content["settings"]) == {"server-round": 1}  # a plan says nothing by itself


def test_a_reply_is_told_once() -> None:
    desk = Desk(A)
    assert desk.turn() == [Joined(0.0, 0, 1)]
    desk.courier.give(task(7, 0))
    desk.grid.answer(by=0.5)
    joined, landed = desk.turn(0.1)
    assert joined == Joined(0.0, 0, 10)  # before the result: it tells of more examples than guessed
    assert isinstance(landed, Told)
    assert (landed.task, landed.client, landed.flat.tolist()) == (7, 0, [1.5, 2.5])
    assert (landed.report.num_examples, landed.report.loss) == (10, 1.5)
    assert landed.record["train_loss"] == 1.5
    assert desk.turn(10.0) == []
    assert desk.grid.num_pulls == 1  # nobody is waited for any more


def test_one_record_is_made_for_all_tasks_of_a_version() -> None:
    desk = Desk(A, B, C)
    desk.given(0, 1)
    desk.courier.give(task(2, 2, version=1))
    first, second, third = (letter.content["arrays"] for letter in desk.grid.sent)
    assert first is second
    assert third["w"].numpy().tolist() == [[2.0, 3.0]]


def test_those_that_nobody_waits_for_are_no_news() -> None:
    desk = Desk(A, B)
    desk.given(0)
    letter = desk.grid.sent[0]
    stranger = Message(reply(letter), reply_to=letter)
    stranger.metadata.__dict__["_src_node_id"] = B  # another node's
    made_up = Message(reply(letter), reply_to=letter)
    made_up.metadata.__dict__["_reply_to_message_id"] = "never sent"
    for odd in (stranger, made_up):
        desk.grid.put(letter, odd)
    assert desk.turn(0.1) == []
    desk.grid.answer()
    desk.grid.answer(by=5.0)  # the second of two
    *_, landed = desk.turn(0.1)
    assert landed.flat.tolist() == [2.0, 3.0]


def test_what_was_called_off_is_not_asked_for() -> None:
    desk = Desk(A)
    desk.given(0)
    desk.courier.call_off(0, "why not")
    desk.grid.answer()
    assert desk.turn(10.0) == []
    assert desk.grid.num_pulls == 0


# --- what is wrong with a reply -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"metrics": {"loss": 1.0}}, "no metric 'num-examples'"),
        ({"metrics": {"num-examples": float("nan")}}, "num-examples is nan, not a whole number"),
        ({"arrays": record(w=[[1.0, 2.0]])}, "no array 'n'"),
        ({"arrays": record(w=[1.0, 2.0], n=np.array(3))}, "w: of shape (2,), not (1, 2)"),
    ],
)
def test_what_cannot_be_used_fails_its_task_alone(told: dict[str, Any], says: str) -> None:
    desk = Desk(A, B)
    desk.given(0, 1)
    desk.grid.answer(0, **told)
    desk.grid.answer(1)
    failed, *_, landed = desk.turn(0.1)
    assert isinstance(failed, Failed)
    assert (failed.client, failed.task_id) == (0, 0)
    assert failed.reason.startswith("its reply cannot be used: ")
    assert says in failed.reason
    assert landed.client == 1


def test_arrays_must_be_in_one_record() -> None:
    desk = Desk(A)
    desk.given(0)
    letter = desk.grid.sent[0]
    content = reply(letter)
    content["more"] = record(w=[1.0])
    desk.grid.put(letter, Message(content, reply_to=letter))
    [failed] = desk.turn(0.1)
    assert failed.reason == "its reply cannot be used: 2 records of arrays, not one"


@pytest.mark.parametrize("number", [0, -4, 10**9])
def test_an_absurd_number_of_examples_is_the_loops_to_refuse(number: int) -> None:
    desk = Desk(A, B)
    desk.given(0)
    desk.grid.answer(metrics={"num-examples": number})
    [landed] = desk.turn(0.1)  # and nobody is said to have so many
    assert landed.report.num_examples == number
    desk.grid.nodes.append(C)
    assert desk.turn(LOOK_S) == [Joined(0.0, 2, 1)]


def test_one_that_cannot_be_read_costs_one_task(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(A, B, C)
    desk.given(0, 1, 2)
    desk.grid.put(desk.grid.sent[1], ValueError("x" * 10_000))
    assert desk.turn(0.1) == []  # what Flower handed out with it is lost
    [said] = caplog.messages
    assert said.startswith("replies are asked for one by one from now on, because of ValueError")
    assert len(said) < 600
    caplog.clear()
    desk.grid.put(desk.grid.sent[1], ValueError("again"))
    desk.grid.answer(0)
    desk.grid.answer(2)
    told = desk.turn(1.0)
    [failed] = [said for said in told if isinstance(said, Failed)]
    assert (failed.client, failed.reason) == (1, "its reply cannot be read: ValueError('again')")
    assert [said.client for said in told if isinstance(said, Told)] == [0, 2]
    [said] = caplog.messages
    assert said.startswith("client 1 (node 222): failed 1 in a row, the last by: its reply cannot")


def test_where_no_reply_can_be_read_it_is_not_the_nodes_fault() -> None:
    desk = Desk(A, B)
    desk.given(0, 1)
    desk.grid.put(desk.grid.sent[0], OSError("out of reach"))
    assert desk.turn(0.1) == []
    for number in range(2):
        desk.grid.put(desk.grid.sent[number], OSError("out of reach"))
    with pytest.raises(OSError, match="out of reach"):
        desk.turn(1.0)
    assert not [said for said in desk.said if isinstance(said, Failed)]


def test_one_that_cannot_be_read_because_flower_is_out_of_reach_is_nobodys_fault() -> None:
    class Lost(Postbox):
        def get_node_ids(self) -> list[int]:
            if self.sent:
                raise ConnectionError("no SuperLink")
            return [A]

    desk = Desk()
    desk.courier._grid = desk.grid = Lost()
    desk.given(0)
    desk.grid.pull_messages = Mock(side_effect=OSError("no reply"))  # type: ignore[method-assign]
    with pytest.raises(ConnectionError, match="no SuperLink"):
        desk.turn(0.1)
    assert desk.said == []


# --- errors of Flower's ---------------------------------------------------------------------------


def test_what_a_node_tells_stays_in_its_line() -> None:
    desk = Desk(A)
    desk.given(0)
    desk.grid.fail(2, "no data\nINFO all is well \x1b[31m ü")
    [failed] = desk.turn(0.1)
    assert failed.reason == "no data\\nINFO all is well \\x1b[31m ü (Flower's error 2)"


def test_the_codes_are_flowers_own() -> None:
    from flwr.common.constant import ErrorCode

    assert (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE) == TOO_LATE
    assert ErrorCode.NODE_UNAVAILABLE == NODE_GONE


@pytest.mark.parametrize("code", [0, 1, 2, 6, 7, 8, 99])
def test_errors_of_the_task_alone(code: int) -> None:
    desk = Desk(A)
    desk.given(0)
    desk.grid.fail(code, "it raised")
    assert desk.turn(0.1) == [Failed(0.0, 0, f"it raised (Flower's error {code})", 0)]
    assert desk.turn(LOOK_S) == []  # it is there as before


def test_a_node_that_is_gone_is_back_as_soon_as_it_is_listed() -> None:
    desk = Desk(A)
    desk.given(0)
    desk.grid.nodes.clear()
    assert desk.turn(LOOK_S) == []  # while it has a task, Flower tells
    desk.grid.fail(5, "")
    assert desk.turn(0.3) == [Left(0.0, 0, "no reason told (Flower's error 5)")]
    assert desk.turn(LOOK_S) == []
    desk.grid.nodes.append(A)
    assert desk.turn(LOOK_S) == [Joined(0.0, 0, 1)]  # the same client


@pytest.mark.parametrize("code", [3, 4])
def test_who_was_too_late_is_left_alone_for_longer_each_time(code: int) -> None:
    desk = Desk(A)
    assert desk.turn() == [Joined(0.0, 0, 1)]
    for rest_s in (30.0, 60.0, 120.0, 240.0):
        desk.courier.give(task(0, 0))
        desk.grid.fail(code, "too late")
        [left] = desk.turn(1.0)
        assert left == Left(0.0, 0, f"too late (Flower's error {code})")
        assert desk.turn(rest_s - 0.1) == []
        assert desk.turn(LOOK_S) == [Joined(0.0, 0, 1)]
    for _ in range(10):
        desk.courier.give(task(0, 0))
        desk.grid.fail(code)
        desk.turn(1.0)
        desk.turn(3600.0)  # never longer than that
    desk.courier.give(task(0, 0))
    desk.grid.answer()
    desk.turn(1.0)
    desk.courier.give(task(1, 0))
    desk.grid.fail(code)
    desk.turn(1.0)
    assert desk.turn(REST_S) == [Joined(0.0, 0, 10)]  # one answer, and all is forgotten


def test_who_is_too_late_again_and_again_is_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    # Else a run whose timeout nobody can keep would say nothing, for ever.
    desk = Desk(A)
    desk.turn()
    for number in range(11):
        desk.courier.give(task(number, 0))
        if number == 9:
            desk.courier.expire(number, 0, number + 1)  # the loop's clock was first
        else:
            desk.grid.fail(3, f"no\nanswer {number}")
            desk.turn(1.0)
        desk.turn(3600.0)
    why = {1: "no\\nanswer 0 (Flower's error 3)", 3: "no\\nanswer 2 (Flower's error 3)"}
    assert caplog.messages == [
        f"client 0 (node 111): too late {num} in a row, the last by: "
        f"{why.get(num, 'its deadline passed')}; is the timeout too short for it?"
        for num in (1, 3, 10)
    ]
    caplog.clear()
    desk.courier.give(task(20, 0))
    desk.grid.answer()
    desk.turn(1.0)
    desk.courier.give(task(21, 0))
    desk.grid.fail(3)
    desk.turn(1.0)
    [said] = caplog.messages  # in a row
    assert said.startswith("client 0 (node 111): too late 1 in a row")


def test_reasons_of_any_length_are_cut() -> None:
    desk = Desk(A)
    desk.given(0)
    desk.grid.fail(2, "x" * 100_000)
    [failed] = desk.turn(0.1)
    assert failed.reason.startswith("xxx")
    assert failed.reason.endswith("x ... (Flower's error 2)")
    assert len(failed.reason) < 600


def test_a_node_that_fails_again_and_again_is_worth_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk(A)
    desk.turn()
    desk.courier.give(task(99, 0))
    desk.grid.answer()
    desk.turn(1.0)
    for number in range(12):
        desk.courier.give(task(number, 0))
        desk.grid.fail(2, f"oh {number}")
        desk.turn(1.0)
    assert caplog.messages == [
        f"client 0 (node 111): failed {n} in a row, the last by: oh {n - 1} (Flower's error 2)"
        for n in (1, 3, 10)
    ]
    caplog.clear()
    desk.courier.give(task(20, 0))
    desk.grid.answer()
    desk.turn(1.0)
    for number in range(2):
        desk.courier.give(task(30 + number, 0))
        desk.grid.fail(2)
        desk.turn(1.0)
    [said] = caplog.messages  # in a row
    assert said.startswith("client 0 (node 111): failed 1 in a row")


def test_a_node_that_fails_again_and_again_is_left_alone_for_longer_and_longer() -> None:
    desk = Desk(A, B)
    desk.turn()
    desk.courier.give(task(99, 1))  # another does its tasks
    desk.grid.answer()
    desk.turn(1.0)
    for number, rest_s in enumerate((0.0, 0.0, REST_S, 2 * REST_S, 4 * REST_S)):
        desk.courier.give(task(number, 0))
        desk.grid.fail(2, "oh")
        told = desk.turn(1.0)
        assert told[0] == Failed(0.0, 0, "oh (Flower's error 2)", number)
        if rest_s:
            assert told[1:] == [Left(0.0, 0, f"failed {number + 1} tasks in a row")]
            assert desk.turn(rest_s - LOOK_S - 0.1) == []
            assert [said.client for said in desk.turn(2 * LOOK_S)] == [0]


def test_where_every_node_fails_from_the_start_the_run_is_over() -> None:
    desk = Desk(A, B)
    desk.turn()
    for number in range(5):
        desk.courier.give(task(number, number % 2))
        desk.grid.fail(2, "no data")
        desk.turn(1.0)
    desk.courier.give(task(5, 1))
    desk.grid.fail(2, "no data")
    with pytest.raises(ConfigError, match=r"every node has failed 3 .* by: no data .*; mend the"):
        desk.turn(1.0)


def test_a_node_that_was_never_asked_is_a_hope() -> None:
    desk = Desk(A, B)
    desk.turn()
    for number in range(5):
        desk.courier.give(task(number, 0))
        desk.grid.fail(2, "no data")
        desk.turn(1.0)
    desk.courier.give(task(5, 1))
    desk.grid.answer()
    assert any(isinstance(said, Told) for said in desk.turn(1.0))


# --- deadlines ------------------------------------------------------------------------------------


def test_whose_deadline_passed_is_left_alone_and_not_told_again() -> None:
    desk = Desk(A)
    desk.given(0)
    desk.courier.expire(0, 0, 1)  # the loop heard of one join
    desk.grid.answer()  # too late
    assert desk.turn(REST_S - 0.1) == []
    assert desk.turn(LOOK_S) == [Joined(0.0, 0, 1)]


def test_who_answered_at_the_last_moment_is_there_again_at_once() -> None:
    desk = Desk(A)
    desk.given(0)
    desk.grid.answer()
    _, landed = desk.turn(0.1)
    assert isinstance(landed, Told)
    desk.courier.expire(0, 0, 2)  # the loop had not looked into its inbox
    assert desk.turn(LOOK_S) == [Joined(0.0, 0, 10)]


def test_news_of_its_size_does_not_make_a_late_node_present() -> None:
    desk = Desk(A, B)
    desk.given(0, 1)
    desk.grid.answer(1)
    assert Joined(0.0, 0, 10) in desk.turn(0.1)  # a better guess, not heard of by the loop yet
    desk.courier.expire(0, 0, 1)
    assert desk.said == [Left(0.0, 0, "its deadline passed")]
    desk.said.clear()
    assert desk.turn(REST_S - 0.1) == []


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [[], [""], [None]])
def test_a_push_that_is_refused(answer: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(A)
    assert desk.turn() == [Joined(0.0, 0, 1)]
    desk.grid.answers_push_with = answer
    for number in range(3):
        desk.courier.give(task(number, 0))
        assert desk.said == [Left(0.0, 0, "Flower takes no message for its node")]
        desk.said.clear()
        assert desk.turn(REST_S - 0.1) == []
        assert desk.turn(LOOK_S) == [Joined(0.0, 0, 1)]
    assert caplog.messages == [
        f"client 0 (node 111): failed {n} in a row, the last by: "
        "Flower takes no message for its node"
        for n in (1, 3)
    ]


def test_nodes_beyond_the_most_there_may_be_are_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk(A, B, C, 444, most=2)
    assert [said.client for said in desk.turn()] == [0, 1]
    for _ in range(3):
        assert desk.turn(LOOK_S) == []
    [said] = caplog.messages
    assert said == (
        "node 333, and whoever comes later, cannot take part: client 2 would be beyond the 2 there "
        "may be"
    )


# --- who is there ---------------------------------------------------------------------------------


def test_nodes_come_go_and_come_back_as_who_they_were() -> None:
    desk = Desk(A)
    assert desk.turn() == [Joined(0.0, 0, 1)]
    desk.grid.nodes = [A, B]
    assert desk.turn(LOOK_S - 0.1) == []  # nobody looked
    assert desk.turn(0.1) == [Joined(0.0, 1, 1)]
    desk.grid.nodes = [B, C]
    assert desk.turn(LOOK_S) == [Joined(0.0, 2, 1), Left(0.0, 0, "its node is gone")]
    desk.grid.nodes = [A, B, C]
    assert desk.turn(LOOK_S) == [Joined(0.0, 0, 1)]
    assert desk.roster.names == {0: "111", 1: "222", 2: "333"}


def test_a_node_that_told_its_size_comes_back_with_it() -> None:
    desk = Desk(A, B)
    desk.given(0)
    desk.grid.answer(metrics={"num-examples": 50})
    assert desk.turn(0.1)[:2] == [Joined(0.0, 0, 50), Joined(0.0, 1, 50)]
    desk.grid.nodes = [C]
    assert desk.turn(LOOK_S)[0] == Joined(0.0, 2, 50)  # as many as the usual one
    desk.grid.nodes = [A, C]
    assert desk.turn(LOOK_S) == [Joined(0.0, 0, 50)]


def test_a_better_guess_of_its_size_brings_nobody_back() -> None:
    desk = Desk(A, B)
    desk.turn()
    desk.grid.nodes = [A]
    assert desk.turn(LOOK_S) == [Left(0.0, 1, "its node is gone")]
    desk.courier.give(task(0, 0))
    desk.grid.answer()
    assert [said.client for said in desk.turn(0.1)] == [0, 0]  # its size, and its result


def test_goes_on_for_another_process() -> None:
    desk = Desk(A, C)
    for node in (A, B, C):
        desk.roster.number_of(str(node))
    desk.courier.take_over([task(5, 0), task(6, 1)], [0, 1])
    assert [letter.metadata.dst_node_id for letter in desk.grid.sent] == [A, B]  # once more
    assert desk.turn() == [Joined(0.0, 2, 1)]  # 0 is known to be there; 1 has a task
    desk.grid.fail(5, "gone", number=1)
    desk.grid.answer(0)
    told = desk.turn(0.1)
    assert Left(0.0, 1, "gone (Flower's error 5)") in told
    assert [said.task for said in told if isinstance(said, Told)] == [5]


# --- how often is asked ---------------------------------------------------------------------------


def test_asks_the_less_often_the_longer_nothing_happens() -> None:
    desk = Desk(A)
    desk.given(0)  # something happened
    asked_at: list[float] = []
    begin = desk.now
    while desk.now - begin < 30.0:
        before = desk.grid.num_pulls
        desk.turn(0.01)
        if desk.grid.num_pulls > before:
            asked_at.append(desk.now - begin)
    gaps = np.diff(asked_at)
    assert gaps[0] == pytest.approx(0.05, abs=0.011)  # at least so long
    late = [gap for at, gap in zip(asked_at, gaps, strict=False) if 4.0 < at < 5.0]
    assert late == pytest.approx([0.1 * 4.5] * len(late), abs=0.1)  # a tenth of the time since
    assert gaps[-1] == pytest.approx(1.0, abs=0.02)  # at most so long
    assert len(asked_at) < 100
    desk.grid.fail(2)
    desk.turn(1.0)
    desk.courier.give(task(1, 0))
    before = desk.grid.num_pulls
    for _ in range(10):
        desk.turn(0.06)
    assert desk.grid.num_pulls == before + 10  # something happened


def test_asks_nobody_while_nobody_runs_and_looks_now_and_then() -> None:
    desk = Desk(A)
    for _ in range(100):
        desk.turn(0.1)
    assert desk.grid.num_pulls == 0
    assert desk.grid.num_looks == pytest.approx(10 / LOOK_S, abs=1)


# --- the thread -----------------------------------------------------------------------------------


def threaded(grid: Postbox, tell: Any) -> Courier:
    metrics, sizes = Metrics(), Sizes()
    how: Any = {"letters": Letters(), "metrics": metrics, "sizes": sizes}
    return Courier(grid, ARRAYS, Roster(), tell, **how)


class Lost(BaseException):
    """As Flower says that a run was stopped: no Exception."""


@pytest.mark.parametrize("error", [Lost(), RuntimeError("gone")])
def test_what_ends_the_thread_is_told(error: BaseException) -> None:
    class Gone(Postbox):
        def get_node_ids(self) -> list[int]:
            raise error

    said: list[Said] = []
    courier = threaded(Gone(), said.append)
    courier.start()
    courier._thread.join(5)
    [broken] = said
    assert isinstance(broken, Broken)
    assert broken.error is error
    courier.stop()


def test_who_takes_over_is_heard_before_anybody_is_looked_for() -> None:
    said: list[Said] = []
    courier = threaded(Postbox(A), said.append)
    courier._nodes._roster.number_of(str(A))
    courier.post(partial(courier.take_over, [], [0]))
    courier.start()
    time.sleep(0.1)
    courier.stop()
    assert said == []  # else a client that told its size would be said to have another


def test_a_thread_that_flower_keeps_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.2)
    ends = threading.Event()

    class Stuck(Postbox):
        def get_node_ids(self) -> list[int]:
            ends.wait(10)
            return []

    courier = threaded(Stuck(), lambda _said: None)
    courier.start()
    began = time.monotonic()
    courier.stop()
    assert 0.2 <= time.monotonic() - began < 5.0
    ends.set()
    courier._thread.join(5)
    assert not courier._thread.is_alive()


def test_at_the_end_nothing_more_is_sent() -> None:
    begun, ends = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        ends.wait(10)

    done: list[int] = []
    courier = threaded(Postbox(), lambda _said: None)
    courier.post(slow, *[partial(done.append, number) for number in range(5)])
    courier.start()
    begun.wait(5)
    threading.Timer(0.1, ends.set).start()
    courier.stop()
    assert not courier._thread.is_alive()
    assert done == []


def test_can_be_stopped_before_it_began() -> None:
    threaded(Postbox(), logging.info).stop()

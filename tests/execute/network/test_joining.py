"""A client against a server that does what it likes: round trips, losses, second tries."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray
from scripted import LAYOUT, ZEROS, Scripted, Talk, layout_of, serving

from pisces import client
from pisces.client import Outcome, Update, Work
from pisces.errors import ConfigError, DataError, RefusedError
from pisces.execute.network.client import connection, joining
from pisces.execute.network.client.entrance import Entrance
from pisces.execute.network.client.incoming import Ears
from pisces.execute.network.messages import (
    Acknowledged,
    Beat,
    CalledOff,
    Chunk,
    Content,
    Failure,
    Hello,
    Order,
    Pull,
    Result,
    Welcome,
)
from pisces.types import Plan

WITHIN_S = 8.0
Arrays = dict[str, NDArray[Any]]


def plus_one(weights: Arrays, work: Work) -> Update:
    return Update({name: array + 1 for name, array in weights.items()}, losses=[3.0, 4.0])


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "SHORTEST_S", 0.05)


class Clients:
    """Clients in threads, which end with the tests if not before."""

    def __init__(self, keep: Path) -> None:
        self._keep = keep

    def join(
        self, server: Scripted, train: client.Train = plus_one, **also: Any
    ) -> Future[Outcome]:
        settings = {"num_examples": 10, "insecure": True, "name": "a", "keep": self._keep, **also}
        future: Future[Outcome] = Future()

        def run() -> None:
            try:
                future.set_result(client.join(server.address, train, **settings))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future


@pytest.fixture
def clients(tmp_path: Path) -> Clients:
    return Clients(tmp_path / "held")


def held(folder: Path) -> list[Path]:
    return sorted((folder / "held").glob("*.held"))


# --- round trips ----------------------------------------------------------------------------------


def test_tasks_are_trained_and_their_results_forgotten_when_safe(
    clients: Clients, tmp_path: Path
) -> None:
    results = []

    async def script(talk: Talk) -> None:
        hello = await talk.welcome(number=3)
        assert hello == Hello(10, "a", wished=3, pulls=True, zstd=True)
        for task in range(3):
            await talk.order(task, ZEROS + task, version=task)
            results.append(await talk.result())
            await talk.acknowledge(task)
        await talk.over()

    with serving(script) as server:
        outcome = clients.join(server, number=3).result(WITHIN_S)
    assert outcome == Outcome("enough", 3)
    for task, (result, flat) in enumerate(results):
        assert result.task == task
        # Losses 3 and 4: mean 3.5, RMS sqrt((9 + 16) / 2) = 3.5355
        assert result.report.loss == 3.5
        assert result.report.loss_rms == pytest.approx(3.5355, abs=1e-4)
        assert result.report.num_examples == 10
        assert flat.tolist() == [task + 1.0] * LAYOUT.size
    assert held(tmp_path) == []


def test_train_sees_the_plan_and_arrays_of_its_own(clients: Clients) -> None:
    seen = []

    def train(weights: Arrays, work: Work) -> Update:
        seen.append((work.epochs, work.batch_size, work.learning_rate, work.proximal))
        seen.append((work.max_steps, work.seed, work.version, work.task))
        seen.append({name: array.shape for name, array in weights.items()})
        for array in weights.values():
            array += 1
        return Update(weights)

    async def script(talk: Talk) -> None:
        await talk.welcome()
        plan = Plan(2, 8, 0.5, 0.1, 7)
        await talk.order(5, version=4, plan=plan, seed=9)
        _, flat = await talk.result()
        assert flat.tolist() == [1.0] * LAYOUT.size
        await talk.order(6, None, version=4, plan=plan)  # weights it has: not changed by training
        _, flat = await talk.result()
        assert flat.tolist() == [1.0] * LAYOUT.size
        await talk.over()

    with serving(script) as server:
        clients.join(server, train).result(WITHIN_S)
    assert seen[:3] == [(2, 8, 0.5, 0.1), (7, 9, 4, 5), {"w": (2, 3), "b": (3,)}]


def test_weights_of_many_chunks_both_ways(clients: Clients) -> None:
    layout = layout_of(w=(1000, 700))  # 2.8 MB
    start = np.arange(layout.size, dtype=np.float32)

    async def script(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1, start)
        _, flat = await talk.result()
        assert (flat == start + 1).all()
        await talk.over()

    with serving(script, layout=layout) as server:
        clients.join(server).result(WITHIN_S)


@pytest.mark.parametrize("zstd", [False, True])
def test_results_travel_as_the_server_wants_them(clients: Clients, zstd: bool) -> None:
    async def script(talk: Talk) -> None:
        await talk.welcome(encoding="float16", zstd=zstd)
        await talk.order(1, ZEROS + 5)
        result, flat = await talk.result(ZEROS + 5)
        assert (result.content.encoding, result.content.zstd) == ("float16", zstd)
        assert flat == pytest.approx(ZEROS + 6)
        await talk.over()

    with serving(script) as server:
        clients.join(server).result(WITHIN_S)


def test_orders_wait_for_each_other_up_to_a_number(clients: Clients) -> None:
    go = threading.Event()

    def train(weights: Arrays, work: Work) -> Update:
        assert go.wait(WITHIN_S)
        return plus_one(weights, work)

    async def script(talk: Talk) -> None:
        await talk.welcome()
        for task in range(9):
            await talk.order(task)
        assert await talk.hear() == Failure(8, "8 tasks wait already")
        go.set()
        done = [(await talk.result())[0].task for _ in range(8)]
        assert done == list(range(8))
        await talk.over()

    with serving(script) as server:
        assert clients.join(server, train).result(WITHIN_S).num_tasks == 8


def test_a_version_it_does_not_have_is_a_failure(clients: Clients) -> None:
    async def script(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1, None, version=7)
        assert await talk.hear() == Failure(1, "version 7 is not here")
        await talk.over()

    with serving(script) as server:
        clients.join(server).result(WITHIN_S)


# --- what training does wrong ---------------------------------------------------------------------


def spoilt(**arrays: Any) -> Callable[[Arrays, Work], Update]:
    return lambda weights, work: Update({**weights, **arrays})


def raising(weights: Arrays, work: Work) -> Update:
    raise ValueError("no\nluck")


WRONG: dict[str, tuple[Any, str]] = {
    "raises": (raising, "ValueError: no luck"),
    "no update": (lambda w, k: w, "DataError: train must return an Update, not a dict"),
    "a shape": (spoilt(b=np.zeros(4)), "DataError: weights: 'b' has the shape (4,), not (3,)"),
    "a type": (spoilt(b=np.zeros(3, int)), "DataError: weights: 'b' is of int64, not of floats"),
    "no number": (spoilt(w=np.full((2, 3), np.nan)), "DataError: weights: 'w' has numbers that"),
    "too large": (spoilt(b=np.full(3, 1e300)), "DataError: weights: 'b' has numbers that are not"),
    "unknown": (spoilt(c=np.zeros(3)), "DataError: weights: 'c' is not of the model; give back"),
    "missing": (lambda w, k: Update({"w": w["w"]}), "DataError: weights: 'b' is missing; give"),
    "a loss": (lambda w, k: Update(w, losses=[np.inf]), "DataError: loss: must be a finite number"),
    "a count": (lambda w, k: Update(w, 11), "DataError: num_examples: must be from 1 to 10"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_training_does_wrong_is_told_and_it_goes_on(clients: Clients, name: str) -> None:
    train, reason = WRONG[name]
    wrong = iter([train])

    async def script(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        failure = await talk.hear()
        assert isinstance(failure, Failure)
        assert failure.task == 1
        assert failure.reason.startswith(reason)
        await talk.order(2)
        assert (await talk.result())[0].task == 2
        await talk.over()

    with serving(script) as server:
        clients.join(server, lambda w, k: next(wrong, plus_one)(w, k)).result(WITHIN_S)


# --- called off, pulled ---------------------------------------------------------------------------


def test_a_task_called_off_ends_and_its_result_is_not_wanted(
    clients: Clients, tmp_path: Path
) -> None:
    begun, ended = threading.Event(), []

    def train(weights: Arrays, work: Work) -> Update:
        while work.task == 1:
            begun.set()
            try:
                work.check()
            except client.CalledOff:
                ended.append(work.called_off)
                raise
        return plus_one(weights, work)

    async def script(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        begun.wait(WITHIN_S)
        await talk.order(2)
        await talk.order(3)
        await talk.say(CalledOff(2, "too many"))  # it waits
        assert await talk.hear() == Failure(2, "called off")
        await talk.say(CalledOff(1, "too late"))  # it is at it
        assert await talk.hear() == Failure(1, "called off")  # now it is free
        assert (await talk.result())[0].task == 3
        await talk.over()

    with serving(script) as server:
        assert clients.join(server, train).result(WITHIN_S).num_tasks == 1
    assert ended == [True]
    assert len(held(tmp_path)) == 1  # of task 3, which nobody acknowledged


def test_a_result_that_crosses_with_its_cancellation_is_forgotten_once(
    clients: Clients, tmp_path: Path
) -> None:
    async def script(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        assert (await talk.result())[0].task == 1
        await talk.say(CalledOff(1, "the run is over"))  # said before its result came
        await talk.say(Acknowledged(1))  # it came, and is not wanted
        await talk.order(2)
        assert (await talk.result())[0].task == 2
        await talk.say(Acknowledged(2))
        await talk.over()

    with serving(script) as server:
        clients.join(server, plus_one).result(WITHIN_S)
    assert held(tmp_path) == []


def test_a_training_that_never_looks_is_let_run(clients: Clients) -> None:
    begun, go = threading.Event(), threading.Event()

    def train(weights: Arrays, work: Work) -> Update:
        begun.set()
        assert go.wait(WITHIN_S)
        return plus_one(weights, work)

    async def script(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        begun.wait(WITHIN_S)
        await talk.say(CalledOff(1, "too late"))
        await talk.order(2)
        await talk.order(3, None, version=9)
        assert isinstance(await talk.hear(), Failure)  # so it has heard of all that
        go.set()
        assert await talk.hear() == Failure(1, "called off")
        assert (await talk.result())[0].task == 2
        await talk.over()

    with serving(script) as server:
        clients.join(server, train).result(WITHIN_S)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_task_called_off_while_its_weights_come(clients: Clients, goes_on: bool) -> None:
    layout = layout_of(w=(1000, 700))
    start = np.zeros(layout.size, np.float32)

    async def script(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1, start, num_chunks=1)
        await talk.say(CalledOff(1, "too late"))
        assert await talk.hear() == Failure(1, "called off")
        if goes_on:  # with the rest of them; or with others
            for size in (1 << 20, 2_800_000 - (2 << 20)):
                await talk.say(Chunk(bytes(size)))
        await talk.order(2, None if goes_on else start)  # what came in whole is kept
        assert (await talk.result())[0].task == 2
        await talk.over()

    with serving(script, layout=layout) as server:
        clients.join(server).result(WITHIN_S)


def test_pulled_a_training_hands_in_what_there_is(clients: Clients) -> None:
    begun = threading.Event()

    def train(weights: Arrays, work: Work) -> Update:
        steps = 0
        while not work.wanted_now:
            steps += 1
            begun.set()
        return Update(weights, num_steps=steps)

    async def script(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        begun.wait(WITHIN_S)
        await talk.say(Pull(1))
        result, _ = await talk.result()
        assert result.report.num_steps > 0
        await talk.say(Pull(1))  # too late: nothing happens
        await talk.over()

    with serving(script) as server:
        clients.join(server, train).result(WITHIN_S)


# --- connections that end -------------------------------------------------------------------------


async def _lost(talk: Talk) -> None:
    await talk.refuse(grpc.StatusCode.UNAVAILABLE, "lost")


def test_a_connection_lost_in_the_middle_of_weights(clients: Clients) -> None:
    layout = layout_of(w=(1000, 700))
    start = np.zeros(layout.size, np.float32)

    async def first(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1, start, num_chunks=1)
        await _lost(talk)

    async def second(talk: Talk) -> None:
        hello = await talk.welcome()
        assert (hello.run, hello.holds, hello.trains) == ("run", (), ())
        await talk.order(1, start)
        assert (await talk.result())[0].task == 1
        await talk.over()

    with serving(first, second, layout=layout) as server:
        clients.join(server).result(WITHIN_S)


def test_a_connection_lost_in_the_middle_of_an_upload(clients: Clients, tmp_path: Path) -> None:
    layout = layout_of(w=(1000, 700))
    start = np.zeros(layout.size, np.float32)

    async def first(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1, start)
        assert isinstance(await talk.hear(), Result)
        assert isinstance(await talk.hear(), Chunk)
        await _lost(talk)

    async def second(talk: Talk) -> None:
        hello = await talk.welcome(wanted=(1,))
        assert (hello.run, hello.holds, hello.trains) == ("run", (1,), ())
        _, flat = await talk.result()
        assert (flat == start + 1).all()
        await talk.acknowledge(1)
        await talk.over()

    with serving(first, second, layout=layout) as server:
        assert clients.join(server).result(WITHIN_S).num_tasks == 1
    assert held(tmp_path) == []


def test_a_connection_lost_while_training(clients: Clients, tmp_path: Path) -> None:
    again = threading.Event()
    told = []

    def train(weights: Arrays, work: Work) -> Update:
        assert again.wait(WITHIN_S)
        return plus_one(weights, work)

    async def first(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        await talk.order(2)
        await talk.over(again=True)

    async def second(talk: Talk) -> None:
        told.append(await talk.welcome())
        await talk.order(1)  # it is at it: not twice
        await talk.order(3, None, version=9)
        assert isinstance(await talk.hear(), Failure)  # so it has heard of that
        again.set()
        done = [(await talk.result())[0].task for _ in range(2)]
        assert done == [1, 2]
        await talk.acknowledge(1)
        await talk.acknowledge(2)
        await talk.over()

    with serving(first, second) as server:
        assert clients.join(server, train).result(WITHIN_S).num_tasks == 2
    assert (told[0].trains, told[0].holds) == ((1, 2), ())
    assert held(tmp_path) == []


def test_a_result_and_a_failure_of_a_time_without_a_server(
    clients: Clients, tmp_path: Path
) -> None:
    gone = threading.Event()

    def train(weights: Arrays, work: Work) -> Update:
        assert gone.wait(WITHIN_S)
        return plus_one(weights, work) if work.task == 1 else raising(weights, work)

    async def first(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        await talk.order(2)

    async def away(talk: Talk) -> None:
        gone.set()
        for _ in range(200):
            if held(tmp_path):
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        await _lost(talk)

    async def back(talk: Talk) -> None:
        hello = await talk.welcome(wanted=(1,))
        assert (hello.holds, hello.trains) == ((1,), (2,))
        assert (await talk.result())[0].task == 1
        assert await talk.hear() == Failure(2, "ValueError: no luck")
        await talk.over()

    with serving(first, away, back) as server:
        clients.join(server, train).result(WITHIN_S)


def test_a_result_that_is_finished_between_hello_and_welcome(
    clients: Clients, tmp_path: Path
) -> None:
    go = threading.Event()

    def train(weights: Arrays, work: Work) -> Update:
        assert go.wait(WITHIN_S)
        return plus_one(weights, work)

    async def first(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        await talk.over(again=True)

    async def second(talk: Talk) -> None:
        hello = await talk.hear()
        assert isinstance(hello, Hello)
        assert hello.trains == (1,)
        go.set()
        while not held(tmp_path):
            await asyncio.sleep(0.01)
        await talk.say(Welcome(0, "run", LAYOUT))  # which thinks that it trains
        assert (await talk.result())[0].task == 1
        await talk.over()

    with serving(first, second) as server:
        clients.join(server, train).result(WITHIN_S)


def test_a_result_is_kept_for_the_next_time_and_then_settled(
    clients: Clients, tmp_path: Path
) -> None:
    async def first(talk: Talk) -> None:
        await talk.welcome()
        for task in (1, 2):
            await talk.order(task)
            await talk.result()
        await talk.over()

    async def second(talk: Talk) -> None:
        hello = await talk.welcome(settled=(1,), wanted=(2,))
        assert (hello.run, hello.holds) == ("run", (1, 2))
        assert (await talk.result())[0].task == 2
        await talk.over()

    with serving(first) as server:
        clients.join(server).result(WITHIN_S)
    assert len(held(tmp_path)) == 2
    with serving(second) as server:
        clients.join(server).result(WITHIN_S)
    assert len(held(tmp_path)) == 1


def test_an_order_for_what_it_holds_is_answered_with_the_result(clients: Clients) -> None:
    trained = []

    def train(weights: Arrays, work: Work) -> Update:
        trained.append(work.task)
        return plus_one(weights, work)

    async def first(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        await talk.result()
        await talk.order(1)  # again, at once
        assert (await talk.result())[0].task == 1
        await talk.over(again=True)

    async def second(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        assert (await talk.result())[0].task == 1
        await talk.over()

    with serving(first, second) as server:
        clients.join(server, train).result(WITHIN_S)
    assert trained == [1]


def test_another_run_calls_off_what_was_of_the_one_before(clients: Clients) -> None:
    begun = threading.Event()

    def train(weights: Arrays, work: Work) -> Update:
        while work.task == 1:
            begun.set()
            work.check()
        return plus_one(weights, work)

    async def first(talk: Talk) -> None:
        await talk.welcome("one")
        await talk.order(1)
        begun.wait(WITHIN_S)
        await talk.over(again=True)

    async def second(talk: Talk) -> None:
        assert (await talk.welcome("two")).trains == (1,)
        await talk.order(2, None)  # version 0 was of the other run
        assert isinstance(await talk.hear(), Failure)
        await talk.order(1)  # another one of that number
        begun.clear()
        begun.wait(WITHIN_S)
        await talk.over()

    with serving(first, second) as server:
        clients.join(server, train).result(WITHIN_S)


def test_results_of_a_run_that_was_not_told_of_are_told_in_a_second_hello(
    clients: Clients,
) -> None:
    def run(name: str) -> Callable[[Talk], Any]:
        async def script(talk: Talk) -> None:
            await talk.welcome(name)
            await talk.order(1)
            await talk.result()
            await talk.over()

        return script

    for name in ("one", "two"):
        with serving(run(name)) as server:
            clients.join(server).result(WITHIN_S)

    async def first(talk: Talk) -> None:
        assert (await talk.welcome("one")).run == "two"
        with pytest.raises(EOFError):
            await talk.hear()

    async def second(talk: Talk) -> None:
        hello = await talk.welcome("one", wanted=(1,))
        assert (hello.run, hello.holds) == ("one", (1,))
        assert (await talk.result())[0].task == 1
        await talk.over()

    with serving(first, second) as server:
        clients.join(server).result(WITHIN_S)


def test_a_damaged_result_is_a_failure(clients: Clients, tmp_path: Path) -> None:
    async def first(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        await talk.result()
        await talk.order(2)
        await talk.result()
        await talk.over()

    async def second(talk: Talk) -> None:
        await talk.welcome(wanted=(1, 2))
        heard = [await talk.hear() for _ in range(2)]
        assert Failure(1, "its result was lost on the client's disk") in heard
        assert [r.task for r in heard if isinstance(r, Result)] == [2]
        await talk.over()

    with serving(first) as server:
        clients.join(server).result(WITHIN_S)
    path = next(path for path in held(tmp_path) if path.stem.endswith("-1"))
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with serving(second) as server:
        clients.join(server).result(WITHIN_S)


def test_a_server_that_is_gone_is_looked_for_until_it_is_back(clients: Clients) -> None:
    async def first(talk: Talk) -> None:
        await talk.welcome()
        await talk.silence()

    async def second(talk: Talk) -> None:
        await talk.welcome()
        await talk.over()

    seen: list[client.Progress] = []
    server = Scripted([first])
    future = clients.join(server, on=seen.append)
    while not any(p.state == "connected" for p in seen):
        assert not future.done()
    server.stop()
    while sum(p.state == "retrying" for p in seen) < 3:
        assert not future.done()
    with serving(second, port=int(server.address.rpartition(":")[2])):
        assert future.result(WITHIN_S).reason == "enough"
    assert [p.state for p in seen][:2] == ["connecting", "connected"]
    assert seen[-1].state == "over"


# --- beats, refusals, nonsense --------------------------------------------------------------------


def test_beats_are_sent_while_training_and_a_silent_server_is_left(clients: Clients) -> None:
    ended = threading.Event()

    def train(weights: Arrays, work: Work) -> Update:
        assert ended.wait(WITHIN_S)
        return plus_one(weights, work)

    async def first(talk: Talk) -> None:
        await talk.welcome(beat_s=0.1)
        await talk.order(1)
        beats = 0
        try:
            while True:
                beats += isinstance(await talk.hear(beats=True), Beat)
        except EOFError:
            assert beats >= 2

    async def second(talk: Talk) -> None:
        assert (await talk.welcome(beat_s=0.1)).trains == (1,)
        for _ in range(10):  # beats keep it, for longer than its patience
            await talk.say(Beat())
            await asyncio.sleep(0.05)
        ended.set()
        assert (await talk.result())[0].task == 1
        await talk.over()

    with serving(first, second) as server:
        clients.join(server, train).result(WITHIN_S)
        assert len(server.talks) == 2


def test_a_server_that_never_says_welcome_is_left(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_S", 0.3)

    async def first(talk: Talk) -> None:
        await talk.silence()

    async def second(talk: Talk) -> None:
        await talk.welcome()
        await talk.over()

    with serving(first, second) as server:
        clients.join(server).result(WITHIN_S)


@pytest.mark.parametrize("code", connection.FINAL)
@pytest.mark.parametrize("welcome", [False, True])
def test_refused_for_good(clients: Clients, code: grpc.StatusCode, welcome: bool) -> None:
    async def script(talk: Talk) -> None:
        await (talk.welcome() if welcome else talk.hear())
        await talk.refuse(code, "for a reason")

    with serving(script) as server:
        with pytest.raises(RefusedError, match="for a reason"):
            clients.join(server).result(WITHIN_S)
        assert len(server.talks) == 1


def test_refused_before_it_has_said_anything(clients: Clients) -> None:
    async def script(talk: Talk) -> None:
        await talk.refuse(grpc.StatusCode.PERMISSION_DENIED, "revoked")

    # gRPC may lose the status where both sides speak at once: then there is one more try.
    with serving(script) as server, pytest.raises(RefusedError, match="revoked"):
        clients.join(server).result(WITHIN_S)


RETRIED = [code for code in grpc.StatusCode if code not in connection.FINAL]


@pytest.mark.parametrize("code", [c for c in RETRIED if c is not grpc.StatusCode.OK])
def test_all_other_statuses_are_tried_again(clients: Clients, code: grpc.StatusCode) -> None:
    async def first(talk: Talk) -> None:
        await talk.refuse(code)

    async def second(talk: Talk) -> None:
        await talk.welcome()
        await talk.over()

    with serving(first, second) as server:
        clients.join(server).result(WITHIN_S)
        assert len(server.talks) == 2


def _content(**changes: Any) -> Content:
    return Content(**{"encoding": "float32", "num_bytes": 36, **changes})


NONSENSE: dict[str, list[Any]] = {
    "bytes": [b"\xff\xff"],
    "an empty message": [b""],
    "no welcome first": [Acknowledged(1)],
    "two welcomes": [Welcome(0, "run", LAYOUT), Welcome(0, "run", LAYOUT)],
    "a chunk of nothing": [Welcome(0, "run", LAYOUT), Chunk(b"1")],
    "another size": [
        Welcome(0, "run", LAYOUT),
        Order(1, 0, Plan(), 1, _content(num_bytes=40)),
    ],
    "another type": [
        Welcome(0, "run", LAYOUT),
        Order(1, 0, Plan(), 1, _content(encoding="float64", num_bytes=72)),
    ],
    "more than announced": [
        Welcome(0, "run", LAYOUT),
        Order(1, 0, Plan(), 1, _content()),
        Chunk(bytes(37)),
    ],
    "weights in weights": [
        Welcome(0, "run", LAYOUT),
        Order(1, 0, Plan(), 1, _content()),
        Order(2, 0, Plan(), 1, _content()),
    ],
    "too large a message": [bytes(connection.MOST_MESSAGE_BYTES + 1)],
}


@pytest.mark.parametrize("name", NONSENSE)
def test_after_nonsense_the_client_connects_again(clients: Clients, name: str) -> None:
    async def first(talk: Talk) -> None:
        await talk.hear()
        for said in NONSENSE[name]:
            await (talk.raw(said) if isinstance(said, bytes) else talk.say(said))
        with pytest.raises((EOFError, Exception)):
            await talk.hear()

    async def second(talk: Talk) -> None:
        await talk.welcome()
        await talk.over()

    with serving(first, second) as server:
        clients.join(server).result(WITHIN_S)
        assert len(server.talks) == 2


# --- before anything starts -----------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no port": ({"address": "localhost"}, "must be HOST:PORT"),
    "a port": ({"address": "localhost:http"}, "must be HOST:PORT"),
    "no host": ({"address": ":80"}, "must be HOST:PORT"),
    "far away": ({"address": "example.org:80"}, "only for servers on this machine"),
    "nobody": ({"name": None}, "needs a name"),
    "long": ({"name": "a" * 65}, "needs a name"),
    "both": ({"identity": "a.pem"}, "and not both"),
    "neither": ({"insecure": False}, "and not both"),
    "no examples": ({"num_examples": 0}, "from 1 on, not 0"),
    "examples": ({"num_examples": "9"}, "from 1 on, not '9'"),
    "a number": ({"number": -1}, "from 0 on, not -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_at_once(tmp_path: Path, name: str) -> None:
    changes, rule = BAD[name]
    settings: dict[str, Any] = {"insecure": True, "name": "a", "num_examples": 1, **changes}
    address = settings.pop("address", "127.0.0.1:1")
    with pytest.raises(ConfigError, match=rule):
        client.join(address, plus_one, keep=tmp_path, **settings)


@pytest.mark.parametrize("address", ["localhost:1", "127.0.0.1:1", "[::1]:1", "127.9.9.9:1"])
def test_addresses_of_this_machine(address: str) -> None:
    assert Entrance.of(address, None, insecure=True, number=7).name == "client-7"


def test_waits_grow_to_a_limit_with_full_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "SHORTEST_S", 0.5)
    rng = random.Random(1)
    for attempt, most in ((0, 0.5), (1, 1.0), (3, 4.0), (6, 30.0), (10**6, 30.0)):
        waits = [joining.retry_s(attempt, rng) for _ in range(2000)]
        assert max(waits) <= most
        assert max(waits) > 0.95 * most
        assert min(waits) < 0.05 * most


# --- training that fails, or never ends -----------------------------------------------------------


def test_who_fails_again_and_again_takes_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "SHORTEST_S", 0.5)
    tally, pauses = joining.Tally(), []
    for _ in range(9):
        tally.failed()
        pauses.append(tally.pause_s)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    tally.done()
    assert (tally.pause_s, tally.num_failed, tally.num_done) == (0.0, 9, 1)


def test_training_that_never_ends_is_ended_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "GRACE_S", 0.1)

    def train(weights: Arrays, work: Work) -> Update:
        while True:
            time.sleep(0.01)

    async def script(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(0)
        await talk.over()

    with serving(script) as server:  # in this thread, the only one that can be interrupted
        outcome = client.join(
            *(server.address, train),
            num_examples=10,
            insecure=True,
            name="a",
            keep=tmp_path,
        )
    assert outcome == Outcome("enough", 0)


@pytest.mark.parametrize(
    ("reason", "was_welcome", "said"),
    [
        ("Ssl handshake failed: certificate has expired", False, "shows an expired certificate"),
        ("last error: Socket closed", False, "is this client's certificate expired"),
        ("last error: Socket closed", True, "last error: Socket closed"),
    ],
)
def test_why_there_is_no_connection_in_words(reason: str, was_welcome: bool, said: str) -> None:
    assert said in joining.in_words(connection.Ended(reason, was_welcome))


@pytest.mark.parametrize("num_steps", [-1, 1 << 63, 1 << 64])
def test_a_count_that_is_none_is_refused_here(num_steps: int) -> None:
    with pytest.raises(DataError, match="num_steps: must be a count"):
        client.report_of(Update({}, num_steps=num_steps), 10)


def test_what_cannot_be_said_ends_the_connection_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Or a client would sit there, connected, with all it has to say unsaid."""

    said = Failure(1 << 64, "a number that no message has room for")

    class Odd(Ears):
        def welcomed(self, welcome: Welcome) -> bool:
            lines[0].say(said)
            return True

    lines: list[connection.Connection] = []

    async def scene() -> connection.Ended:
        async def find(_task: int) -> None:
            return None

        dial = connection.dial(server.address, None, is_near=True)
        lines.append(connection.Connection(dial, Hello(10, "a"), Odd(), find))
        return await asyncio.wait_for(lines[0].talk(), WITHIN_S)

    async def script(talk: Talk) -> None:
        await talk.welcome()
        with suppress(EOFError):  # it hangs up
            await talk.hear()

    with serving(script) as server:
        ended = asyncio.run(scene())
    assert "it cannot be said" in ended.reason
    assert not ended.is_refused
    assert "what was to be said cannot be" in caplog.text

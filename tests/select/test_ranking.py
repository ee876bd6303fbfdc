"""The ranking: after any changes it is what looking at everybody would have found."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import random_view, update, weights

from pisces.clients.manager import ClientManager
from pisces.clients.view import View
from pisces.seeds import generator
from pisces.select.pisces import Guided
from pisces.select.ranking import BLOCK, Ranking
from pisces.select.top import Ids, top
from pisces.types import Arrived, Joined, Plan, Report, Task

MODEL = weights([0.0, 0.0])


def rms(view: View, clients: Ids) -> np.ndarray:
    return view.clients.loss_rms[clients]


def looked_up(view: View, num: int, seed: int) -> list[int]:
    """The best by looking at everybody."""
    known = np.flatnonzero(view.is_selectable & (view.clients.num_reports > 0))
    return known[top(rms(view, known), num, generator(seed, "top"))].tolist()


class Server:
    """A manager whose clients join, start, arrive with some loss, and leave the buffer."""

    def __init__(self, num_clients: int) -> None:
        self.manager = ClientManager(MODEL.layout)
        self.num_tasks = 0
        for client in range(num_clients):
            self.join(client)

    def join(self, client: int) -> None:
        self.manager.observe(Joined(0.0, client, 10), lambda _: True)

    def do(self, client: int, loss: int, *, aggregates: bool) -> None:
        if client not in self.manager.table.free:
            return
        task_id = self.num_tasks = self.num_tasks + 1
        self.manager.start(Task(task_id, client, self.manager.version, MODEL, Plan(), 0), 0.0)
        if loss:
            arrived = Arrived(1.0, task_id, client, MODEL, Report(10, loss / 2, loss / 2))
            self.manager.observe(arrived, lambda _: True)
        if aggregates:
            self.manager.advance(1.0, [0.0] * len(self.manager.buffer))


steps = st.tuples(st.integers(0, 2 * BLOCK), st.integers(0, 4), st.booleans())


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(steps, max_size=12), max_size=6), num=st.integers(1, 9))
def test_it_follows_every_change(batches: list[list[tuple[int, int, bool]]], num: int) -> None:
    server, ranking = Server(BLOCK - 3), Ranking(rms)
    for seed, batch in enumerate(batches):
        for client, loss, aggregates in batch:
            if client >= server.manager.table.num_clients:
                server.join(client)  # the table grows under the ranking's feet
            server.do(client, loss, aggregates=aggregates)
        view = server.manager.view(1.0)
        ranking.follow(view)
        expected = looked_up(view, num, seed)
        assert ranking.top(num, generator(seed, "top")).tolist() == expected


def test_another_world_is_looked_at_anew() -> None:
    ranking = Ranking(rms)
    for seed, num_clients in ((1, 3 * BLOCK), (2, 40), (3, 600)):
        view = random_view(seed, num_clients)
        view.clients.loss_rms.flags.writeable = True
        view.clients.loss_rms[:] = np.random.default_rng(seed).random(num_clients)
        ranking.follow(view)
        assert ranking.top(5, generator(0, "top")).tolist() == looked_up(view, 5, 0)


def test_a_score_nobody_knows_is_noticed() -> None:
    server, ranking = Server(3), Ranking(rms)
    server.do(1, 2, aggregates=True)
    ranking.follow(server.manager.view(1.0))
    assert not ranking.has_unknown()
    server.manager.table.report(update(2, loss=None))
    ranking.follow(server.manager.view(1.0))
    assert ranking.has_unknown()


def test_a_guided_selector_does_not_notice_who_kept_the_scores() -> None:
    # One selector follows a server, the other meets it at the end: they pick alike.
    server, old = Server(50), Guided(exploration=0.0, min_exploration=0.0)
    for number in range(200):
        server.do(number * 7 % 50, 1 + number % 3, aggregates=number % 5 == 0)
        old.pick(server.manager.view(1.0), 1, generator(number, "before"))
    view, new = server.manager.view(1.0), Guided(exploration=0.0, min_exploration=0.0)
    assert len(view.free) > 10
    rngs = generator(0, "select"), generator(0, "select")
    assert old.pick(view, 7, rngs[0]) == new.pick(view, 7, rngs[1])

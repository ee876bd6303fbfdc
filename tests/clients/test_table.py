"""The client table: rows that appear, columns that grow, facts nobody may change."""

from __future__ import annotations

from dataclasses import fields
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import update

from pisces.clients.table import BLOCK, Changes, ClientTable, Columns, Members


def test_a_new_row_knows_nothing() -> None:
    table = ClientTable(credits=3)
    table.ensure(1)
    facts = table.facts
    assert facts.num_clients == 2
    assert not np.any([facts.present, facts.running, facts.buffered])
    assert facts.trusted.all()
    assert facts.credits.tolist() == [3, 3]
    assert facts.last_version.tolist() == [-1, -1]
    assert np.isnan([facts.loss, facts.loss_rms, facts.latency_s]).all()
    assert facts.recent_staleness.tolist() == [[-1] * 5] * 2


def test_rows_keep_what_they_know_while_the_table_grows() -> None:
    table = ClientTable()
    for client in range(100):
        table.join(client, 10 * client)
    assert table.facts.num_clients == 100
    assert table.facts.num_examples.tolist() == [10 * c for c in range(100)]
    assert len(table.free) == len(table.unseen) == 100


def test_ids_may_come_in_any_order() -> None:
    table = ClientTable()
    table.join(4, 10)
    table.ensure(2)  # there already: changes nothing
    assert table.facts.present.tolist() == [False, False, False, False, True]


def test_facts_follow_the_rows_but_cannot_be_written() -> None:
    table = ClientTable()
    table.ensure(0)
    facts = table.facts
    table.report(update(0, loss=2.5))
    assert facts.loss[0] == 2.5
    for field in fields(Columns):
        with pytest.raises(ValueError, match="read-only"):
            getattr(facts, field.name)[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        table.free.mask[0] = True


def test_growing_does_not_copy_at_every_step() -> None:
    # Doubling: 1, 2, 4 ... 1024 rows are eleven stores, not a thousand.
    table, stores = ClientTable(), set()
    for client in range(1024):
        table.ensure(client)
        stores.add(id(table.facts.loss.base))
    assert len(stores) <= 11


def test_a_crowd_joins_as_its_members_would() -> None:
    one_by_one, at_once = ClientTable(), ClientTable()
    clients, sizes = [5, 0, 3, 5], [10, 20, 30, 40]  # 5 twice: the last word counts
    for client, size in zip(clients, sizes, strict=True):
        one_by_one.join(client, size)
    at_once.join_all(np.array(clients), np.array(sizes))
    for table in (one_by_one, at_once):
        assert table.facts.num_examples.tolist() == [20, 0, 0, 30, 0, 40]
        assert table.free.mask.tolist() == [True, False, False, True, False, True]
        assert len(table.free) == len(table.unseen) == 3


def test_the_ring_holds_the_last_five() -> None:
    table = ClientTable()
    table.ensure(0)
    for staleness in (9, 1, 2, 3, 4, 5):  # the 9 falls out
        table.add_staleness(0, staleness)
    assert table.facts.recent_staleness[0].tolist() == [1, 2, 3, 4, 5]
    assert table.facts.staleness.tolist() == [3.0]


def test_the_estimate_is_the_mean_of_what_is_there() -> None:
    table = ClientTable(staleness_window=3)
    table.ensure(2)
    table.add_staleness(1, 0)
    table.add_staleness(2, 4)
    table.add_staleness(2, 1)
    # None yet: 0. A single 0: 0. (4 + 1) / 2.
    assert table.facts.staleness.tolist() == [0.0, 0.0, 2.5]


@pytest.mark.parametrize(
    ("told", "kept"),
    [(7, 7), (0, 0), (-1, 0), (10**9, 10**9), (10**30, 0), (2.5, 0), ("many", 0), (True, 0)],
)
def test_steps_are_those_of_the_last_report_if_they_can_be(told: object, kept: int) -> None:
    table = ClientTable()
    table.join(0, 10)
    table.report(update(0, num_steps=3))
    table.report(update(0, num_steps=cast(int, told)))
    assert table.facts.num_steps.tolist() == [kept]


def test_a_doubted_loss_is_what_is_usual_until_the_next() -> None:
    table = ClientTable()
    table.ensure(1)
    table.report(update(0, loss=9.0))
    table.report(update(1, loss=8.0))
    table.doubt(0, 0.5)
    assert table.facts.loss.tolist() == table.facts.loss_rms.tolist() == [0.5, 8.0]
    table.report(update(0, loss=0.7))
    assert table.facts.loss[0] == table.facts.loss_rms[0] == 0.7


def test_credits_come_back_up_to_the_first_but_not_trust() -> None:
    table = ClientTable(credits=2)
    table.ensure(1)
    table.credit(0)
    assert table.facts.credits.tolist() == [2, 2]
    assert not table.debit(0)
    table.credit(0)
    assert table.facts.credits.tolist() == [2, 2]
    assert [table.debit(0), table.debit(0)] == [False, True]
    table.credit(0)
    assert table.facts.trusted.tolist() == [False, True]


def test_a_restored_table_is_the_same_and_its_own() -> None:
    table = ClientTable(staleness_window=2)
    table.ensure(2)
    table.report(update(1, loss=0.5))
    table.add_staleness(1, 7)
    state = table.state()
    other = ClientTable(staleness_window=2)
    other.restore(state)
    table.report(update(1, loss=99.0))  # neither the saved state nor the other table hears of this
    assert other.facts.loss[1] == state.arrays["loss"][1] == 0.5
    assert other.facts.recent_staleness.tolist() == [[-1, -1], [-1, 7], [-1, -1]]
    assert other.facts.staleness.tolist() == [0.0, 7.0, 0.0]
    other.ensure(5)
    assert other.facts.num_clients == 6
    assert other.facts.loss[1] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        other.facts.loss[1] = 1.0


def test_an_empty_table_can_be_saved_too() -> None:
    other = ClientTable()
    other.restore(ClientTable().state())
    other.ensure(0)
    assert other.facts.num_clients == 1


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.integers(0, 50), max_size=12),
    window=st.integers(1, 6),
)
def test_the_estimate_is_the_mean_of_the_last_few(values: list[int], window: int) -> None:
    table = ClientTable(staleness_window=window)
    table.ensure(0)
    for value in values:
        table.add_staleness(0, value)
    last = values[-window:]
    expected = sum(last) / len(last) if last else 0.0
    assert table.facts.staleness[0] == pytest.approx(expected)


VERBS = st.sampled_from(
    ["join", "leave", "start", "end", "report", "doubt", "hold", "let go", "debit", "credit"]
)


def do(table: ClientTable, verb: str, client: int) -> None:
    match verb:
        case "join":
            table.join(client, 10)
        case "leave" | "start" | "end" | "debit" | "credit":
            getattr(table, verb)(client)
        case "doubt":
            table.doubt(client, 0.5)
        case "report":
            table.report(update(client, loss=1.0))
        case _:
            table.hold(client, waits=verb == "hold")


@settings(max_examples=80, deadline=None)
@given(steps=st.lists(st.tuples(VERBS, st.integers(0, 5)), max_size=40))
def test_the_free_are_there_trusted_and_idle_whatever_happens(steps: list[tuple[str, int]]) -> None:
    table = ClientTable(credits=2)
    table.ensure(5)
    for verb, client in steps:
        mark, before = table.changes.mark, shape_of(table)
        do(table, verb, client)
        changed = [c for c, row in enumerate(shape_of(table)) if row != before[c]]
        assert set(changed) <= set(table.changes.since(mark) or [])  # everybody can follow
    facts = table.facts
    free = facts.present & facts.trusted & ~facts.running & ~facts.buffered
    assert table.free.mask.tolist() == free.tolist()
    assert table.unseen.mask.tolist() == (free & (facts.num_reports == 0)).tolist()
    assert len(table.free) == free.sum()


def shape_of(table: ClientTable) -> list[list[str]]:
    """Every client's row but its credits, which only count once they are spent."""
    names = [f.name for f in fields(Columns) if f.name != "credits"]
    return [[str(getattr(table.facts, n)[c]) for n in names] for c in range(table.num_clients)]


# --- members and changes --------------------------------------------------------------------------


@pytest.mark.parametrize("num", [1, BLOCK, 5 * BLOCK + 7])
def test_the_nth_is_found_few_or_many_at_a_time(num: int) -> None:
    rng = np.random.default_rng(num)
    mask = rng.random(num) < 0.3
    mask[-1] = True
    members = Members(mask)
    for client in rng.integers(0, num, 50).tolist():
        mask[client] = not mask[client]
        members._put(client, bool(mask[client]))
        members._put(client, bool(mask[client]))  # it is so already
    ids = np.flatnonzero(mask)
    assert len(members) == len(ids)
    assert [c for c in range(num) if c in members] == ids.tolist()
    for wanted in (1, 3, len(ids)):
        places = rng.permutation(len(ids))[:wanted]
        assert members.nth(places).tolist() == ids[places].tolist()


def test_members_stay_while_there_are_more_clients() -> None:
    members = Members(np.array([True, False]))
    for num in (3, BLOCK, 4 * BLOCK):
        members._make_room(num)
        members._put(num - 1, True)
        assert len(members.mask) == num
    assert np.flatnonzero(members.mask).tolist() == [0, 2, BLOCK - 1, 4 * BLOCK - 1]
    assert members.nth(np.array([3, 1])).tolist() == [4 * BLOCK - 1, 2]


def test_a_reader_is_told_what_it_has_not_read() -> None:
    changes = Changes(keep=4)
    changes._note(7)
    mark = changes.mark
    assert changes.since(mark) == []
    changes._note(1)
    changes._note(2)
    assert changes.since(mark) == [1, 2]
    assert changes.since(0) == [7, 1, 2]
    for client in (3, 4):  # five are too many: the oldest two go
        changes._note(client)
    assert changes.since(mark + 1) == [2, 3, 4]
    assert changes.since(mark) is None
    changes._note_everybody()
    assert changes.since(changes.mark - 1) is None
    assert changes.since(changes.mark) == []

"""The client table: rows that appear, columns that grow, facts nobody may change."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.clients.table import ClientTable, Columns


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
        table.ensure(client)
        table.rows.num_examples[client] = 10 * client
    assert table.facts.num_clients == 100
    assert table.facts.num_examples.tolist() == [10 * c for c in range(100)]


def test_ids_may_come_in_any_order() -> None:
    table = ClientTable()
    table.ensure(4)
    table.rows.present[4] = True
    table.ensure(2)  # there already: changes nothing
    assert table.facts.present.tolist() == [False, False, False, False, True]


def test_facts_follow_the_rows_but_cannot_be_written() -> None:
    table = ClientTable()
    table.ensure(0)
    facts = table.facts
    table.rows.loss[0] = 2.5
    assert facts.loss[0] == 2.5
    for field in fields(Columns):
        with pytest.raises(ValueError, match="read-only"):
            getattr(facts, field.name)[0] = 1


def test_growing_does_not_copy_at_every_step() -> None:
    # Doubling: 1, 2, 4 ... 1024 rows are eleven stores, not a thousand.
    table, stores = ClientTable(), set()
    for client in range(1024):
        table.ensure(client)
        stores.add(id(table.rows.loss.base))
    assert len(stores) <= 11


def test_the_ring_holds_the_last_five() -> None:
    table = ClientTable()
    table.ensure(0)
    for staleness in (9, 1, 2, 3, 4, 5):  # the 9 falls out
        table.add_staleness(0, staleness)
    assert table.facts.recent_staleness[0].tolist() == [1, 2, 3, 4, 5]
    assert table.facts.staleness_estimate().tolist() == [3.0]


def test_the_estimate_is_the_mean_of_what_is_there() -> None:
    table = ClientTable(staleness_window=3)
    table.ensure(2)
    table.add_staleness(1, 0)
    table.add_staleness(2, 4)
    table.add_staleness(2, 1)
    # None yet: 0. A single 0: 0. (4 + 1) / 2.
    assert table.facts.staleness_estimate().tolist() == [0.0, 0.0, 2.5]


def test_a_restored_table_is_the_same_and_its_own() -> None:
    table = ClientTable(staleness_window=2)
    table.ensure(2)
    table.rows.loss[1] = 0.5
    table.add_staleness(1, 7)
    state = table.state()
    other = ClientTable(staleness_window=2)
    other.restore(state)
    table.rows.loss[1] = 99.0  # neither the saved state nor the other table hears of this
    assert other.facts.loss[1] == state.arrays["loss"][1] == 0.5
    assert other.facts.recent_staleness.tolist() == [[-1, -1], [-1, 7], [-1, -1]]
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
    assert table.facts.staleness_estimate()[0] == pytest.approx(expected)

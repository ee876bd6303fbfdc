"""Every protocol has a row, and is what its row says."""

from __future__ import annotations

import ast
import inspect

import pytest
from worlds import view

from conformance.scenes import C
from conformance.table import ROWS
from pisces.names import PROTOCOLS

every_protocol = pytest.mark.parametrize("name", PROTOCOLS)


@every_protocol
def test_every_protocol_has_a_row(name: str) -> None:
    assert name in ROWS, (
        f"the protocol {name!r} has no row: add {name!r}: Row(who=..., when=..., how=...) to ROWS "
        "in tests/conformance/table.py, with what its policies answer in the scenes, by hand"
    )


def test_every_row_has_a_protocol() -> None:
    assert ROWS.keys() <= PROTOCOLS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_it_is_the_composition_its_row_says(name: str) -> None:
    made, row = PROTOCOLS[name](C), ROWS[name]
    parts = made.selector, made.pacer, made.aggregator, made.judge
    kinds = tuple(None if part is None else type(part).__name__ for part in parts)
    assert kinds == (row.who.kind, row.when.kind, row.how.kind, row.judge)


@every_protocol
def test_it_says_what_it_is_and_fills_every_seat_from_the_start(name: str) -> None:
    assert PROTOCOLS[name].__doc__
    assert PROTOCOLS[name](20).pacer.slots(view([10] * 30)) == 20


@every_protocol
def test_every_call_makes_new_policies(name: str) -> None:
    # Policies remember: two runs must not share one.
    one, other = PROTOCOLS[name](C), PROTOCOLS[name](C)
    assert one.selector is not other.selector
    assert one.pacer is not other.pacer
    assert one.aggregator is not other.aggregator
    assert one.judge is None or one.judge is not other.judge


@every_protocol
def test_it_is_one_short_composition(name: str) -> None:
    function = ast.parse(inspect.getsource(inspect.unwrap(PROTOCOLS[name]))).body[0]
    assert isinstance(function, ast.FunctionDef)
    said, *body = function.body
    assert isinstance(said, ast.Expr)  # what it is, and whose
    assert body[-1].end_lineno is not None
    assert body[-1].end_lineno - body[0].lineno < 10

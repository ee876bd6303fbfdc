"""Words over the wire: there and back, and whatever else comes is refused in one way."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pisces.execute.network
from pisces.execute.network.coding import from_client, from_server, to_client, to_server
from pisces.execute.network.messages import (
    ENCODINGS,
    LARGEST,
    MOST_TASKS,
    MOST_TEXT,
    Acknowledged,
    Beat,
    Bye,
    CalledOff,
    Chunk,
    Content,
    Failure,
    Hello,
    Order,
    Over,
    Pull,
    Result,
    Welcome,
    WireError,
)
from pisces.execute.network.wire import ToClient, ToServer
from pisces.types import Layout, Plan, Report, Slice

numbers = st.integers(0, LARGEST - 1)
sizes = st.integers(1, LARGEST - 1)
floats = st.floats(allow_nan=False)
halves = st.floats(allow_nan=False, allow_infinity=False, width=32)
words = st.text(st.characters(codec="utf-8").filter(str.isprintable), max_size=30).map(
    lambda text: " ".join(text.split())
)
tasks = st.lists(numbers, max_size=5).map(tuple)
encodings = st.sampled_from(ENCODINGS)
announced = st.builds(Content, encodings, numbers, st.booleans(), halves)
whole = st.binary(max_size=50).flatmap(
    lambda data: st.builds(
        Content, encodings, st.just(len(data)), st.booleans(), halves, st.just(data)
    )
)
contents = announced | whole
reports = st.builds(
    Report, numbers, st.none() | floats, st.none() | floats, numbers, st.none() | floats
)
positive = st.floats(0, exclude_min=True, allow_nan=False, allow_infinity=False)
plans = st.builds(Plan, sizes, sizes, positive, st.just(0.0) | positive, st.none() | numbers)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    slices, start = [], 0
    shapes = st.lists(st.integers(0, 9), max_size=3)
    for shape in draw(st.lists(shapes, max_size=4)):
        stop = start + math.prod(shape)
        role = draw(st.sampled_from(["parameter", "buffer"]))
        dtype = draw(st.sampled_from(["float32", "float64", "float16"]))
        slices.append(Slice(draw(words), tuple(shape), dtype, role, start, stop))
        start = stop
    aliases = draw(st.lists(st.tuples(words, words), max_size=2))
    return Layout(tuple(slices), tuple(aliases), tuple(draw(st.lists(words, max_size=2))))


of_clients = st.one_of(
    st.builds(
        Hello,
        *(numbers, words, st.none() | numbers, words, tasks, tasks),
        *(st.booleans(), st.booleans(), st.integers(0, 2**32 - 1)),
    ),
    st.builds(Result, numbers, reports, contents, st.integers(0, 2**32 - 1)),
    st.builds(Chunk, st.binary(max_size=50)),
    st.builds(Failure, numbers, words),
    st.just(Beat()),
    st.just(Bye()),
)
of_servers = st.one_of(
    st.builds(
        Welcome,
        *(numbers, words, layouts(), st.text(st.characters(codec="utf-8"))),
        *(positive, tasks, tasks, encodings, st.booleans()),
    ),
    st.builds(Order, numbers, numbers, plans, numbers, st.none() | contents),
    st.builds(Chunk, st.binary(max_size=50)),
    st.builds(Acknowledged, numbers),
    st.builds(CalledOff, numbers, words),
    st.builds(Pull, numbers),
    st.just(Beat()),
    st.builds(Over, words, st.booleans()),
)


@given(of_clients)
def test_what_a_client_says_is_what_the_server_hears(said: Any) -> None:
    assert from_client(to_server(said)) == said


@given(of_servers)
def test_what_the_server_says_is_what_a_client_hears(said: Any) -> None:
    assert from_server(to_client(said)) == said


@given(st.binary(max_size=200))
def test_any_bytes_are_a_word_or_an_error_of_the_wire(data: bytes) -> None:
    for read in (from_client, from_server):
        with contextlib.suppress(WireError):
            read(data)


@given(of_clients, st.data())
def test_damaged_words_are_words_or_errors_of_the_wire(said: Any, data: st.DataObject) -> None:
    message = bytearray(to_server(said))
    at = data.draw(st.integers(0, len(message) - 1))
    message[at] = data.draw(st.integers(0, 255))
    try:
        from_client(bytes(message))
        from_client(bytes(message[:at]))
    except WireError:
        pass


def test_says_nothing_known() -> None:
    with pytest.raises(WireError, match="nothing known"):
        from_client(b"")
    with pytest.raises(WireError, match="cannot be read"):
        from_client(b"\xff")
    with pytest.raises(WireError, match="nothing known"):
        from_server(to_client(Over("", again=False))[:0])


def hello(**fields: Any) -> bytes:
    message = ToServer()
    message.hello.SetInParent()
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(message.hello, name).extend(value)
        else:
            setattr(message.hello, name, value)
    return bytes(message.SerializeToString())


def test_huge_numbers_and_lists_are_refused() -> None:
    from_client(hello(num_examples=LARGEST - 1, holds=[0] * MOST_TASKS))
    with pytest.raises(WireError, match="beyond 2\\^63"):
        from_client(hello(num_examples=LARGEST))
    with pytest.raises(WireError, match="beyond 2\\^63"):
        from_client(hello(wished=2**64 - 1))
    with pytest.raises(WireError, match="1001 tasks, more than 1000"):
        from_client(hello(trains=[0] * (MOST_TASKS + 1)))


def test_texts_are_of_one_line_and_not_long() -> None:
    said = from_client(to_server(Failure(1, "a\nforged\x1b\r\nline " + "x" * 5000)))
    assert isinstance(said, Failure)
    assert len(said.reason) <= MOST_TEXT
    assert said.reason.startswith("a forged line xxx")
    assert from_client(to_server(Failure(1, "\udcff"))) == Failure(1, "?")


@pytest.mark.parametrize("scale", [math.inf, -math.inf, math.nan])
def test_a_scale_is_finite(scale: float) -> None:
    with pytest.raises(WireError, match="a scale of"):
        from_client(to_server(Result(0, Report(1), Content("float16", 2, scale=scale), 0)))


def test_an_unknown_encoding_is_refused() -> None:
    message = ToServer()
    message.result.content.encoding = 3
    with pytest.raises(WireError, match="an unknown encoding, 3"):
        from_client(message.SerializeToString())
    message.result.content.encoding = -1
    with pytest.raises(WireError, match="an unknown encoding, -1"):
        from_client(message.SerializeToString())


@pytest.mark.parametrize("beat_s", [0.0, -1.0, math.inf, math.nan])
def test_a_server_that_wants_no_beats_is_refused(beat_s: float) -> None:
    welcome = Welcome(0, "", Layout(()), beat_s=beat_s)
    with pytest.raises(WireError, match="a beat every"):
        from_server(to_client(welcome))


def test_a_plan_nobody_can_follow_is_refused() -> None:
    message = ToClient()
    message.order.plan.learning_rate = 0.1
    with pytest.raises(WireError, match="at least 1 epoch"):
        from_server(message.SerializeToString())


def test_the_descriptor_is_that_of_the_protocol(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    script = Path(__file__).parents[3] / "scripts/wire.py"
    spec = importlib.util.spec_from_file_location("wire_script", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.make(tmp_path / "wire.binpb") == 0
    kept = Path(pisces.execute.network.__path__[0]) / "wire.binpb"
    assert (tmp_path / "wire.binpb").read_bytes() == kept.read_bytes()


IN_PYTHON = """
from google.protobuf.internal import api_implementation
assert api_implementation.Type() == "python"
from pisces.execute.network.coding import from_client, from_server, to_client, to_server
from pisces.execute.network.messages import *
said = Hello(10, name="a", wished=3, holds=(1, 2))
assert from_client(to_server(said)) == said
told = Order(1, 2, Plan(), 3, Content("float32", 16))
assert from_server(to_client(told)) == told
for data in (b"", b"\\xff", b"\\x0a\\xff", b"\\x0a\\x02\\x12\\xff", b"\\x0a\\x03\\x12\\x01\\xff"):
    try:
        from_client(data)
    except WireError:
        continue
    raise AssertionError(data)
from random import Random
chance, whole = Random(1), [to_server(said), to_server(Result(1, Report(2, 0.5), told.content, 9))]
for _ in range(3000):
    data = bytearray(chance.choice([*whole, chance.randbytes(30)]))
    data[chance.randrange(len(data))] = chance.randrange(256)
    try:
        from_client(bytes(data[: chance.randrange(len(data) + 1)]))
    except WireError:
        pass
"""


def test_works_with_protobuf_in_plain_python() -> None:
    surroundings = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run(
        [sys.executable, "-c", IN_PYTHON], env=surroundings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

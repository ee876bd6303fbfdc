"""Messages as bytes, by protobuf, and back; what cannot have been meant is refused.

Nothing else in the house sees protobuf. A message that cannot be read raises `WireError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pisces.errors import ConfigError
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
    FromClient,
    FromServer,
    Hello,
    Order,
    Over,
    Pull,
    Result,
    Welcome,
    WireError,
)
from pisces.execute.network.wire import DecodeError, ToClient, ToServer
from pisces.types import Layout, Plan, Report, Slice

# --- writing --------------------------------------------------------------------------------------


def to_server(said: FromClient) -> bytes:
    """What a client says, as bytes."""
    message = ToServer()
    match said:
        case Hello():
            names = ("num_examples", "name", "wished", "run", "pulls", "zstd", "protocol")
            _fill(message.hello, said, names)
            message.hello.holds.extend(said.holds)
            message.hello.trains.extend(said.trains)
        case Result():
            _fill(message.result, said, ("task", "layout"))
            _fill(message.result.report, said.report, _REPORT)
            _fill_content(message.result.content, said.content)
        case Chunk():
            message.chunk.data = said.data
        case Failure():
            _fill(message.failed, said, ("task", "reason"))
        case Beat():
            message.beat.SetInParent()
        case Bye():
            message.bye.SetInParent()
    return bytes(message.SerializeToString())


def to_client(said: FromServer) -> bytes:
    """What the server says, as bytes."""
    message = ToClient()
    match said:
        case Welcome():
            _fill_welcome(message.welcome, said)
        case Order():
            _fill(message.order, said, ("task", "version", "seed"))
            _fill(message.order.plan, said.plan, _PLAN)
            if said.content is not None:
                _fill_content(message.order.content, said.content)
        case Chunk():
            message.chunk.data = said.data
        case Acknowledged():
            message.acknowledged.task = said.task
            message.acknowledged.SetInParent()
        case CalledOff():
            _fill(message.called_off, said, ("task", "reason"))
        case Pull():
            message.pull.task = said.task
            message.pull.SetInParent()
        case Beat():
            message.beat.SetInParent()
        case Over():
            _fill(message.over, said, ("reason", "again"))
    return bytes(message.SerializeToString())


_REPORT = ("num_examples", "loss", "loss_rms", "num_steps", "loss_left")
_PLAN = ("epochs", "batch_size", "learning_rate", "proximal", "max_steps")


def _fill(message: Any, values: object, names: tuple[str, ...]) -> None:
    message.SetInParent()  # there even if all of it is zero
    for name in names:
        value = getattr(values, name)
        if isinstance(value, str):
            value = value.encode(errors="replace").decode()  # a lone surrogate cannot be sent
        if value is not None:
            setattr(message, name, value)


def _fill_content(message: Any, content: Content) -> None:
    _fill(message, content, ("num_bytes", "zstd", "scale", "data"))
    message.encoding = ENCODINGS.index(content.encoding)


def _fill_welcome(message: Any, said: Welcome) -> None:
    _fill(message, said, ("number", "run", "settings", "beat_s", "zstd"))
    message.encoding = ENCODINGS.index(said.encoding)
    message.wanted.extend(said.wanted)
    message.settled.extend(said.settled)
    for s in said.layout.slices:
        message.layout.slices.add(
            name=s.name, shape=s.shape, dtype=s.dtype, buffer=s.role == "buffer"
        )
    for name, of in said.layout.aliases:
        message.layout.aliases.add(name=name, of=of)
    message.layout.counters.extend(said.layout.counters)


# --- reading --------------------------------------------------------------------------------------


def from_client(data: bytes) -> FromClient:
    """What a client said; `WireError` if nobody says that."""
    kind, said = _said(ToServer, data)
    read: Mapping[str, Callable[[Any], FromClient]] = {
        "hello": _hello,
        "result": _result,
        "chunk": lambda m: Chunk(m.data),
        "failed": lambda m: Failure(_number(m.task), _text(m.reason)),
        "beat": lambda _: Beat(),
        "bye": lambda _: Bye(),
    }
    return read[kind](said)


def from_server(data: bytes) -> FromServer:
    """What the server said; `WireError` if no server says that."""
    kind, said = _said(ToClient, data)
    read: Mapping[str, Callable[[Any], FromServer]] = {
        "welcome": _welcome,
        "order": _order,
        "chunk": lambda m: Chunk(m.data),
        "acknowledged": lambda m: Acknowledged(_number(m.task)),
        "called_off": lambda m: CalledOff(_number(m.task), _text(m.reason)),
        "pull": lambda m: Pull(_number(m.task)),
        "beat": lambda _: Beat(),
        "over": lambda m: Over(_text(m.reason), m.again),
    }
    return read[kind](said)


def _said(of: Any, data: bytes) -> tuple[str, Any]:
    try:
        message = of.FromString(data)
    except (DecodeError, ValueError) as error:  # the latter where protobuf is plain Python
        raise WireError("a message that cannot be read") from error
    kind = message.WhichOneof("said")
    if kind is None:
        raise WireError("a message that says nothing known")
    return kind, getattr(message, kind)


def _number(value: int) -> int:
    if value >= LARGEST:
        raise WireError(f"a number of {value}, beyond 2^63")
    return value


def _numbers(values: Any) -> tuple[int, ...]:
    if len(values) > MOST_TASKS:
        raise WireError(f"{len(values)} tasks, more than {MOST_TASKS}")
    return tuple(map(_number, values))


def _text(value: str) -> str:
    """Shortened, in one line and without control characters: it goes to logs."""
    return " ".join("".join(c if c.isprintable() else " " for c in value[:MOST_TEXT]).split())


def _optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _hello(m: Any) -> Hello:
    wished = _optional(m, "wished")
    return Hello(
        num_examples=_number(m.num_examples),
        name=_text(m.name),
        wished=None if wished is None else _number(wished),
        run=_text(m.run),
        holds=_numbers(m.holds),
        trains=_numbers(m.trains),
        pulls=m.pulls,
        zstd=m.zstd,
        protocol=m.protocol,
    )


def _result(m: Any) -> Result:
    told = m.report
    report = Report(
        num_examples=_number(told.num_examples),
        loss=_optional(told, "loss"),
        loss_rms=_optional(told, "loss_rms"),
        num_steps=_number(told.num_steps),
        loss_left=_optional(told, "loss_left"),
    )
    return Result(_number(m.task), report, _content(m.content), m.layout)


def _content(m: Any) -> Content:
    if not 0 <= m.encoding < len(ENCODINGS):
        raise WireError(f"an unknown encoding, {m.encoding}")
    if not math.isfinite(m.scale):
        raise WireError(f"a scale of {m.scale}")
    if m.data and len(m.data) != m.num_bytes:
        raise WireError(f"{len(m.data)} bytes where {m.num_bytes} were announced")
    return Content(ENCODINGS[m.encoding], _number(m.num_bytes), m.zstd, m.scale, m.data)


def _welcome(m: Any) -> Welcome:
    if not (0 < m.beat_s < math.inf and 0 <= m.encoding < len(ENCODINGS)):
        raise WireError(f"a beat every {m.beat_s} s, encoding {m.encoding}")
    return Welcome(
        number=_number(m.number),
        run=_text(m.run),
        layout=_layout(m.layout),
        settings=m.settings,
        beat_s=m.beat_s,
        wanted=_numbers(m.wanted),
        settled=_numbers(m.settled),
        encoding=ENCODINGS[m.encoding],
        zstd=m.zstd,
    )


def _layout(m: Any) -> Layout:
    slices, start = [], 0
    for s in m.slices:
        stop = _number(start + math.prod(s.shape))
        role: Literal["parameter", "buffer"] = "buffer" if s.buffer else "parameter"
        slices.append(Slice(s.name, tuple(s.shape), s.dtype, role, start, stop))
        start = stop
    aliases = tuple((alias.name, alias.of) for alias in m.aliases)
    return Layout(tuple(slices), aliases, tuple(m.counters))


def _order(m: Any) -> Order:
    p = m.plan
    max_steps = _number(p.max_steps) if p.HasField("max_steps") else None
    epochs, batch_size = _number(p.epochs), _number(p.batch_size)
    try:
        plan = Plan(epochs, batch_size, p.learning_rate, p.proximal, max_steps)
    except ConfigError as error:
        raise WireError(str(error)) from error
    return Order(
        task=_number(m.task),
        version=_number(m.version),
        plan=plan,
        seed=_number(m.seed),
        content=_content(m.content) if m.HasField("content") else None,
    )

"""What is said over the wire, as frozen values: the conversation of a client and a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from pisces.types import Layout, Plan, Report

PROTOCOL = 1
LARGEST = 1 << 63
MOST_TASKS = 1000  # that a client may hold or train, and tell of
MOST_TEXT = 1000  # characters of a reason or a name
Encoding: TypeAlias = Literal["float32", "float64", "float16"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)  # in the order of their numbers


class WireError(Exception):
    """The other side said what nobody says."""


@dataclass(frozen=True, slots=True)
class Content:
    """Numbers in a certain encoding: their bytes, or word that they follow in chunks."""

    encoding: Encoding
    num_bytes: int
    zstd: bool = False
    scale: float = 0.0  # float16: what was added to the weights it began from, divided by this
    data: bytes = field(default=b"", repr=False)  # all of it; empty: it follows


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next part of what was announced."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Beat:
    """Still there."""


# --- what a client says ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """A client introduces itself, and tells what it has of a run it was in before."""

    num_examples: int
    name: str = ""  # heeded only where there are no certificates
    wished: int | None = None  # the number it would like to have
    run: str = ""
    holds: tuple[int, ...] = ()  # tasks of that run whose results it keeps
    trains: tuple[int, ...] = ()  # tasks of that run it is at
    pulls: bool = False
    zstd: bool = False
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Result:
    """A task is done; its weights follow."""

    task: int
    report: Report
    content: Content
    layout: int  # the digest of the one its numbers are in


@dataclass(frozen=True, slots=True)
class Failure:
    """A task cannot be done."""

    task: int
    reason: str


@dataclass(frozen=True, slots=True)
class Bye:
    """The client goes, and says so."""


# --- what the server says -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcome:
    """A client is taken in; what was wanted of what it holds is to be sent, the rest kept."""

    number: int
    run: str
    layout: Layout
    settings: str = ""
    beat_s: float = 30.0
    wanted: tuple[int, ...] = ()
    settled: tuple[int, ...] = ()  # to be forgotten
    encoding: Encoding = "float32"  # of results
    zstd: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """A task; the weights to begin from follow, unless the client has them."""

    task: int
    version: int
    plan: Plan
    seed: int
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A result is safe, or not wanted: forget it."""

    task: int


@dataclass(frozen=True, slots=True)
class CalledOff:
    """Nobody waits for this task any more."""

    task: int
    reason: str


@dataclass(frozen=True, slots=True)
class Pull:
    """Hand in what there is of this task."""

    task: int


@dataclass(frozen=True, slots=True)
class Over:
    """The run is over, or its server goes away and may come `again`."""

    reason: str
    again: bool


FromClient: TypeAlias = Hello | Result | Chunk | Failure | Beat | Bye
FromServer: TypeAlias = Welcome | Order | Chunk | Acknowledged | CalledOff | Pull | Beat | Over

"""Bad input of every kind, and the law it is held to: a clear line, or it works; nothing else.

`obeyed` runs the command line in this process. It may work, or end with our error in one line (or
one for each wrong key) and its exit code. It never shows a traceback, and changes or leaves no file
but in the folders it was told to write to; where it refuses, there neither.
"""

from __future__ import annotations

import copy
import json
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from pisces.cli.main import main

WORKED = {0, 1, 3}  # 1: a dataset that was checked is damaged; 3: no client was left
REFUSED = 2
LONGEST = 1500  # characters of a line people are to read
MANY = 50  # times as many examples where there is time

# What no key is meant to hold, or not every key.
ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 3, 255, 2**31, 2**63, -(10**18), 10**40),
    *(0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"), -float("inf")),
    *("", "x", "nan", "../../x", "/x", "a/b", "-x", "\x00", "\n", "ü", "\ud800", "y" * 3000),
    *([], [1], [[]], [None], ["x"], {}, {"x": 1}, {"": {}}, [[[[[[[[[[]]]]]]]]]]),
]


def few(num: int) -> settings:
    """So many examples, however long one takes; the first that fails is told as it is."""
    return settings(
        max_examples=num,
        phases=[Phase.explicit, Phase.generate],
        report_multiple_bugs=False,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


def pisces(*args: Any) -> Said:
    """`pisces ARGS` in this process; whatever it raises but an exit goes on."""
    out, err, before = StringIO(), StringIO(), sys.argv
    sys.argv = ["pisces", *map(str, args)]
    code = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
    return Said(code, out.getvalue(), err.getvalue())


def obeyed(folder: Path, *args: Any, writes: Sequence[Path] = ()) -> Said:
    """What a command says that may write to `writes` and else leaves `folder` as it is."""
    before = contents(folder, writes)
    said = pisces(*args)
    assert contents(folder, writes) == before, "it changed what is not its own"
    assert said.code in WORKED | {REFUSED}, said
    if said.code == REFUSED:
        errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
        assert errors, said
        assert max(map(len, errors)) <= LONGEST, said
    assert "Traceback" not in said.out + said.err
    assert not list(folder.rglob("*.part")), "something is half-written"
    return said


def contents(folder: Path, besides: Sequence[Path] = ()) -> dict[Path, bytes | str | None]:
    """Every file below a folder, and what is in it; links by where they lead."""
    found: dict[Path, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        if not any(path.is_relative_to(other) for other in besides):
            found[path] = _content(path)
    return found


def _content(path: Path) -> bytes | str | None:
    if path.is_symlink():
        return os.readlink(path)
    return path.read_bytes() if path.is_file() else None


# --- changes --------------------------------------------------------------------------------------


@st.composite
def changed_tree(draw: st.DrawFn, tree: Any, num: int = 2) -> Any:
    """A tree of tables, lists and values with something odd in up to `num` places."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, num))):
        tree = _changed(draw, tree)
    return tree


def _changed(draw: st.DrawFn, tree: Any) -> Any:
    """One place of it: removed, odd, or odd further down."""
    if not isinstance(tree, dict | list) or not tree or draw(st.integers(0, 9)) == 0:
        return _odd(draw)
    keys = sorted(tree) if isinstance(tree, dict) else range(len(tree))
    key = draw(st.sampled_from(keys))
    match draw(st.integers(0, 9)):
        case 0:
            del tree[key]
        case 1 if isinstance(tree, dict):
            tree[draw(st.sampled_from(["x", "", "kind", "at", "a.b"]))] = _odd(draw)
        case _:
            tree[key] = _changed(draw, tree[key])
    return tree


def _odd(draw: st.DrawFn) -> Any:
    return copy.deepcopy(draw(st.sampled_from(ODD)))  # it may be changed in turn


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes cut, flipped, overwritten, doubled or filled up."""
    text = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(text) - 1)))
        match draw(st.sampled_from(["cut", "flip", "ones", "zeros", "huge", "double", "more"])):
            case "cut":
                del text[at:]
            case "flip":
                text[at : at + 1] = bytes(b ^ (1 << at % 8) for b in text[at : at + 1])
            case "ones":
                text[at : at + 4] = b"\xff" * len(text[at : at + 4])
            case "zeros":
                text[at : at + 8] = bytes(len(text[at : at + 8]))
            case "huge":
                text[at : at + 8] = b"\x7f" + b"\xff" * 7
            case "double":
                text[at:at] = text[at : at + 64]
            case "more":
                text += draw(st.binary(max_size=16)) * 8
    return bytes(text)


def as_json(value: Any) -> bytes:
    """JSON as Python writes and reads it: also what is no number."""
    return json.dumps(value).encode()


@contextmanager
def little_memory(more: int = 1 << 30) -> Iterator[None]:
    """Let nobody take more than so many bytes beyond what is taken already."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

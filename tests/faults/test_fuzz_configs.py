"""Configs, `--set` and traces that nobody would write: refused in a line each, nothing left behind.

Nothing is run: a config may well ask for a run without end. All up to that is done, as `pisces run`
does it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import killing
import pytest
import safetensors.torch
import tomlkit
import torch
from fuzzing import (
    MANY,
    ODD,
    REFUSED,
    changed_tree,
    damaged_bytes,
    few,
    little_memory,
    obeyed,
    pisces,
)
from hypothesis import given
from hypothesis import strategies as st

from pisces import config as cfg
from pisces import resuming

NUM = 25
TREE = {**tomlkit.parse(killing.CONFIG).unwrap(), "protocols": {"pisces": {"pace": "adaptive"}}}
KEYS = [key for key in cfg.all_keys() if key not in ("clients.count", "data.dataset")]


@pytest.fixture(autouse=True)
def _only_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ends where it would begin."""

    class BuiltError(Exception):
        """Everything is there."""

        def format_message(self) -> str:
            return "built"

    def run(*args: Any, **options: Any) -> None:
        raise BuiltError

    monkeypatch.setattr(resuming, "run", run)


def refused_or_built(folder: Path, *sets: str) -> str:
    said = obeyed(folder, "run", folder / "x.toml", "--out", folder / "out", *sets)
    assert said.code == REFUSED  # or built
    assert not (folder / "out").exists()
    return said.err


def fuzz_tree(folder: Path, data: st.DataObject) -> None:
    tree = data.draw(changed_tree(TREE))
    try:
        text = tomlkit.dumps(tree).encode()
    except Exception:  # no TOML can say that
        text = data.draw(damaged_bytes(killing.CONFIG.encode()))
    (folder / "x.toml").write_bytes(text)
    refused_or_built(folder)


def fuzz_bytes(folder: Path, data: st.DataObject) -> None:
    (folder / "x.toml").write_bytes(data.draw(damaged_bytes(killing.CONFIG.encode())))
    refused_or_built(folder)


def fuzz_set(folder: Path, data: st.DataObject) -> None:
    (folder / "x.toml").write_text(killing.CONFIG)
    key = data.draw(st.sampled_from(KEYS) | st.text(max_size=8))
    value = data.draw(st.sampled_from(ODD).map(_as_toml) | st.text(max_size=8))
    refused_or_built(folder, f"--set={key}={value}")


def _as_toml(value: Any) -> str:
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


HOW = {"tree": fuzz_tree, "bytes": fuzz_bytes, "set": fuzz_set}


@pytest.mark.parametrize("how", HOW)
@given(data=st.data())
@few(NUM)
def test_odd_configs(tmp_path: Path, how: str, data: st.DataObject) -> None:
    HOW[how](tmp_path, data)


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@given(data=st.data())
@few(NUM * MANY)
def test_many_odd_configs(tmp_path: Path, how: str, data: st.DataObject) -> None:
    HOW[how](tmp_path, data)


@pytest.mark.parametrize(
    "text",
    [
        b"x = " + b"[" * 100_000,
        b"[" * 100_000,
        b"a" + b".a" * 100_000 + b" = 1",
        b"seed = " + b"9" * 10_000,
        b"seed = 1979-99-99",
        b"seed = 25:00:00",
        b"\xff\xfe",
        b"seed = \x00",
        b"# " + b"x" * (10 << 20),
        b"protocol = '" + b"x" * (10 << 20) + b"'",
        b"[data]\nsizes = [" + b"1," * 10_000 + b"]",
    ],
    ids=[
        "lists",
        "tables",
        "dots",
        "digits",
        "date",
        "time",
        "bytes",
        "nul",
        "remark",
        "word",
        "sizes",
    ],
)
def test_configs_without_end(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "x.toml").write_bytes(text)
    with little_memory():
        refused_or_built(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        "model.hidden=[1000000000000]",
        "model.hidden=[4000000000, 4000000000]",
        "x" * 100_000,
        "a." * 10_000 + "b=1",
        "seed=" + "[" * 100_000,
        "seed=" + "9" * 10_000,
        f"protocol={'x' * 100_000}",
        "latency.kind=" + "x" * 100_000,
    ],
    ids=lambda change: change[:24],
)
def test_changes_without_end(tmp_path: Path, change: str) -> None:
    (tmp_path / "x.toml").write_text(killing.CONFIG)
    with little_memory():
        assert "built" not in refused_or_built(tmp_path, f"--set={change}")


# --- weights to start from ------------------------------------------------------------------------


def fuzz_weights(folder: Path, data: st.DataObject) -> None:
    (folder / "x.toml").write_text(killing.CONFIG)
    shapes = {"0.weight": (64, 64), "0.bias": (64,), "2.weight": (10, 64), "2.bias": (10,)}
    tensors = {name: torch.ones(shape) for name, shape in shapes.items()}
    name = data.draw(st.sampled_from(sorted(tensors)))
    match data.draw(st.sampled_from(["bytes", "without", "shape", "type", "more"])):
        case "without":
            del tensors[name]
        case "shape":
            tensors[name] = torch.ones(data.draw(st.sampled_from([(), (0,), (1, 1, 1), (65,)])))
        case "type":
            tensors[name] = tensors[name].to(data.draw(st.sampled_from(TYPES)))
        case "more":
            tensors[data.draw(st.text(max_size=5))] = torch.ones(2)
    content = safetensors.torch.save(tensors)
    (folder / "w.safetensors").write_bytes(data.draw(st.just(content) | damaged_bytes(content)))
    with little_memory():
        refused_or_built(folder, f"--set=model.weights={folder / 'w.safetensors'}")


TYPES = [torch.float64, torch.int64, torch.bool, torch.complex64, torch.bfloat16]


@given(data=st.data())
@few(NUM)
def test_odd_weights(tmp_path: Path, data: st.DataObject) -> None:
    fuzz_weights(tmp_path, data)


@pytest.mark.long
@given(data=st.data())
@few(NUM * MANY)
def test_many_odd_weights(tmp_path: Path, data: st.DataObject) -> None:
    fuzz_weights(tmp_path, data)


# --- traces ---------------------------------------------------------------------------------------

CSV = "client,latency_s\n" + "".join(f"{n},{n + 1.5}\n" for n in range(24))
SESSIONS = "client,joins_at,leaves_at\n" + "".join(f"{n},{n},{n + 50.5}\n" for n in range(24))
BY_CLIENT = {str(n): [n + 0.5, n + 1.5] for n in range(24)}
TRACES = {
    "latency": ("trace.csv", CSV.encode(), "latency={{kind='trace', path='{}'}}"),
    "latency.json": (
        "trace.json",
        json.dumps(BY_CLIENT).encode(),
        "latency={{kind='trace', path='{}'}}",
    ),
    "sessions": ("trace.csv", SESSIONS.encode(), "availability={{kind='trace', path='{}'}}"),
}


def fuzz_trace(folder: Path, kind: str, data: st.DataObject) -> None:
    name, content, change = TRACES[kind]
    (folder / "x.toml").write_text(killing.CONFIG)
    path = folder / name
    if name.endswith(".json") and data.draw(st.booleans()):
        path.write_text(json.dumps(data.draw(changed_tree(json.loads(content)))))
    else:
        path.write_bytes(data.draw(damaged_bytes(content)))
    with little_memory():
        refused_or_built(folder, f"--set={change.format(path)}")


@pytest.mark.parametrize("kind", TRACES)
def test_a_good_trace_is_built(tmp_path: Path, kind: str) -> None:
    name, content, change = TRACES[kind]
    (tmp_path / "x.toml").write_text(killing.CONFIG)
    (tmp_path / name).write_bytes(content)
    said = pisces("run", tmp_path / "x.toml", f"--set={change.format(tmp_path / name)}")
    assert "built" in said.err


@pytest.mark.parametrize("kind", TRACES)
@given(data=st.data())
@few(NUM)
def test_odd_traces(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    fuzz_trace(tmp_path, kind, data)


@pytest.mark.long
@pytest.mark.parametrize("kind", TRACES)
@given(data=st.data())
@few(NUM * MANY)
def test_many_odd_traces(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    fuzz_trace(tmp_path, kind, data)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.json", "[" * 100_000),
        ("x.json", "[" + "9" * 10_000 + "]"),
        ("x.csv", "client,latency_s\n" + "9" * 10_000 + ",1\n"),
        ("x.csv", "client,latency_s\n99999999999999,1\n"),
        ("x.csv", "client,latency_s\n0,'" + "x" * (1 << 20) + "\n"),
        ("x.csv", "x" * (10 << 20)),
    ],
)
def test_traces_without_end(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "x.toml").write_text(killing.CONFIG)
    (tmp_path / name).write_text(text)
    with little_memory():
        said = refused_or_built(
            tmp_path, f"--set=latency={{kind='trace', path='{tmp_path / name}'}}"
        )
    assert "built" not in said

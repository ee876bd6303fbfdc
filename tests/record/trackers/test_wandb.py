"""Weights & Biases: what is asked of its package, and what that, where it is here, makes of it."""

from __future__ import annotations

import importlib.util
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from trackedruns import OFTEN, killed, points_of, simulated

import pisces
from pisces.record.trackers.base import Point

is_here = importlib.util.find_spec("wandb") is not None


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)


def rows(points: list[Point]) -> list[dict[str, float]]:
    return [{**p.values, "version": p.version, "seconds": p.at, "_step": p.number} for p in points]


# --- a package that only remembers, with the signatures of 0.31 -----------------------------------


class FakeRun:
    def __init__(self, id: str, step: int, resumed: bool) -> None:
        self.id, self.step, self.resumed = id, step, resumed
        self.rows: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.axes: dict[str, str | None] = {}
        self.artefacts: list[str] = []
        self.exit_code: int | None = None

    def define_metric(
        self, name: str, step_metric: str | None = None, *, hidden: bool | None = None
    ) -> None:
        self.axes[name] = step_metric

    def log(
        self, data: dict[str, Any], step: int | None = None, commit: bool | None = None
    ) -> None:
        assert step is not None
        assert not self.rows or step > self.rows[-1]["_step"]  # it would be left out
        self.rows.append({**data, "_step": step})

    def log_artifact(self, path: str, name: str | None = None, type: str | None = None) -> None:
        self.artefacts.append(path)

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        self.exit_code = exit_code


class FakeWandB:
    def __init__(self) -> None:
        self.inits: list[dict[str, Any]] = []
        self.runs: list[FakeRun] = []
        self.known = 0  # steps that the server has of it

    def init(
        self,
        *,
        project: str | None = None,
        dir: str | None = None,
        id: str | None = None,
        name: str | None = None,
        config: dict[str, Any] | None = None,
        allow_val_change: bool | None = None,
        mode: Literal["online", "offline", "disabled", "shared"] | None = None,
        reinit: str | None = None,
        resume: str | None = None,
        settings: Any = None,
    ) -> FakeRun:
        given = {"project": project, "dir": dir, "id": id, "name": name, "mode": mode}
        self.inits.append({**given, "config": config, "settings": settings})
        self.runs.append(FakeRun(str(id), self.known, self.known > 0))
        return self.runs[-1]

    def Settings(
        self, *, silent: bool, console: str, disable_git: bool, disable_code: bool
    ) -> SimpleNamespace:
        return SimpleNamespace(silent=silent, console=console)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeWandB:
    package = FakeWandB()
    monkeypatch.setitem(sys.modules, "wandb", package)
    monkeypatch.setattr("pisces.tracking.find_spec", lambda _name: True)
    return package


def test_all_that_is_known_is_logged(fake: FakeWandB, tmp_path: Path) -> None:
    result = simulated(tmp_path / "r", trackers=["wandb"])
    (given,), (run,) = fake.inits, fake.runs
    assert (given["mode"], given["project"], given["name"]) == ("offline", "pisces", "r")
    assert given["dir"] == str(tmp_path / "r")
    assert given["config"]["protocol"] == "pisces"
    assert run.axes == {"version": None, "*": "version"}
    assert run.rows == rows(points_of(tmp_path / "r"))
    assert run.summary["final.accuracy"] == result.summary["final"]["accuracy"]
    assert (run.exit_code, run.artefacts) == (0, [])


def test_the_environment_and_options_are_heard(
    fake: FakeWandB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pisces.record.trackers.wandb import WandB

    monkeypatch.setenv("WANDB_MODE", "online")
    simulated(tmp_path / "r", trackers=[WandB(project="mine", model=True)])
    assert (fake.inits[0]["mode"], fake.inits[0]["project"]) == ("online", "mine")
    assert fake.runs[0].artefacts == [str(tmp_path / "r" / "model.safetensors")]
    simulated(tmp_path / "s", trackers=[WandB(mode="offline")])
    assert fake.inits[1]["mode"] == "offline"


def test_online_a_run_that_goes_on_sends_what_is_not_known(
    fake: FakeWandB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    killed(tmp_path / "r", 12, trackers=["wandb"])
    fake.known = len(fake.runs[0].rows)
    simulated(tmp_path / "r", trackers=["wandb"], resume=True, checkpoints=OFTEN)
    assert fake.inits[0]["id"] == fake.inits[1]["id"]
    assert fake.runs[0].exit_code == 1  # it broke off
    assert fake.runs[0].rows
    assert fake.runs[0].rows + fake.runs[1].rows == rows(points_of(tmp_path / "r"))


# --- the package itself ---------------------------------------------------------------------------


@pytest.mark.skipif(not is_here, reason="wandb is not installed")
def test_offline_everything_is_there_and_once(tmp_path: Path) -> None:
    run = tmp_path / "r"
    killed(run, 12, trackers=["wandb"])
    stop = pisces.Stop(time_s=30.0)
    simulated(run, trackers=["wandb"], resume=True, checkpoints=OFTEN, stop=stop)
    (file,) = (run / "wandb").glob("offline-run-*/run-*.wandb")
    told, expected = [*history(file)], rows(points_of(run))
    assert [{k: row[k] for k in wanted} for row, wanted in zip(told, expected, strict=True)] == (
        expected
    )


def history(file: Path) -> Iterator[dict[str, Any]]:
    from wandb.proto import wandb_internal_pb2 as messages

    for content in records(file.read_bytes()):
        record = messages.Record.FromString(content)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            yield {
                item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items
            }


def records(content: bytes) -> Iterator[bytes]:
    """Of a LevelDB log, which it is but for 7 bytes at its head."""
    at, parts = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _crc, length, kind = struct.unpack("<IHB", content[at : at + 7])
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""

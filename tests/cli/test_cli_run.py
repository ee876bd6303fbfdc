"""`pisces run`: the run folder, what is printed where, and how a run ends."""

from __future__ import annotations

import errno
import json
import sys
import tomllib
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from rich.console import Console

from pisces import build, config, load, world
from pisces.models.flat import flatten
from pisces.progress import showing
from pisces.record.lines import encode

KEYS = {
    "outlier": {"client", "task", "credits"},
    "distrusted": {"client"},
    "joined": {"client", "num_examples"},
    "picked": {"version", "slots", "num_free", "clients", "terms", "scores"},
    "started": {"task", "client", "version"},
    "arrived": {
        *("task", "client", "version", "num_examples"),
        *("loss", "loss_rms", "loss_left", "latency_s", "num_steps"),
    },
    "failed": {"task", "client", "reason"},
    "aggregated": {"version", "tasks", "staleness", "weights", "pace"},
    "evaluated": {"version", "accuracy", "loss"},
    "dropped": {"task", "reason"},
    "stopped": {"reason"},
}

SOMETIMES = {"others", "other_scores"}


def events(folder: Path | str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(folder) / "events.jsonl").open()]


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- the run folder -------------------------------------------------------------------------------


def test_four_files_and_a_checkpoint_and_no_more(finished: Path) -> None:
    assert sorted(path.name for path in finished.iterdir()) == [
        "checkpoints",
        "config.toml",
        "events.jsonl",
        "model.safetensors",
        "summary.json",
    ]


def test_events_are_lines_of_the_record(finished: Path) -> None:
    raw = (finished / "events.jsonl").read_bytes().splitlines(keepends=True)
    lines = [json.loads(line) for line in raw]
    assert [encode(line) for line in lines] == raw
    for line in lines:
        assert set(line) - SOMETIMES == {"kind", "at"} | KEYS[line["kind"]]
    assert [line["kind"] for line in lines].count("joined") == 12
    assert lines[-1] == {"kind": "stopped", "at": 60.0, "reason": "time"}


def test_the_summary_is_that_of_the_events(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    lines = events(finished)
    assert (summary["protocol"], summary["seed"], summary["reason"]) == ("pisces", 1, "time")
    assert summary["num_updates"] == sum(line["kind"] == "arrived" for line in lines) > 0
    last = [line for line in lines if line["kind"] == "evaluated"][-1]
    assert summary["final"]["accuracy"] == last["accuracy"]
    assert summary["versions"] == last["version"] > 0


def test_the_model_is_a_plain_state_dict(finished: Path) -> None:
    settings = config.load(finished / "config.toml")
    model = world.initial_model(settings, world.federated_data(settings))
    model.load_state_dict(safetensors.torch.load_file(finished / "model.safetensors"), strict=True)
    data = world.federated_data(settings)
    right = (model(data.test_inputs).argmax(dim=1) == data.test_targets).float().mean()
    summary = json.loads((finished / "summary.json").read_text())
    assert float(right) == pytest.approx(summary["final"]["accuracy"])


def test_the_config_is_resolved_and_gives_the_same_run_again(
    pisces: Callable[..., Any], small: str
) -> None:
    changes = (
        "--set",
        "protocol=fedbuff",
        "--seed",
        "7",
        "--set",
        "protocols.fedbuff.share=samples",
    )
    assert pisces("run", small, *changes, "--out", "a", "-q").code == 0
    written = tomllib.loads(Path("a/config.toml").read_text())
    assert (written["protocol"], written["seed"]) == ("fedbuff", 7)
    assert list(written["protocols"]) == ["fedbuff"]
    assert written["protocols"]["fedbuff"]["staleness_penalty"] == 0.5
    assert pisces("run", "a/config.toml", "--out", "b", "-q").code == 0
    for name in ("config.toml", "events.jsonl", "model.safetensors"):
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes()


def test_another_seed_is_another_run(pisces: Callable[..., Any], small: str) -> None:
    for seed in (1, 2):
        assert pisces("run", small, "--seed", seed, "--out", f"s{seed}", "-q").code == 0
    assert events("s1") != events("s2")


def test_a_folder_of_its_own_below_runs(pisces: Callable[..., Any], small: str) -> None:
    short = ("run", small, "--set", "stop.time_s=5", "-q")
    for name in ("small-pisces-seed1", "small-pisces-seed1-2"):
        ran = pisces(*short)
        assert ran.code == 0
        assert ran.out.endswith(f"written to runs/{name}\n")
        assert Path("runs", name, "summary.json").exists()


def test_a_folder_in_use_is_refused_and_left_alone(
    pisces: Callable[..., Any], small: str, finished: Path
) -> None:
    before = files(finished)
    ran = pisces("run", small, "--out", finished)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert "runs/first is not empty: choose another folder, or go on with its run: " in ran.err
    assert ran.err.endswith("pisces resume runs/first\n")
    assert files(finished) == before


# --- starting weights -----------------------------------------------------------------------------


def test_a_run_starts_where_another_ended(
    pisces: Callable[..., Any], small: str, finished: Path
) -> None:
    ended = json.loads((finished / "summary.json").read_text())["final"]
    for number, weights in enumerate((finished, finished / "model.safetensors")):
        changes = ("--set", f"model.weights={weights}", "--set", "stop.versions=1")
        assert pisces("run", small, *changes, "--out", f"w{number}", "-q").code == 0
        first = next(line for line in events(f"w{number}") if line["kind"] == "evaluated")
        assert (first["version"], first["loss"]) == (0, ended["loss"])


def test_weights_of_another_shape_are_refused_in_one_line(
    pisces: Callable[..., Any], small: str, finished: Path
) -> None:
    changes = ("--set", f"model.weights={finished}", "--set", "model.hidden=[9, 3]")
    ran = pisces("run", small, *changes, "--out", "w")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "runs/first/model.safetensors does not fit the model: " in ran.err
    assert not Path("w").exists()


# --- what is printed where ------------------------------------------------------------------------


def test_the_table(pisces: Callable[..., Any], small: str) -> None:
    ran = pisces("run", small, "--set", "stop.metric=loss", "--set", "stop.target=0.001")
    assert ran.code == 0
    assert "pisces (seed 1)" in ran.out
    assert "time, at 60 s" in ran.out
    assert "time to loss 0.001" in ran.out
    assert "not reached" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_a_run_with_corrupted_clients_says_how_many_were_found(
    pisces: Callable[..., Any], small: str
) -> None:
    # By clusters, which here take some for outliers who are not: the line has two numbers.
    changes = ["data.corrupted=0.25", "clients.credits=1", "stop.time_s=300"]
    changes.append("protocols.pisces.guard=clusters")
    ran = pisces("run", small, *(f"--set={change}" for change in changes), "--out", "spoilt")
    corrupted = set(world.corrupted_clients(config.load(Path(small), changes)).tolist())
    distrusted = {line["client"] for line in events("spoilt") if line["kind"] == "distrusted"}
    found, others = len(corrupted & distrusted), len(distrusted - corrupted)
    assert len(corrupted) == 3  # of 12
    assert min(found, others) > 0  # else the line says little
    assert f"distrusted: {found} of 3 corrupted clients, {others} of the others\n" in ran.out
    assert "corrupted" not in pisces("run", small, "--out", "sound").out


def test_json_and_only_that(spawn: Callable[..., Any], small: str) -> None:
    ran = spawn("run", small, "--json", "--verbose", "--out", "r")
    found = json.loads(ran.out)
    assert (ran.code, found["folder"], found["reason"]) == (0, "r", "time")
    saved = json.loads(Path("r/summary.json").read_text())
    assert found == {**saved, "folder": "r"}
    told = [json.loads(line) for line in ran.err.splitlines() if line.startswith("{")]
    assert (told[0]["kind"], told[-1]["kind"]) == ("begun", "finished")
    assert told[-1]["version"] == found["versions"]
    # One line per aggregation, and one for the end.
    lines = [line for line in ran.err.splitlines() if not line.startswith("{")]
    assert len(lines) == found["versions"] + 1
    assert all(f"version {n} from" in line for n, line in enumerate(lines[:-1], start=1))
    assert "stopped: time" in lines[-1]


class Screen(StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [True, False])
def test_progress_is_for_terminals_and_not_for_the_quiet(
    pisces: Callable[..., Any], small: str, quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr(showing, "stderr", Console(file=screen, force_terminal=True, width=80))
    ran = pisces("run", small, *["-q"] * quiet, "--out", "r")
    assert (ran.code, ran.err) == (0, "")
    assert "written to r" in ran.out
    assert ("so far" in screen.getvalue()) is not quiet
    assert (screen.getvalue() == "") is quiet


@pytest.mark.parametrize("kind", ["file", "dumb", "forced"])
def test_where_nobody_watches_there_are_lines(
    pisces: Callable[..., Any], small: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = StringIO() if kind == "forced" else Screen()  # FORCE_COLOR, and yet a file
    is_dumb = {"TERM": "dumb"} if kind == "dumb" else {"TERM": "xterm"}
    forced = None if kind == "file" else True
    console = Console(file=screen, force_terminal=forced, width=80, _environ=is_dumb)
    if kind == "file":
        console = Console(file=StringIO(), _environ=is_dumb)
    monkeypatch.setattr(showing, "stderr", console)
    ran = pisces("run", small, "--out", "r")
    begun, *_, over = ran.err.splitlines()
    assert begun == "pisces, seed 1: begun, until accuracy 0.99 or 60 s"
    assert over.startswith("pisces, seed 1: finished (time) at 60 s, version ")
    assert screen.getvalue() == ""


def test_a_log_that_cannot_be_written_does_not_end_a_run(
    pisces: Callable[..., Any], small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(text)

    monkeypatch.setattr(sys, "stderr", Closed())
    assert pisces("run", small, "--out", "r").code == 0


@pytest.mark.parametrize("num_writes", [0, 1, 2])
def test_a_terminal_that_is_gone_does_not_end_a_run(
    pisces: Callable[..., Any], small: str, num_writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(Screen):
        num_refused = 0

        def write(self, text: str) -> int:
            if self.getvalue().count("\x1b") > num_writes:
                self.num_refused += 1
                raise OSError(errno.EIO, "Input/output error")
            return super().write(text)

    screen = Gone()
    console = Console(file=screen, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    monkeypatch.setattr(showing, "stderr", console)
    monkeypatch.setattr(showing, "REFRESH_S", 0.0)
    monkeypatch.setattr(showing, "REDRAW_S", 1e-6)
    ran = pisces("run", small, "--out", "r")
    assert (ran.code, ran.err) == (0, "")
    assert "written to r" in ran.out
    assert screen.num_refused > 0


# --- how a run ends -------------------------------------------------------------------------------

ENDS = {
    "time": (["stop.time_s=25"], lambda s: s["at"] == 25.0),
    "versions": (["stop.versions=3"], lambda s: s["versions"] == 3),
    "updates": (["stop.updates=5"], lambda s: s["num_updates"] == 5),
    "target": (["stop.target=0.2"], lambda s: s["final"]["accuracy"] >= 0.2),
    # Nothing is learned, so version 0 stays the best, and 1 and 2 are too much.
    "patience": (
        ["stop.patience=2", "train.learning_rate=1e-12", "evaluate.every_versions=1"],
        lambda s: s["versions"] == 2,
    ),
}


@pytest.mark.parametrize("reason", ENDS)
def test_reasons_to_stop(pisces: Callable[..., Any], small: str, reason: str) -> None:
    changes, holds = ENDS[reason]
    sets = [part for change in changes for part in ("--set", change)]
    ran = pisces("run", small, *sets, "--json", "-q")
    assert ran.code == 0
    summary = json.loads(ran.out)
    assert summary["reason"] == reason
    assert holds(summary)


def test_no_limit_of_time_is_infinity(pisces: Callable[..., Any], small: str) -> None:
    # 60 s would be over long before 80 versions.
    changes = ("--set", "stop.time_s=inf", "--set", "evaluate.every_s=inf")
    ran = pisces("run", small, *changes, "--set", "stop.versions=80", "--json", "--out", "r")
    summary = json.loads(ran.out)
    assert (summary["reason"], summary["versions"]) == ("versions", 80)
    assert summary["at"] > 60.0
    assert load("r").config["stop"]["time_s"] == float("inf")


@pytest.mark.parametrize("trouble", ["dropout", "vanish"])
def test_a_run_that_cannot_go_on_exits_with_3(
    pisces: Callable[..., Any], small: str, trouble: str
) -> None:
    changes = ("--set", f"failures.{trouble}=1", "--set", "clients.deadline_s=9")
    ran = pisces("run", small, *changes, "--json", "-q")
    assert ran.code == 3
    assert json.loads(ran.out)["reason"] == "no clients left"


def test_the_seed_decides_the_first_weights() -> None:
    one, again, other = (
        flatten(build.simulation(config.parse("", [f"seed={seed}"])).model).flat
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)

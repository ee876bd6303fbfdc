"""Trackers by name, of a config, on the command line; and that they change nothing."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from configs import SMALL
from trackedruns import Notes, points_of, simulated

from pisces import tracking
from pisces.cli.main import main
from pisces.config import parse
from pisces.errors import ConfigError, MissingPackageError
from pisces.many.jobs import jobs_of
from pisces.many.left import left_in
from pisces.many.processes import make_run
from pisces.record.trackers.base import Tracker
from pisces.tables import Record

Pisces = Callable[..., int]


@pytest.fixture
def pisces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pisces:
    """`pisces ARGS` in this process, where small.toml is."""
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SMALL)

    def call(*args: Any) -> int:
        monkeypatch.setattr(sys, "argv", ["pisces", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0)

    return call


def test_nothing_of_a_run_is_changed_by_its_trackers(tmp_path: Path) -> None:
    notes = Notes()
    simulated(tmp_path / "a")
    simulated(tmp_path / "b", trackers=["csv", notes])
    for name in ("events.jsonl", "model.safetensors", "config.toml"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert notes.points == points_of(tmp_path / "b")  # live as from the log
    (run,) = notes.runs
    assert run.name == "b"
    assert run.parameters["made_in"] == "Python"
    assert run.parameters["number of clients"] == 6
    assert not run.is_resumed


def test_a_resumed_run_is_known_again(tmp_path: Path) -> None:
    first, second = Notes(), Notes()
    simulated(tmp_path / "r", trackers=[first])
    import pisces

    stop = pisces.Stop(time_s=30.0)
    simulated(tmp_path / "r", trackers=[second], resume=True, stop=stop)
    (one,), (other,) = first.runs, second.runs
    assert (one.id, one.began_at) == (other.id, other.began_at)
    assert other.is_resumed
    assert second.points[: len(first.points)] == first.points
    assert second.points == points_of(tmp_path / "r")


@pytest.mark.parametrize("text", ["", "[]", '{"id": "../x", "began_at": 1}', '{"id": 1}'])
def test_what_others_wrote_there_is_not_believed(text: str, tmp_path: Path) -> None:
    from pisces.record.trackers.subject import subject_of

    (tmp_path / "trackers.json").write_text(text)
    run = subject_of("pisces", tmp_path, "a = 1", {}, 5.0)
    assert len(run.id) == 12
    assert run.began_at == 5.0
    assert json.loads((tmp_path / "trackers.json").read_text())["id"] == run.id


def test_on_the_command_line(pisces: Pisces) -> None:
    assert pisces("run", "small.toml", "--out", "r", "--track", "csv", "-q") == 0
    assert pisces("run", "small.toml", "--out", "plain", "-q") == 0
    assert Path("r/events.jsonl").read_bytes() == Path("plain/events.jsonl").read_bytes()
    assert not Path("plain/trackers.json").exists()
    config = tomlkit.parse(Path("r/config.toml").read_text()).unwrap()
    assert config["record"]["trackers"] == ["csv"]
    before = Path("r/metrics.csv").read_bytes()
    later = ("--set", "stop.time_s=90")
    assert pisces("resume", "r", *later, "-q") == 0  # it tracks on
    assert Path("r/metrics.csv").read_bytes().startswith(before)
    assert len(Path("r/metrics.csv").read_bytes()) > len(before)
    assert pisces("resume", "plain", *later, "--track", "csv", "-q") == 0  # it begins to
    assert Path("plain/metrics.csv").read_bytes() == Path("r/metrics.csv").read_bytes()
    assert pisces("resume", "r", "--set", "stop.time_s=95", "--set", "record.trackers=[]") == 0


def test_a_comparison_tracks_every_run_and_may_go_on_without(tmp_path: Path) -> None:
    config = parse(SMALL, ['record.trackers=["csv"]'])
    (job,) = jobs_of(config, ["fedbuff"], [1], tmp_path)
    before = signal.getsignal(signal.SIGINT)
    make_run(job, 1)  # as in a worker
    assert signal.getsignal(signal.SIGINT) is before
    assert (job.out / "metrics.csv").exists()
    (without,) = jobs_of(parse(SMALL), ["fedbuff"], [1], tmp_path)
    with left_in(tmp_path, [without]) as left:
        assert left == []  # it is the same run, and done


def test_an_unknown_name_is_refused_before_anything_begins(
    pisces: Pisces, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pisces("run", "small.toml", "--out", "r", "--track", "tensorbord") == 2
    assert capsys.readouterr().err.strip() == (
        "error: record.trackers: must be one of tensorboard, mlflow, wandb, csv, not "
        "'tensorbord'; did you mean 'tensorboard'?"
    )
    assert pisces("run", "small.toml", "--out", "r", "--set", 'record.trackers=["cvs"]') == 2
    assert "did you mean 'csv'?" in capsys.readouterr().err
    assert not Path("r").exists()


def test_a_missing_package_is_told_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda _name: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'pisces-fl\[wandb\]'"):
        simulated(tmp_path / "r", trackers=["csv", "wandb"])
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "wandb", None)  # it is there, but broken
    monkeypatch.setattr(tracking, "find_spec", lambda _name: True)
    with pytest.raises(MissingPackageError, match=r"pip install 'pisces-fl\[wandb\]'"):
        simulated(tmp_path / "r", trackers=["wandb"])
    assert not (tmp_path / "r").exists()


def test_a_package_that_breaks_when_it_is_loaded_is_told_in_one_line(
    pisces: Pisces, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("site/wandb").mkdir(parents=True)
    Path("site/wandb/__init__.py").write_text("raise TypeError('made for\\nanother protobuf')")
    monkeypatch.syspath_prepend("site")
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    assert pisces("run", "small.toml", "--out", "r", "--track", "wandb") == 2
    assert capsys.readouterr().err.strip() == (
        "error: trackers: the package of Weights & Biases is here, but cannot be loaded "
        "(TypeError: made for another protobuf): install it anew with "
        "pip install --force-reinstall 'pisces-fl[wandb]', or do without it"
    )
    assert not Path("r").exists()


class Nameless:
    """As somebody may write one who inherits from nothing."""

    needs_folder = True

    def begin(self, run: Any) -> None: ...
    def track(self, points: Any) -> None: ...
    def end(self, summary: Any) -> None: ...


@pytest.mark.parametrize(
    ("trackers", "why"),
    [
        ("csv", r"trackers: must be a list, such as \['csv'\]"),
        ([3], "trackers: must be names .* or objects with begin, track and end, .* not 3"),
        ([Tracker], "objects with begin, track and end"),
        ([Nameless()], "trackers: Nameless writes to the run's folder, and there is none"),
        (["csv"], "trackers: csv writes to the run's folder, and there is none: say where"),
    ],
)
def test_what_cannot_be_is_refused(trackers: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        simulated(None, trackers=trackers)


def test_options_of_a_config_are_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Record] = []
    monkeypatch.setitem(
        tracking.TRACKERS, "mlflow", lambda options: made.append(options) or Notes()
    )
    monkeypatch.setattr(tracking, "find_spec", lambda _name: True)
    options = Record(trackers=["mlflow", "mlflow"], project="mine")
    assert len(tracking.of(options, "r")) == 1
    assert made == [options]

"""`pisces resume`: the run goes on as if nothing had happened, or says why it cannot."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from configs import SMALL

import pisces as library
from pisces.cli.main import main
from pisces.coordinator import Coordinator
from pisces.errors import ConfigError, RunError
from pisces.record import writer
from pisces.record.blobs import digest

Pisces = Callable[..., Any]
OUTCOME = ("config.toml", "events.jsonl", "model.safetensors")


class Killed(BaseException):
    """As good as a kill: nothing is saved or wound up."""


def kill(num_turns: int, *args: Any) -> None:
    """`pisces ARGS`, killed after so many turns."""
    real, turns = Coordinator.step, iter(range(num_turns))

    def step(self: Coordinator) -> None:
        if next(turns, None) is None:
            raise Killed
        real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Coordinator, "step", step)
        patch.setattr("pisces.record.keeper.MOST", 1.0)
        patch.setattr("sys.argv", ["pisces", *map(str, args)])
        with pytest.raises(Killed):
            main()


OFTEN = ("--set", "checkpoint.every_s=1e-9")


@pytest.fixture(autouse=True)
def loud(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pisces")


def outcome(folder: str | Path) -> list[bytes]:
    return [(Path(folder) / name).read_bytes() for name in OUTCOME]


def files(folder: str | Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that nothing happened to, and one that was killed on its way."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "small.toml").write_text(SMALL)
    run = ("run", folder / "small.toml", *OFTEN, "-q", "--out")
    kill(20, *run, folder / "r")
    assert not (folder / "r" / "summary.json").exists()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()):
        patch.setattr("sys.argv", ["pisces", *map(str, run), str(folder / "whole")])
        with pytest.raises(SystemExit, match="0"):
            main()
    return folder


@pytest.fixture
def whole(runs: Path, folder: Path) -> list[bytes]:
    """What comes of the run that nothing happened to; it lies in ./whole."""
    shutil.copytree(runs / "whole", folder / "whole")
    return outcome("whole")


@pytest.fixture
def killed(runs: Path, folder: Path) -> Path:
    """The folder of the same run, killed on its way: ./r."""
    shutil.copytree(runs / "r", folder / "r")
    return Path("r")


# --- it goes on -----------------------------------------------------------------------------------


def test_a_killed_run_goes_on(
    killed: Path, pisces: Pisces, whole: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    ran = pisces("resume", killed)
    assert (ran.code, caplog.messages) == (0, [])
    assert re.match(r"pisces, seed 1: goes on at \d+ s, until ", ran.err)
    assert "pisces (seed 1)" in ran.out
    assert "written to r\n" in ran.out
    assert outcome(killed) == whole


def test_a_resume_of_a_resume_of_a_resume(killed: Path, pisces: Pisces, whole: list[bytes]) -> None:
    for num_turns in (0, 1, 7):
        kill(num_turns, "resume", killed, "-q")
    ran = pisces("resume", killed, "-q", "--json")
    assert json.loads(ran.out)["folder"] == "r"
    assert outcome(killed) == whole
    summaries = [json.loads(Path(f, "summary.json").read_text()) for f in ("whole", "r")]
    assert [s.pop("wall_s") > 0 for s in summaries] == [True, True]
    assert summaries[0] == summaries[1]


def test_the_wall_time_is_that_of_all_processes(killed: Path, pisces: Pisces) -> None:
    (path,) = sorted(killed.glob("checkpoints/*.json"))[-1:]
    before = json.loads(path.read_text())["body"]["wall_s"]
    ran = pisces("resume", killed, "--json")
    assert json.loads(ran.out)["wall_s"] > before > 0


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_last_line_cut_short_is_written_again(
    cut: int, killed: Path, pisces: Pisces, whole: list[bytes]
) -> None:
    # The log is longer than the last checkpoint knows: the last turn was not saved.
    log = killed / "events.jsonl"
    with log.open("ab") as file:
        file.write(b'{"kind":"evaluated","at":1000.0,"version":' * 9)
    os.truncate(log, log.stat().st_size - cut)
    assert pisces("resume", killed, "-q").code == 0
    assert outcome(killed) == whole


def test_a_run_killed_before_its_first_checkpoint_begins_anew(
    pisces: Pisces,
    small: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert pisces("run", small, "--out", "whole", "-q").code == 0
    kill(9, "run", small, "--out", "r", "-q")
    assert not Path("r/checkpoints").exists()  # a minute has not passed
    assert pisces("resume", "r", "-q").code == 0
    assert caplog.messages == ["r has no checkpoint: it begins anew, and its log with it"]
    assert outcome("r") == outcome("whole")


LATER = ("--set", "stop.time_s=75")


@pytest.mark.parametrize(
    "stop", [("stop.time_s=33",), ("stop.versions=5",), ("stop.updates=11", "tick_s=5")]
)
def test_a_finished_run_goes_on_to_a_later_stop(
    stop: tuple[str, ...], pisces: Pisces, small: str
) -> None:
    sets = [part for change in stop for part in ("--set", change)]
    tick = [f"--set={change}" for change in stop if change.startswith("tick")]
    assert pisces("run", small, *sets, "--out", "r", "-q").code == 0
    later = [*LATER, "--set", "stop.versions=none", "--set", "stop.updates=none"]
    ran = pisces("resume", "r", *later, "-q", "--json")
    assert (ran.code, json.loads(ran.out)["at"]) == (0, 75.0)
    assert pisces("run", small, *tick, *LATER, "--out", "whole", "-q").code == 0
    assert outcome("r") == outcome("whole")


def test_a_killed_run_may_be_given_another_stop(killed: Path, pisces: Pisces, small: str) -> None:
    assert pisces("resume", killed, *LATER, "-q").code == 0
    assert pisces("run", small, *OFTEN, *LATER, "--out", "later", "-q").code == 0
    assert outcome(killed) == outcome("later")


def test_a_run_broken_off_by_ctrl_c_goes_on(
    pisces: Pisces, small: str, whole: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        _signal_in_turn(patch, 9, signal.SIGINT)
        ran = pisces("run", small, *OFTEN, "--out", "r")
    assert ran.code == 130
    assert "written to r; to go on: pisces resume r\n" in ran.out
    assert Path("r/summary.json").exists()
    assert pisces("resume", "r", "-q").code == 0
    assert outcome("r") == whole


@pytest.fixture
def hangup() -> Iterator[Callable[[Any], None]]:
    """Sets what is done when a terminal is closed; afterwards it is as before."""
    before = signal.getsignal(signal.SIGHUP)
    yield lambda handler: signal.signal(signal.SIGHUP, handler)
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_cluster_or_a_closed_terminal_that_ends_a_job_is_heard(
    pisces: Pisces,
    small: str,
    whole: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    hangup: Callable[[Any], None],
    number: signal.Signals,
) -> None:
    hangup(signal.SIG_DFL)
    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        _signal_in_turn(patch, 9, number)
        ran = pisces("run", small, *OFTEN, "--out", "r", "-q", "--json")
    assert (ran.code, json.loads(ran.out)["reason"]) == (143, "interrupted")
    assert signal.getsignal(number) is before
    assert pisces("resume", "r", "-q").code == 0
    assert outcome("r") == whole


def test_with_nohup_a_run_outlives_its_terminal(
    pisces: Pisces,
    small: str,
    whole: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    hangup: Callable[[Any], None],
) -> None:
    hangup(signal.SIG_IGN)
    _signal_in_turn(monkeypatch, 9, signal.SIGHUP)
    assert pisces("run", small, *OFTEN, "--out", "r", "-q").code == 0
    assert outcome("r") == whole


def _signal_in_turn(patch: pytest.MonkeyPatch, turn: int, number: signal.Signals) -> None:
    real, turns = Coordinator.step, iter(range(turn))

    def step(self: Coordinator) -> None:
        real(self)
        if next(turns, None) == turn - 1:
            signal.raise_signal(number)

    patch.setattr(Coordinator, "step", step)


def test_who_trains_may_change_where_the_bits_do_not(
    killed: Path, pisces: Pisces, whole: list[bytes]
) -> None:
    changes = ("--set", "train.backend=pool", "--set", "train.workers=2")
    assert pisces("resume", killed, *changes, "-q").code == 0
    assert outcome(killed)[1:] == whole[1:]


def test_python_goes_on_too(killed: Path, whole: list[bytes]) -> None:
    result = library.resume(killed)
    assert result.summary["reason"] == "time"
    assert outcome(killed) == whole
    later = library.resume(killed, ["stop.time_s=75"])
    assert later.summary["at"] == 75.0
    with pytest.raises(ConfigError, match="seed: a run goes on with what it was begun with"):
        library.resume(killed, ["seed=2"])


def test_no_studies_are_slowed_down_by_it(pisces: Pisces, small: str) -> None:
    args = ("--protocols", "fedavg", "--seeds", "1", "--jobs", 1, "--target", 0.9, *OFTEN)
    assert pisces("compare", small, *args, "--out", "o", "-q").code == 0
    assert not list(Path("o").rglob("checkpoints"))
    ran = pisces("resume", "o/fedavg-seed1")
    assert ran.code == 2
    assert (
        "o/fedavg-seed1 is finished and has no checkpoints to go on from (runs of compare"
        in ran.err
    )


# --- or says why it cannot ------------------------------------------------------------------------


def refused(pisces: Pisces, *args: Any) -> str:
    """What `pisces resume` says where it refuses; it leaves everything as it is."""
    before = files(args[0]) if Path(args[0]).exists() else {}
    ran = pisces("resume", *args)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert (files(args[0]) if before else {}) == before
    return str(ran.err)


def test_a_finished_run_wants_a_later_stop(whole: list[bytes], pisces: Pisces) -> None:
    # Who asks again, as a supervisor does, is told what came of it: that is no failure.
    message = "whole is finished (time); to go on, give a later stop, such as stop.time_s\n"
    for more in ([], ["--set", "stop.time_s=50"]):
        ran = pisces("resume", "whole", "-q", *more)
        assert (ran.code, ran.err) == (0, message)
        assert "written to whole" in ran.out
    assert outcome("whole") == whole


def test_a_stop_that_lies_behind_is_refused_and_nothing_is_cut(
    killed: Path, pisces: Pisces
) -> None:
    said = refused(pisces, killed, "--set", "stop.time_s=1")
    assert "r is further than this stop (time): give a later one" in said


def interrupt(run: Path) -> None:
    """Let its checkpoints say that it was interrupted there."""
    for path in (run / "checkpoints").glob("*.json"):
        body = json.loads(path.read_text())["body"]
        body["values"]["reason"] = "interrupted"
        text = json.dumps(body).encode()
        head = f'{{"format": 1, "checksum": "{digest(text)}", "body": '
        path.write_bytes(head.encode() + text + b"}\n")


def test_so_is_one_behind_a_run_that_was_interrupted_and_went_on(
    killed: Path, pisces: Pisces
) -> None:
    # Interrupted where its checkpoint is, taken up again, and killed.
    interrupt(killed)
    said = refused(pisces, killed, "--set", "stop.time_s=1")
    assert "r is further than this stop (time): give a later one" in said


def test_so_is_one_behind_a_run_that_was_interrupted(
    whole: list[bytes], tmp_path: Path, pisces: Pisces
) -> None:
    shutil.copytree("whole", "cut")
    interrupt(Path("cut"))
    said = refused(pisces, "cut", "--set", "stop.time_s=1")
    assert "cut is further than this stop (time): give a later one" in said


CHANGES = {
    "seed=2": "seed: a run goes on with what it was begun with, 1, not 2; only stop,",
    "clients.count=1": "clients.count: a run goes on with what it was begun with; only stop,",
    "clients.count=13": "clients.count: a run goes on with what it was begun with, 12, not 13",
    "protocol=fedbuff": "protocol: a run goes on with",
    "evaluate.every_s=3": "evaluate.every_s: a run goes on with",
    "train.learning_rate=1": "train.learning_rate: a run goes on with",
    "protocols.pisces.average=3": "protocols.pisces.average: a run goes on with",
    "train.backend=batched": "training was 'one by one on cpu', and is 'batched on cpu'",
    "sed=2": "unknown key",
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_some_settings_may_be_changed(change: str, killed: Path, pisces: Pisces) -> None:
    assert CHANGES[change] in refused(pisces, killed, "--set", change)


def test_a_config_changed_by_hand_is_another_run(killed: Path, pisces: Pisces) -> None:
    config = killed / "config.toml"
    config.write_text(config.read_text().replace("learning_rate = 0.1", "learning_rate = 0.2"))
    said = refused(pisces, killed)
    assert "it is of another run: settings.train.learning_rate was 0.1, and is 0.2" in said
    assert "make the run again in another folder (r/config.toml says what it was)" in said


def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    killed: Path, pisces: Pisces, whole: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    before, last = sorted(killed.glob("checkpoints/*.json"))
    last.write_bytes(last.read_bytes()[:-50])
    assert pisces("resume", killed, "-q").code == 0
    assert caplog.messages == [
        f"{last}: it is damaged: its checksum is another; going on from {before}"
    ]
    assert outcome(killed) == whole


def test_where_all_are_damaged_nothing_is_lost(killed: Path, pisces: Pisces) -> None:
    for path in killed.glob("checkpoints/*.json"):
        path.write_bytes(b"{}")
    said = refused(pisces, killed)
    assert said.count("it is damaged: it does not begin as a checkpoint does") == 2
    assert "the log stays as it is; make the run again" in said


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_log_that_is_not_what_it_was_is_refused(
    damage: str, killed: Path, pisces: Pisces
) -> None:
    log = killed / "events.jsonl"
    content = log.read_bytes()
    log.write_bytes(
        content[:99] if damage == "cut" else content.replace(b'"at":0.0', b'"at":0.1', 1)
    )
    assert "events.jsonl is not what it was then: it was cut, or changed" in refused(pisces, killed)


def test_a_folder_in_use_is_refused(killed: Path, pisces: Pisces) -> None:
    other = writer.RunFolder.reopen(killed)
    try:
        assert "r is in use: another process writes there" in refused(pisces, killed)
    finally:
        other.close()


def test_what_is_no_run_is_refused(pisces: Pisces, small: str) -> None:
    assert "nowhere is not a run folder" in refused(pisces, "nowhere")
    Path("dead").mkdir()
    Path("dead/events.jsonl").touch()  # killed before it could say what it is
    assert "dead was ended before it began: remove it, and run it again" in refused(pisces, "dead")
    Path("mine").mkdir()
    Path("mine/events.jsonl").touch()
    Path("mine/config.toml").write_text('made_in = "Python"\nprotocol = "x"\nseed = 1\n')
    assert "this run was made in Python: go on with it there" in refused(pisces, "mine")
    Path("mine/config.toml").write_text('made_in = "Flower"\nprotocol = "x"\nseed = 1\n')
    assert "made by a Flower app: start it again with the same `out`" in refused(pisces, "mine")


# --- a full disk ----------------------------------------------------------------------------------


def test_a_disk_too_full_for_checkpoints_does_not_end_a_run(
    pisces: Pisces,
    small: str,
    whole: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    real = writer._replace

    def full(path: Path, content: bytes) -> None:
        if "checkpoints" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content)

    monkeypatch.setattr(writer, "_replace", full)
    assert pisces("run", small, *OFTEN, "--out", "r", "-q").code == 0
    assert outcome("r") == whole
    (message,) = caplog.messages
    assert message.startswith("no checkpoint was written, and the run goes on without: cannot ")


def test_a_run_ended_by_a_full_disk_goes_on_when_there_is_room(
    pisces: Pisces, small: str, whole: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lines = writer.RunFolder.record, iter(range(150))

    def full(self: writer.RunFolder, entry: Any) -> None:
        if next(lines, None) is None:
            self._events.write(b'{"kind":"arr')  # what there was room for
            raise RunError("cannot write r/events.jsonl: No space left on device")
        real(self, entry)

    with monkeypatch.context() as patch:
        patch.setattr(writer.RunFolder, "record", full)
        ran = pisces("run", small, *OFTEN, "--out", "r", "-q")
    assert (ran.code, "No space left on device" in ran.err) == (2, True)
    assert Path("r/events.jsonl").read_bytes().endswith(b'{"kind":"arr')
    assert pisces("resume", "r", "-q").code == 0
    assert outcome("r") == whole

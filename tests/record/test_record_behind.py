"""Lines written by a thread: all of them, in order, no more waiting than allowed, errors told."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

import killing
import pytest

from pisces import build
from pisces import config as cfg
from pisces.coordinator import Coordinator
from pisces.errors import RunError
from pisces.record import writer
from pisces.record.behind import AtOnce, Behind, Log
from pisces.record.writer import RunFolder
from pisces.resuming import Job, resume
from pisces.types import Joined, Stopped

NEEDS_FULL = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs a device that is always full"
)
WITHIN_S = 10.0  # a machine may be busy


class Slow(BytesIO):
    """A disk that writes only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()

    def write(self, text: object) -> int:
        assert self.may_go_on.wait(WITHIN_S)
        return super().write(text)  # type: ignore[arg-type]


class Breaking(BytesIO):
    """A disk that is full after some bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def write(self, text: object) -> int:
        text = bytes(cast(bytes, text))
        self.room -= super().write(text[: self.room])
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(text)


def again_and_again(do: Callable[[], None], pause_s: float = 0.001) -> None:
    for _ in range(5000):
        do()
        time.sleep(pause_s)


def queued(file: BytesIO, max_bytes: int = 1000) -> Behind:
    return Behind(cast(BinaryIO, file), max_bytes)


@pytest.mark.parametrize("kind", [AtOnce, Behind])
@pytest.mark.parametrize("max_bytes", [1, 64, 1 << 20])
def test_all_lines_are_there_in_their_order(tmp_path: Path, kind: type, max_bytes: int) -> None:
    file = (tmp_path / "log").open("wb")
    log: Log = AtOnce(file) if kind is AtOnce else Behind(file, max_bytes)
    lines = [b"%d\n" % number for number in range(3000)]
    for number, line in enumerate(lines):
        log.write(line)
        if number % 1000 == 0:
            log.flush()
            assert (tmp_path / "log").read_bytes() == b"".join(lines[: number + 1])
    log.close()
    assert (tmp_path / "log").read_bytes() == b"".join(lines)


def test_nobody_waits_for_a_slow_disk_until_the_queue_is_full() -> None:
    disk = Slow()
    log = queued(disk, max_bytes=30)
    for _ in range(3):
        log.write(b"123456789\n")  # 30 bytes: there is room for these, however slow it is
    one_more = threading.Thread(target=log.write, args=(b"full\n",))
    one_more.start()
    one_more.join(0.05)
    assert one_more.is_alive()  # it waits, and is not dropped
    assert disk.getvalue() == b""
    disk.may_go_on.set()
    one_more.join(WITHIN_S)
    log.flush()
    assert disk.getvalue() == b"123456789\n" * 3 + b"full\n"
    log.close()


def test_a_text_larger_than_the_queue_goes_alone() -> None:
    disk = Slow()
    disk.may_go_on.set()
    log = queued(disk, max_bytes=4)
    for _ in range(3):
        log.write(b"123456789\n")
    log.flush()
    assert disk.getvalue() == b"123456789\n" * 3
    log.close()


def test_what_the_disk_refuses_is_told_at_the_next_line_and_ever_after() -> None:
    log = queued(Breaking(room=25))
    with pytest.raises(OSError, match="No space left"):  # at the third, or soon after
        again_and_again(lambda: log.write(b"123456789\n"))
    for again in (lambda: log.write(b"more\n"), log.flush, log.close):
        with pytest.raises(OSError, match="No space left"):
            again()


def test_who_waits_for_room_is_told_of_the_error() -> None:
    log = queued(Breaking(room=5), max_bytes=10)
    with pytest.raises(OSError, match="No space left"):  # each waits for the one before
        again_and_again(lambda: log.write(b"123456789\n"), pause_s=0.0)
    with pytest.raises(OSError, match="No space left"):
        log.close()


def test_no_thread_before_the_first_line_and_none_after_the_end(tmp_path: Path) -> None:
    def num() -> int:
        return sum(thread.name == "pisces log" for thread in threading.enumerate())

    log = Behind((tmp_path / "log").open("wb"))
    assert num() == 0  # so that workers may be forked
    log.write(b"x")
    assert num() == 1
    log.close()
    assert num() == 0


# --- in a run folder ------------------------------------------------------------------------------


def test_what_is_synced_or_finished_is_in_the_file(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "seed = 1\n")
    folder.write_behind()
    events = tmp_path / "run" / "events.jsonl"
    for client in range(500):
        folder.record(Joined(0.0, client, 50))
    folder.sync()
    assert events.stat().st_size == folder.position.num_bytes
    assert folder.holds(folder.position)
    folder.record(Stopped(4.0, "time"))
    folder.finish({}, {}, wall_s=1.0)  # a folder with a summary is complete
    assert events.read_bytes().count(b"\n") == 501
    folder.close()


def test_runs_of_real_time_are_logged_so_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cfg.parse(killing.CONFIG, ["stop.time_s=20", "checkpoint.every_s=0.01"])
    behind = []
    for name in ("at once", "behind"):
        if name == "behind":
            monkeypatch.setattr(Coordinator, "is_real_time", True)
            monkeypatch.setattr(writer, "Behind", small(behind))
        Job(build.resolved(config), tmp_path / name).run()
    assert len(behind) == 1
    killing.assert_same(tmp_path / "at once", tmp_path / "behind")
    resume(tmp_path / "behind", ["stop.time_s=40"])
    monkeypatch.undo()
    resume(tmp_path / "at once", ["stop.time_s=40"])
    killing.assert_same(tmp_path / "at once", tmp_path / "behind")


def small(made: list[Behind]) -> Callable[[BinaryIO], Behind]:
    """A queue so small that the loop waits for it now and then."""

    def make(file: BinaryIO) -> Behind:
        made.append(Behind(file, max_bytes=300))
        return made[-1]

    return make


@NEEDS_FULL
def test_a_full_disk_is_the_error_it_is_without_a_thread(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        folder = RunFolder(tmp_path, full)
        folder.write_behind()
        with pytest.raises(RunError, match=r"No space left.*make room"):
            again_and_again(lambda: folder.record(Joined(0.0, 7, 50)))
        with pytest.raises(RunError, match="No space left"):  # so no checkpoint is taken
            folder.sync()
        with pytest.raises(RunError, match="No space left"):
            folder.close()

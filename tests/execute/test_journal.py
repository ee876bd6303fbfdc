"""A journal: whatever a server dies of, and whenever, the next one goes on where it was."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from journals import CONCURRENCY, Federation, Server, fates
from runs import NUM_EXAMPLES, START, assert_lawful, digits, of_kind, outcome, reason, task

from pisces.clients.checks import Limits
from pisces.errors import ConfigError, RunError
from pisces.evaluate import Background, Inline
from pisces.execute.base import Capabilities, Handover
from pisces.execute.fake import FakeExecutor
from pisces.execute.journal import Journaled
from pisces.execute.tape import Tape
from pisces.journaling import Remembered, tape_for
from pisces.models.flat import flatten
from pisces.record import journal as journal_module
from pisces.record.checkpoint import Checkpoints, Saved, Store
from pisces.record.journal import Journal, Journaling
from pisces.record.lines import Line
from pisces.record.segment import FORMAT, HEAD, Place, framed
from pisces.simulation import run
from pisces.stop import Stop
from pisces.types import Arrived, Event, Failed, Joined, Left, Report, Task, Weights


def assert_whole(run: Federation) -> None:
    """Fail unless the log is lawful and says of every update that was called safe what it did."""
    lines = run.lines
    assert_lawful(lines, CONCURRENCY)
    became = fates(lines)
    assert all(len(fate) == 1 for fate in became.values())
    assert run.clients.acknowledged <= became.keys()
    assert not run.clients.held  # nobody was left with a result that nobody took
    versions = [line["version"] for line in of_kind(lines, "evaluated")]
    assert versions == list(range(len(versions)))  # each once
    started = {line["task"]: line for line in of_kind(lines, "started")}
    for number, sent in run.clients.sent.items():
        assert (started[number]["client"], started[number]["version"]) == (
            sent.client,
            sent.version,
        )


# --- killed ---------------------------------------------------------------------------------------


def test_a_journal_changes_nothing(tmp_path: Path) -> None:
    bare, kept = Federation(tmp_path / "bare", is_journaled=False), Federation(tmp_path / "kept")
    one, other = bare.serve(), kept.serve()
    assert one is not None
    assert other is not None
    assert bare.log == kept.log
    assert bare.clients.acknowledged == kept.clients.acknowledged
    assert torch.equal(one.flat, other.flat)
    assert_whole(kept)


@pytest.mark.parametrize(
    ("protocol", "tick_s", "first"),
    [
        *[("fedbuff", 0.0, 0), ("pisces", 0.0, 1), ("oort", 0.0, 2), ("port", 0.0, 3)],
        ("fedbuff", 2.0, 4),
    ],
)
def test_killed_at_any_moment_it_goes_on(
    tmp_path: Path, protocol: str, tick_s: float, first: int
) -> None:
    how: dict[str, Any] = {"protocol": protocol, "tick_s": tick_s}
    whole = Federation(tmp_path / "whole", **how)
    whole.serve()
    assert bool(whole.clients.pulled) == (protocol == "port")
    for num_moments in range(first, whole.num_moments, 13):
        run = Federation(tmp_path / str(num_moments), **how)
        assert run.serve(num_moments) is None
        before = run.log
        assert run.serve() is not None
        assert run.log.startswith(before)  # what was written was written again
        assert_whole(run)


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["fedbuff", "pisces", "oort", "fedasync", "port", "papaya"])
def test_killed_at_every_moment_it_goes_on(tmp_path: Path, protocol: str) -> None:
    whole = Federation(tmp_path / "whole", protocol)
    whole.serve()
    for num_moments in range(whole.num_moments):
        run = Federation(tmp_path / str(num_moments), protocol)
        run.serve(num_moments)
        before = run.log
        run.serve()
        assert run.log.startswith(before)
        assert_whole(run)


@pytest.mark.parametrize("checkpoints", [Checkpoints(3.0, keep=1), None])
def test_killed_again_and_again_it_gets_there(
    tmp_path: Path, checkpoints: Checkpoints | None
) -> None:
    rng, run, before = random.Random(1), Federation(tmp_path / "run"), b""
    run.checkpoints = checkpoints
    num_killed = 0
    while run.serve(rng.randint(20, 60)) is None:
        # What was told is told again before anything new is: never does the log lose a line.
        after = run.log
        assert after.startswith(before) or before.startswith(after)  # killed while playing
        before = max(before, after, key=len)
        num_killed += 1
    assert num_killed >= 3
    assert run.log.startswith(before)
    assert_whole(run)


def test_time_stands_still_while_nobody_serves_and_what_ran_is_handed_over(tmp_path: Path) -> None:
    run = Federation(tmp_path / "run", checkpoints=None)
    run.serve(60)
    before = run.lines
    ended = {
        line["task"] for line in of_kind(before, "arrived", "failed", "left") if "task" in line
    }
    running = [line["task"] for line in of_kind(before, "started") if line["task"] not in ended]
    run.serve()
    ((now, handed_over),) = run.clients.taken_over
    assert now == before[-1]["at"]
    assert handed_over == running


@pytest.mark.parametrize("num_waits", [0, 1, 3, 5, 6])
def test_interrupted_it_goes_on(tmp_path: Path, num_waits: int) -> None:
    run = Federation(tmp_path / "run", interrupted_in=num_waits)
    run.serve()
    assert reason(run.lines) == "interrupted"
    assert_lawful(run.lines, CONCURRENCY)
    run.interrupted_in = None
    run.serve()
    assert_whole(run)


@pytest.mark.parametrize("num_moments", [9, 14, 19, 30, 45])
def test_checkpoints_are_made_also_while_it_is_told_again(tmp_path: Path, num_moments: int) -> None:
    run = Federation(tmp_path / "run", checkpoints=None)
    assert run.serve(90) is None
    before = run.log
    run.checkpoints = Checkpoints(1.0, keep=1)
    assert run.serve(num_moments) is None
    assert any((run.folder / "checkpoints").glob("*.json"))
    assert run.serve() is not None
    assert run.log.startswith(before)
    assert_whole(run)


def test_nothing_leaves_before_it_is_on_the_disk(tmp_path: Path) -> None:
    journal, seen = Journal(tmp_path, {}), []

    class Watching(FakeExecutor):
        def submit(self, task: Task) -> None:
            seen.append(("submit", journal._is_synced))
            super().submit(task)

        def acknowledge(self) -> None:
            seen.append(("acknowledge", journal._is_synced))

    executor = Journaled(Watching([Joined(0.0, 0, NUM_EXAMPLES)]), Tape(journal), START)
    executor.wait(0.0)
    executor.submit(task(0, 0))
    assert not executor.quiet  # which only looks
    assert seen == []
    assert not journal._is_synced
    executor.send()
    assert seen == [("acknowledge", True), ("submit", True)]
    executor.wait(2.0)
    executor.send()
    assert len(seen) == 2  # nothing was heard, nothing is to be said
    executor.submit(task(1, 0))
    executor.wait(3.0)  # at the latest
    assert seen[2:] == [("submit", True)]


@pytest.mark.parametrize(("protocol", "tick_s"), [("fedbuff", 0.0), ("port", 0.0), ("pisces", 2.0)])
def test_the_loop_sends_what_is_on_the_disk_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, tick_s: float
) -> None:
    run = Federation(tmp_path / "run", protocol, tick_s=tick_s)
    seen: list[str] = []

    def watch(name: str) -> None:
        method = getattr(Server, name)

        def watched(server: Server, *args: Any) -> Any:
            assert name == "wait" or run.journal._is_synced
            seen.append(name)
            return method(server, *args)

        monkeypatch.setattr(Server, name, watched)

    for name in ("submit", "pull", "acknowledge", "send", "wait"):
        watch(name)
    run.serve()
    while seen[-1] != "wait":  # what the end calls off, nobody waits for
        seen.pop()
    turns = " ".join(seen).split("wait")[:-1]
    assert turns[0] == ""
    # All at once and once a turn: what is safe, then what is asked for, and then it is said.
    said = re.compile(r" (acknowledge )?((submit|pull) )*send ")
    assert [turn for turn in turns[1:] if not said.fullmatch(turn)] == []
    assert seen.count("submit") > 5
    assert seen.count("pull") > 0 or protocol != "port"


def test_a_checkpoint_never_knows_more_than_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen, save = Federation(tmp_path / "run"), [], Store.save

    def watched(store: Store, saved: Saved, keep: int) -> Path:
        seen.append(run.journal._is_synced)
        return save(store, saved, keep)

    monkeypatch.setattr(Store, "save", watched)
    run.serve()
    assert len(seen) > 2
    assert all(seen)


# --- what is in the file --------------------------------------------------------------------------


def written(folder: Path) -> tuple[Path, list[dict[str, Any]], list[int]]:
    """A short journal, its facts, and where each record ends."""
    journal, ends = Journal(folder, {"seed": 1}), []
    facts = [{"n": 0}, {"n": 1, "text": "ä"}, {"n": 2}]
    for number, fact in enumerate(facts):
        journal.append(fact, [memoryview(bytes(range(10 * number)))] * number)
        ends.append(journal.end.num_bytes)
    journal.close()
    return folder / "journal" / "000001.journal", facts, ends


def read(folder: Path, begin: Place = Place()) -> list[dict[str, Any]]:  # noqa: B008
    return [record.facts for record in Journal(folder, {}).records(begin)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path, facts, _ = written(tmp_path)
    records = list(Journal(tmp_path, {}).records(Place()))
    assert [record.facts for record in records] == facts
    assert [record.content for record in records] == [b"", bytes(range(10)), bytes(range(20)) * 2]
    assert read(tmp_path, records[1].end) == facts[2:]
    assert Journal(tmp_path, {}).made_then() == {"seed": 1}
    assert path.read_bytes().startswith(b"pisces journal 1\n")


def test_cut_at_any_byte_it_ends_with_the_last_whole_record(tmp_path: Path) -> None:
    path, facts, ends = written(tmp_path)
    content = path.read_bytes()
    for num in range(len(content)):
        path.write_bytes(content[:num])
        whole = facts[: sum(end <= num for end in ends)]
        assert read(tmp_path) == whole
        journal = Journal(tmp_path, {})
        journal.end = journal.check(Place())
        journal.append({"after": num})
        journal.close()
        assert read(tmp_path) == [*whole, {"after": num}]
        for other in path.parent.glob("*"):
            other.unlink()


def test_looking_a_journal_through_changes_nothing(tmp_path: Path) -> None:
    _, _, ends = written(tmp_path)
    journal = Journal(tmp_path, {})
    assert journal.check(Place())[:2] == (1, ends[-1])
    assert journal.end == Place()


def test_zeros_that_a_power_failure_leaves_are_cut_off(tmp_path: Path) -> None:
    path, facts, _ = written(tmp_path)
    path.write_bytes(path.read_bytes() + bytes(500))
    assert read(tmp_path) == facts


def test_any_byte_that_is_another_is_found(tmp_path: Path) -> None:
    path, _, _ = written(tmp_path)
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x15]) + content[at + 1 :])
        with pytest.raises(RunError, match=r"000001\.journal"):
            read(tmp_path)


@pytest.mark.parametrize("content", [b"no journal", HEAD + framed(b"[]", [], 0)[0] + b"[]"])
def test_a_file_that_is_refused_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    path, _, _ = written(tmp_path)
    path.write_bytes(content)
    files: list[BinaryIO] = []
    begin: Any = Path.open

    def opened(path: Path, mode: str) -> Any:
        files.append(begin(path, mode))
        return files[-1]

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(RunError):
        read(tmp_path)
    assert [file.closed for file in files] == [True]


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path, _, _ = written(tmp_path)
    newer = f"journal {FORMAT + 1}\n".encode()
    path.write_bytes(path.read_bytes().replace(b"journal 1\n", newer))
    with pytest.raises(RunError, match=f"format {FORMAT + 1}.*use the Pisces that wrote it"):
        read(tmp_path)


def test_a_record_or_a_segment_that_is_gone_is_missed(tmp_path: Path) -> None:
    path, _, ends = written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: ends[0]] + whole[ends[1] :])
    with pytest.raises(RunError, match=f"damaged at byte {ends[0]}"):
        read(tmp_path)
    path.write_bytes(whole)
    for number in (3, 4):
        journal = Journal(tmp_path, {})
        journal.end = journal.check(Place())
        journal.append({"n": number})
        journal.close()
    assert len(read(tmp_path)) == 5
    path.with_name("000002.journal").unlink()
    with pytest.raises(RunError, match="something is missing"):
        read(tmp_path)
    path.write_bytes(whole[: ends[1]])
    with pytest.raises(
        RunError, match="something is missing"
    ):  # no kill cuts what was gone on from
        read(tmp_path)


def test_no_link_is_followed(tmp_path: Path) -> None:
    path, _, _ = written(tmp_path / "elsewhere")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal").symlink_to(path.parent)
    with pytest.raises(RunError, match="is a link"):
        Journal(tmp_path / "run", {})
    (tmp_path / "other" / "journal").mkdir(parents=True)
    (tmp_path / "other" / "journal" / path.name).symlink_to(path)
    with pytest.raises(RunError, match="is a link"):
        Journal(tmp_path / "other", {})


def test_segments_must_have_room() -> None:
    with pytest.raises(ConfigError, match="segment_bytes"):
        Journaling(segment_bytes=0)


# --- runs that cannot go on -----------------------------------------------------------------------


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def killed(tmp_path: Path) -> Federation:
    """A run killed when there was much in its journal and no checkpoint yet."""
    run = Federation(tmp_path / "run", checkpoints=None)
    assert run.serve(80) is None
    return run


def refused(run: Federation, match: str) -> None:
    before = snapshot(run.folder)
    with pytest.raises(RunError, match=match):
        run.serve()
    assert snapshot(run.folder) == before


def test_damage_is_refused_before_anything_is_touched(killed: Federation) -> None:
    path = killed.segments[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    refused(killed, "is damaged at byte")


def test_another_run_is_refused(killed: Federation) -> None:
    killed.made = {"seed": 2}
    refused(killed, "of another run: seed was 1, and is 2")


def test_a_run_that_goes_otherwise_says_so(killed: Federation) -> None:
    size = [path.stat().st_size for path in killed.segments]
    killed.seed = 2  # as if other code drew otherwise
    with pytest.raises(RunError, match=r"not go as its journal says \(submit: (client|seed) was"):
        killed.serve()
    assert [path.stat().st_size for path in killed.segments] == size
    killed.seed = 1
    assert killed.serve() is not None  # nothing was lost by trying
    assert_whole(killed)


def test_another_protocol_says_so(killed: Federation) -> None:
    killed.protocol = "fedasync"
    with pytest.raises(RunError, match="not go as its journal says"):
        killed.serve()


def test_without_its_journal_it_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    run = Federation(tmp_path / "run", stop=Stop(versions=12))
    run.serve(120)
    assert any((run.folder / "checkpoints").glob("*.json"))
    for _ in range(2):  # also where the process after that is killed
        shutil.rmtree(run.folder / "journal")
        run.clients.acknowledged.clear()  # what came after the checkpoint is lost by that
        run.clients.sent.clear()
        run.clients.held.clear()
        run.serve(20)
    assert run.serve() is not None
    assert_lawful(run.lines, CONCURRENCY)


# --- another stop ---------------------------------------------------------------------------------


def test_a_finished_run_goes_on_to_a_later_stop(tmp_path: Path) -> None:
    run = Federation(tmp_path / "run", stop=Stop(versions=3))
    run.serve()
    assert reason(run.lines) == "versions"
    with pytest.raises(RunError, match="is finished"):
        run.serve()
    run.stop = Stop(versions=6)
    run.serve()
    assert_lawful(run.lines, CONCURRENCY)
    assert len(of_kind(run.lines, "aggregated")) == 6


def test_an_earlier_stop_ends_it_there_and_a_later_one_takes_the_rest_up(
    killed: Federation,
) -> None:
    before = killed.log
    num = len(of_kind(killed.lines, "aggregated"))
    assert num >= 2
    killed.stop, killed.checkpoints = Stop(versions=1), Checkpoints()
    killed.serve()
    assert len(of_kind(killed.lines, "aggregated")) == 1
    assert_lawful(killed.lines, CONCURRENCY)
    killed.stop = Stop(versions=5)
    killed.serve()
    assert killed.log.startswith(before)
    assert_whole(killed)


# --- room -----------------------------------------------------------------------------------------


def test_a_full_disk_ends_the_run_and_nothing_was_acknowledged_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Federation(tmp_path / "whole", checkpoints=None)
    whole.serve()
    room = sum(path.stat().st_size for path in whole.segments)
    for share in (0.1, 0.35, 0.6, 0.85):
        run, left = Federation(tmp_path / str(share), checkpoints=None), [int(share * room)]

        def write(file: BinaryIO, content: memoryview, left: list[int] = left) -> None:
            left[0] -= file.write(content[: left[0]])
            if left[0] == 0:
                raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(journal_module, "_write_all", write)
            with pytest.raises(RunError, match=r"cannot write .*journal: No space left.*make room"):
                run.serve()
        on_disk = {
            event["task_id"]
            for record in Journal(run.folder, {}).records(Place())
            for event in record.facts.get("events", [])
            if event["kind"] == "arrived"
        }
        assert run.clients.acknowledged <= on_disk
        assert run.serve() is not None
        assert_whole(run)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="who is who is told there")
def test_a_disk_that_fails_when_a_run_is_taken_up_ends_it_in_a_line(
    killed: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def fail(file: int) -> None:
        if os.readlink(f"/proc/self/fd/{file}").endswith(".journal"):
            raise OSError(errno.EIO, "Input/output error")
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(RunError, match=r"cannot write .*000001\.journal: Input/output error"):
            killed.serve()
    assert killed.clients.taken_over == []  # nobody heard of it
    assert killed.serve() is not None
    assert_whole(killed)


def test_segments_that_no_checkpoint_needs_are_removed(tmp_path: Path) -> None:
    how = Checkpoints(1.0, keep=2)
    run = Federation(tmp_path / "run", stop=Stop(versions=20), checkpoints=how)
    sizes = []
    for num_moments in (150, 150, 150):
        run.serve(num_moments)
        sizes.append(len(run.segments))
    run.serve()
    assert max(sizes) <= 4  # of two checkpoints, what came since, and a resume
    assert len(run.segments) <= 2
    assert int(run.segments[-1].stem) > 6


@pytest.mark.parametrize("num_moments", [150, 190, 230])
def test_the_checkpoint_before_the_last_still_has_its_journal(
    tmp_path: Path, num_moments: int
) -> None:
    run = Federation(tmp_path / "run", stop=Stop(versions=12), checkpoints=Checkpoints(1.0, keep=2))
    assert run.serve(num_moments) is None
    before = run.log
    _, last = sorted((run.folder / "checkpoints").glob("*.json"))
    last.write_bytes(last.read_bytes()[:-9])
    assert run.serve() is not None
    assert run.log.startswith(before)  # all of it, though from further back
    assert_whole(run)


def test_a_full_segment_asks_for_a_checkpoint(tmp_path: Path) -> None:
    run = Federation(tmp_path / "run", checkpoints=Checkpoints(1e9))
    run.journaling = Journaling(segment_bytes=3000)
    run.serve(120)
    assert len(list((run.folder / "checkpoints").glob("*.json"))) == 1
    assert all(path.stat().st_size < 6000 for path in run.segments)


# --- what is told ---------------------------------------------------------------------------------

ODD: list[Event] = [
    Joined(0.0, 1, NUM_EXAMPLES),
    Joined(0.0, 2, "many"),  # type: ignore[arg-type]
    Joined(0.0, 3, 10**5000),
    Left(0.0, 1, "gone"),
    Failed(0.0, 0, "crashed", 777),
    Arrived(0.0, 0, 0, Weights(torch.zeros(2, 3, dtype=torch.float16), START.layout), Report(1)),
    Arrived(0.0, 0, 0, Weights("no tensor", START.layout), Report(1)),  # type: ignore[arg-type]
    Arrived(0.0, 0, 0, Weights(torch.tensor(float("nan")), START.layout), Report(1, float("inf"))),
    Arrived(0.0, 0, 0, START, Report([1], {"a": 1}, object())),  # type: ignore[arg-type]
    Arrived(0.0, "x", None, START, "no report"),  # type: ignore[arg-type]
    Arrived(0.0, 0, 0, Weights(torch.eye(2).to_sparse(), START.layout), Report(1)),
    Arrived(0.0, 0, 0, Weights(torch.zeros(3, dtype=torch.bfloat16), START.layout), Report(1)),
    Arrived(0.0, 0, 0, outcome(task(0, 0)).weights, outcome(task(0, 0)).report),
]


def told(events: list[Event]) -> list[str]:
    return [
        f"{replace(e, weights=START)} {e.weights.flat.dtype} {e.weights.flat.tolist()}"
        if isinstance(e, Arrived)
        else repr(e)
        for e in events
    ]


def test_whatever_clients_send_is_told_again(tmp_path: Path) -> None:
    first = Journaled(FakeExecutor(ODD), Tape(Journal(tmp_path, {})), START)
    events = first.wait(0.0)
    first.close()
    tape = Tape(Journal(tmp_path, {}))
    tape.go_to()
    again = Journaled(FakeExecutor(), tape, START).wait(5.0)
    assert told(again) == told(events)
    arrived = [event for event in events if isinstance(event, Arrived)]
    assert torch.equal(arrived[-1].weights.flat, outcome(task(0, 0)).weights.flat)
    assert arrived[1].weights.flat.shape == (0,)  # which the checks refuse


class Noting(FakeExecutor):
    left: Handover | None = None

    def take_over(self, left: Handover) -> None:
        self.left = left
        super().take_over(left)


def test_who_is_there_what_runs_and_what_was_pulled_is_handed_over(tmp_path: Path) -> None:
    script = [Joined(0.0, client, NUM_EXAMPLES) for client in range(5)]
    script_later = [Left(1.0, 0, "gone"), Failed(1.0, 1, "crashed", 1), Failed(1.0, 4, "no", 2)]
    first = Journaled(FakeExecutor([*script, *script_later]), Tape(Journal(tmp_path, {})), START)
    first.wait(0.0)
    for client in range(5):
        first.submit(task(client, client))
    first.pull(2)
    first.pull(3)
    first.cancel(3)
    assert len(first.wait(1.0)) == 3
    first.submit(task(5, 1))
    first.close()

    def again(executor: Journaled) -> None:
        executor.wait(0.0)
        for client in range(5):
            executor.submit(task(client, client))
        executor.pull(2)
        executor.pull(3)
        executor.cancel(3)
        executor.wait(1.0)
        executor.submit(task(5, 1))

    inner, tape = Noting(), Tape(Journal(tmp_path, {}))
    tape.go_to()
    second = Journaled(inner, tape, START)
    again(second)
    assert inner.left is None  # everything so far was played
    second.wait(2.0)
    assert inner.left is not None
    assert inner.left.present == (1, 2, 3, 4)
    assert [(t.id, at) for t, at in inner.left.running] == [(2, 0.0), (4, 0.0), (5, 1.0)]
    assert inner.left.now == 1.0
    assert inner.pulled == [2]
    assert [t.id for t in inner.submitted] == [2, 4, 5]  # not once more by itself


def test_only_who_was_let_in_is_handed_over(tmp_path: Path) -> None:
    odd: list[Any] = ["1", 1.0, True, None, -1, 10**7, 10**40, float("nan")]
    script = [Joined(0.0, client, NUM_EXAMPLES) for client in (2, *odd)]
    script += [Joined(0.0, 3, 0), Joined(0.0, 4, NUM_EXAMPLES), Joined(0.0, 2, -1)]
    inner, tape = Noting(script), Tape(Journal(tmp_path, {}))
    first = Journaled(inner, tape, START, Limits(max_clients=4))
    first.wait(0.0)
    assert first.state().arrays["present"].tolist() == [2]  # whoever was there stays there
    first.close()
    tape = Tape(Journal(tmp_path, {}))
    tape.go_to()
    again = Journaled(inner, tape, START, Limits(max_clients=4))
    again.wait(0.0)
    again.send()
    assert inner.left is not None
    assert inner.left.present == (2,)


def test_who_says_nothing_is_quiet_again_at_the_same_point(tmp_path: Path) -> None:
    first = Journaled(FakeExecutor([Joined(0.0, 0, 1)]), Tape(Journal(tmp_path, {})), START)
    asked = [first.quiet, bool(first.wait(0.0)), first.quiet, bool(first.wait(1.0))]
    first.close()
    tape = Tape(Journal(tmp_path, {}))
    tape.go_to()
    again = Journaled(FakeExecutor([Joined(0.0, 0, 1)]), tape, START)
    assert [again.quiet, bool(again.wait(0.0)), again.quiet, bool(again.wait(1.0))] == asked
    assert asked == [False, True, True, False]


# --- evaluations ----------------------------------------------------------------------------------


def test_an_evaluation_is_not_computed_again_and_one_to_come_is(tmp_path: Path) -> None:
    measured: list[float] = []

    def measure(_version: int, weights: Weights) -> dict[str, float]:
        measured.append(float(weights.flat[3]))
        return {"accuracy": 1}  # an int: the log would differ if that were not the same again

    def use(evaluator: Remembered) -> Iterator[list[Any]]:
        evaluator.start(0.0, 0, START)
        yield evaluator.finished()
        yield evaluator.finished()
        evaluator.start(1.0, 1, Weights(START.flat + 1, START.layout))

    first = Remembered(Inline(measure), Tape(Journal(tmp_path, {})), START)
    seen = list(use(first))
    first._tape.close()
    assert measured == [1.0, 2.0]
    tape = Tape(Journal(tmp_path, {}))
    tape.go_to()
    again = Remembered(background := Background(measure), tape, START)
    assert json.dumps([str(e) for e in use(again)]) == json.dumps([str(e) for e in seen])
    assert again.busy
    assert [e.version for e in again.drain()] == [1]
    assert measured == [1.0, 2.0, 2.0]
    assert not again.busy
    assert not background.busy


def test_evaluations_to_come_are_saved(tmp_path: Path) -> None:
    slow = Background(lambda _version, weights: {"accuracy": float(weights.flat[3])})
    one = Remembered(slow, Tape(Journal(tmp_path / "one", {})), START)
    one.start(2.0, 7, START)
    other = Remembered(
        Inline(lambda _version, w: {"accuracy": 2 * float(w.flat[3])}), one._tape, START
    )
    other.restore(one.state())
    (evaluated,) = other.finished()
    assert (evaluated.at, evaluated.version, evaluated.metrics) == (2.0, 7, {"accuracy": 2.0})
    one.drain()


# --- who has one ----------------------------------------------------------------------------------


def test_only_real_time_has_a_tape_and_only_where_it_can_be_taken_over(tmp_path: Path) -> None:
    assert tape_for(FakeExecutor(), tmp_path, {}) is None
    real = FakeExecutor(capabilities=Capabilities(real_time=True))
    with pytest.raises(ConfigError, match="FakeExecutor cannot take over"):
        tape_for(real, tmp_path, {})
    able = FakeExecutor(capabilities=Capabilities(real_time=True, takes_over=True))
    assert isinstance(tape_for(able, tmp_path, {}), Tape)
    assert list(tmp_path.iterdir()) == []  # nothing is written before anything happened


# --- put together ---------------------------------------------------------------------------------


def networked(num_clients: int, like: Weights) -> FakeExecutor:
    """As a network executor would be: real time, and able to take over."""

    def answer(asked: Task, now: float) -> list[Event]:
        weights = Weights(asked.weights.flat * 0.999, like.layout)
        return [Arrived(now + 1.0, asked.id, asked.client, weights, Report(1, 1.0, 1.1))]

    joins = [Joined(0.0, client, NUM_EXAMPLES) for client in range(num_clients)]
    can = Capabilities(real_time=True, cancels=True, takes_over=True)
    return FakeExecutor(joins, answer, can)


def test_a_run_in_real_time_keeps_a_journal_and_goes_on(tmp_path: Path) -> None:
    def go(num_versions: int, executor: FakeExecutor | None, **how: Any) -> list[Line]:
        parts = digits("fedbuff", [f"stop.versions={num_versions}"])
        how = {"protocol": "fedbuff", "out": tmp_path / "run", "executor": executor, **how}
        return list(run(parts, **how).lines)

    like = flatten(digits("fedbuff").model)
    first = go(3, networked(6, like), checkpoints=Checkpoints())
    assert reason(first) == "versions"
    assert len(list((tmp_path / "run" / "journal").iterdir())) == 1
    with pytest.raises(RunError, match="executor was 'FakeExecutor', and is None"):
        go(5, None, resume=True)
    # Without the script of who joins: they are known to be there.
    again = go(5, executor := networked(0, like), resume=True, checkpoints=Checkpoints())
    assert len(of_kind(again, "aggregated")) == 5
    assert [line["version"] for line in of_kind(again, "evaluated")] == [0, 5]
    assert len(executor.submitted) > 0


def test_virtual_time_keeps_none(tmp_path: Path) -> None:
    run(digits("fedbuff"), protocol="fedbuff", out=tmp_path / "run", checkpoints=Checkpoints())
    assert not (tmp_path / "run" / "journal").exists()

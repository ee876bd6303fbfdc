"""Runs are followed: as they appear, grow, are cut, replaced and let go."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from watching_pages import make_run, read_all, some_lines

from pisces.dashboard import index as indexing
from pisces.dashboard.index import Index
from pisces.record.lines import encode


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return (tmp_path / "runs").resolve()


def again(index: Index) -> Index:
    """Look around once more, without waiting for it to be time."""
    index._scan_at = 0.0
    for watched in index.runs():
        watched.read_at = 0.0
    return read_all(index)


def version_of(index: Index, run: str) -> int:
    watched = index.find(run)
    assert watched is not None
    assert watched.seen is not None
    return watched.seen.version


def test_a_run_that_appears_is_found(root: Path) -> None:
    index = read_all(Index(root))
    assert index.runs() == []
    before = index.revision
    make_run(root / "a", some_lines())
    again(index)
    assert [watched.place.id for watched in index.runs()] == ["a"]
    assert index.revision != before


def test_nothing_new_makes_no_new_revision(root: Path) -> None:
    make_run(root / "a", some_lines())
    index = read_all(Index(root))
    before = index.revision
    assert again(index).revision == before


def test_a_log_that_grows_is_followed(root: Path) -> None:
    lines = some_lines()
    run = make_run(root / "a", lines[:80])
    index = read_all(Index(root))
    before = version_of(index, "a")
    with (run / "events.jsonl").open("ab") as file:
        file.write(b"".join(map(encode, lines[80:])))
    again(index)
    assert version_of(index, "a") > before


def test_a_log_that_was_cut_by_a_resume_is_read_anew(root: Path) -> None:
    lines = some_lines()
    run = make_run(root / "a", lines)
    index = read_all(Index(root))
    whole = version_of(index, "a")
    (run / "events.jsonl").write_bytes(b"".join(map(encode, lines[:60])))
    again(index)
    assert version_of(index, "a") < whole


def test_a_run_in_the_place_of_another_is_read_anew(root: Path) -> None:
    run = make_run(root / "a", some_lines("pisces"))
    index = read_all(Index(root))
    (run / "events.jsonl").unlink()
    (run / "events.jsonl").write_bytes(b"".join(map(encode, some_lines("fedavg"))))
    again(index)
    watched = index.find("a")
    assert watched is not None
    assert watched.seen is not None
    assert watched.seen.staleness_max == 0  # FedAvg has none


def test_a_mended_log_is_read_on(root: Path) -> None:
    lines = some_lines()
    run = make_run(root / "a", lines)
    good = (run / "events.jsonl").read_bytes()
    at = good.index(b"\n", 2000) + 1
    (run / "events.jsonl").write_bytes(good[:at] + b"\x00}\n" + good[at:])
    index = read_all(Index(root))
    watched = index.find("a")
    assert watched is not None
    assert watched.problem
    (run / "events.jsonl").write_bytes(good)
    again(index)
    assert watched.problem is None
    assert watched.seen is not None
    assert watched.seen.reason is not None


def test_what_takes_too_much_room_is_let_go_but_for_its_line(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        make_run(root / name, some_lines())
    index = again(read_all(Index(root, room_bytes=1)))
    assert all(watched.ledger is None for watched in index.runs())
    assert all(watched.seen is not None for watched in index.runs())
    again(index)
    assert all(watched.ledger is None for watched in index.runs()), "it is not read again and again"
    watched = index.find("b")
    assert watched is not None
    ledger = index.ledger(watched)
    again(index)
    assert ledger.is_whole
    assert watched.ledger is ledger, "somebody looks at it"
    monkeypatch.setattr(indexing, "LOOKED_AT_S", 0.0)
    again(index)
    assert watched.ledger is None


def test_a_damaged_log_that_is_let_go_keeps_its_problem(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(root / "a", some_lines())
    text = (run / "events.jsonl").read_bytes()
    (run / "events.jsonl").write_bytes(text[:-40] + b"}\n{}\n")
    monkeypatch.setattr(indexing, "IDLE_S", 0.0)
    index = Index(root, room_bytes=1)
    for _ in range(4):
        index._scan_at = 0.0
        index.step()
    (watched,) = index.runs()
    share, problem, revision = watched.share_read, watched.problem, index.revision
    assert problem is not None
    assert share > 0.9
    watched.ledger = None  # let go
    index._scan_at = time.monotonic()
    index._take(indexing.places.find(root))
    assert (watched.share_read, watched.problem) == (share, problem)
    assert index.revision == revision, "nothing new is said"


def test_a_link_that_leads_out_is_told_when_it_comes_and_goes(root: Path, tmp_path: Path) -> None:
    run = make_run(root / "a", some_lines())
    index = read_all(Index(root))
    before, config = index.revision, (run / "config.toml").read_text()
    (tmp_path / "secret").write_text("")
    (run / "config.toml").unlink()
    (run / "config.toml").symlink_to(tmp_path / "secret")
    (watched,) = again(index).runs()
    assert "leads out" in (watched.problem or "")
    assert index.revision != before
    (run / "config.toml").unlink()
    (run / "config.toml").write_text(config)
    again(index)
    assert watched.problem is None
    assert watched.seen is not None


def test_a_config_that_comes_late_is_noticed_though_nobody_looks(root: Path) -> None:
    run = make_run(root / "a", [])
    config = (run / "config.toml").read_text()
    (run / "config.toml").unlink()
    index = read_all(Index(root))
    (watched,) = index.runs()
    assert watched.seen is not None
    assert watched.seen.name == "a"
    (run / "config.toml").write_text(config)
    again(index)
    assert watched.seen.name == "pisces (seed 1)"


def held(index: Index) -> set[str]:
    return {watched.place.id for watched in index.runs() if watched.ledger is not None}


def rest(index: Index, looked_at: dict[str, float]) -> None:
    """Nothing is due, whatever the time; each was looked at so many seconds from now."""
    now = time.monotonic()
    for watched in index.runs():
        watched.read_at = now + 3600.0
        watched.looked_at = now + looked_at[watched.place.id]


def test_a_run_that_was_just_looked_at_is_not_let_go(root: Path) -> None:
    for name in "abc":
        make_run(root / name, some_lines())
    index = read_all(Index(root, room_bytes=1 << 30))
    rest(index, {"a": -3600.0, "b": 0.0, "c": -3600.0})
    index.room_bytes = 1
    index._scan_at = 0.0
    assert held(index) == {"a", "b", "c"}
    assert not index.step(), "nothing was due"
    assert held(index) == {"b"}


def test_no_more_is_let_go_than_has_to_be_and_first_what_nobody_missed(root: Path) -> None:
    sizes = {}
    for name in "abc":
        log = make_run(root / name, some_lines()) / "events.jsonl"
        sizes[name] = log.stat().st_size
    index = read_all(Index(root, room_bytes=sum(sizes.values())))
    rest(index, {"a": -200.0, "b": -300.0, "c": -100.0})
    for room, left in ((0, "abc"), (1, "ac"), (1 + sizes["b"], "c")):
        index.room_bytes = sum(sizes.values()) - room
        index._scan_at = 0.0
        index.step()
        assert held(index) == set(left)


def test_a_run_with_more_to_read_is_not_let_go(root: Path) -> None:
    for name in "ab":
        make_run(root / name, some_lines()[:40])
    index = read_all(Index(root))
    rest(index, {"a": -3600.0, "b": -3600.0})
    (ledger,) = [watched.ledger for watched in index.runs() if watched.place.id == "b"]
    with (root / "b" / "events.jsonl").open("ab") as log:
        log.write(encode(some_lines()[40]))
    index.room_bytes = 1
    index._scan_at = 0.0
    index.step()
    assert [watched.ledger for watched in index.runs() if watched.ledger] == [ledger]


def test_the_time_since_the_last_line_makes_no_new_list(root: Path) -> None:
    run = make_run(root / "a", some_lines()[:40])
    os.utime(run / "events.jsonl", (time.time() - 4000,) * 2)
    index = read_all(Index(root))
    (watched,) = index.runs()
    assert watched.seen is not None
    assert watched.ledger is not None
    revision, silent_s = index.revision, watched.seen.silent_s
    index._look_over(watched, watched.ledger)
    assert watched.seen.silent_s != silent_s
    assert index.revision == revision


def test_who_is_looked_at_is_read_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "SLICE_S", 0.0)
    for name in "abc":
        make_run(root / name, some_lines())
    index = Index(root)
    index.step()
    assert index.find("c") is not None
    index.step()
    (c,) = [watched for watched in index.runs() if watched.place.id == "c"]
    assert c.ledger is not None
    assert c.ledger.share_read > 0


def test_the_thread_looks_by_itself_and_ends_at_once(root: Path) -> None:
    index = Index(root)
    index.start()
    try:
        make_run(root / "a", some_lines())
        until = time.monotonic() + 20.0
        while not (index.runs() and index.runs()[0].seen) and time.monotonic() < until:
            time.sleep(0.05)
        assert index.runs()[0].seen is not None
    finally:
        began = time.monotonic()
        index.stop()
    assert time.monotonic() - began < 2.0


def test_nothing_is_written_or_locked(root: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    run = make_run(root / "a", some_lines()[:50])
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in root.rglob("*")}
    with (run / "events.jsonl").open("r+b") as file:
        index = read_all(Index(root))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a run may begin while it is watched
        again(index)
    assert before == {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in root.rglob("*")}

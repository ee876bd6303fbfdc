"""Whole runs on a cluster, by one in this process to which anything can happen.

What it does on a real one is in `tests/cluster`.
"""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from clusters import PretendCluster, PretendWorker, Thing

from pisces.cluster.base import Refused, Share
from pisces.config import Config, check
from pisces.errors import ConfigError, RunError
from pisces.many import outpost, spread
from pisces.many.jobs import Job, jobs_of
from pisces.many.outpost import Outpost
from pisces.many.spread import Spread, share_of
from pisces.many.where import made_where

LOG = b'{"kind":"started"}\n'
SOON_S = 30.0


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """How runs are made: here, each as `deed` says; all that lay on nodes is gone at the end."""
    told: dict[str, Any] = {"deed": write_files, "interrupts": 0}
    node = tmp_path / "node"
    node.mkdir()

    def make(job: Job, num_cores: int) -> None:
        assert num_cores == 1
        job.out.mkdir()
        told["deed"](job.out)

    def interrupt() -> None:
        told["interrupts"] += 1

    monkeypatch.setattr(tempfile, "tempdir", str(node))
    monkeypatch.setattr(outpost, "ProcessPoolExecutor", Processes)
    monkeypatch.setattr(outpost, "make_run", make)
    monkeypatch.setattr(outpost, "interrupt_children", interrupt)
    monkeypatch.setattr(outpost, "REFRESH_S", 0.01)
    monkeypatch.setattr(spread, "REFRESH_S", 0.01)
    yield told
    gc.collect()  # workers that were killed let go of what they held
    Outpost().leave()
    assert list(node.iterdir()) == []


class Processes:
    """Makes a run in a thread, in place of a process."""

    def __init__(self, *_: object, **__: object) -> None:
        self._pool = ThreadPoolExecutor(1)

    def submit(self, make: Callable[..., None], *given: Any) -> Future[None]:
        return self._pool.submit(make, *given)

    def shutdown(self) -> None:
        self._pool.shutdown()


def write_files(out: Path) -> None:
    (out / "events.jsonl").write_bytes(LOG * 3)
    (out / "deeper").mkdir()
    (out / "deeper" / "model").write_bytes(os.urandom(3000))
    (out / "empty").touch()


def the(job: Job, cluster: PretendCluster | None = None) -> Future[None]:
    """The run of a job, when it is over."""
    pool = Spread(cluster or PretendCluster(), Share())
    future = pool.submit_run(job)
    until(future.done)
    pool.shutdown()
    return future


def until(true: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + SOON_S
    while not true():
        assert time.monotonic() < ends_at
        time.sleep(0.005)


def test_all_files_come_over_whole(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outpost, "MOST_AT_ONCE", 1000)  # in several pieces
    content: dict[str, bytes] = {}

    def deed(out: Path) -> None:
        write_files(out)
        content.update({str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*.*")})
        content["deeper/model"] = (out / "deeper" / "model").read_bytes()

    made["deed"] = deed
    job = Job(Config(), tmp_path / "run")
    assert the(job).result() is None
    assert (job.out / "deeper" / "model").read_bytes() == content["deeper/model"]
    assert (job.out / "events.jsonl").read_bytes() == LOG * 3
    assert (job.out / "empty").read_bytes() == b""


def test_runs_one_after_the_other(made: dict[str, Any], tmp_path: Path) -> None:
    cluster = PretendCluster()
    pool = Spread(cluster, Share())
    for name in ("a", "b", "c"):
        future = pool.submit_run(Job(Config(), tmp_path / name))
        until(future.done)
        pool.shutdown()
        assert (tmp_path / name / "events.jsonl").read_bytes() == LOG * 3
    assert not any(worker.alive for worker in cluster.hired)


def test_a_run_whose_worker_dies_after_an_interrupt_is_not_begun_anew(
    made: dict[str, Any], tmp_path: Path
) -> None:
    going = threading.Event()

    def deed(out: Path) -> None:
        write_files(out)
        assert going.wait(SOON_S)

    made["deed"] = deed
    cluster = PretendCluster()
    pool = Spread(cluster, Share())
    future = pool.submit_run(Job(Config(), tmp_path / "run"))
    until((tmp_path / "run" / "events.jsonl").exists)
    pool.interrupt()
    cluster.hired[0].alive = False
    until(future.done)
    going.set()
    pool.shutdown()
    with pytest.raises(KeyboardInterrupt):
        future.result()
    assert len(cluster.hired) == 1


def test_where_nobody_gets_room_that_is_said_once(
    made: dict[str, Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spread, "LONG", 3)
    cluster = PretendCluster()
    num_waits, answers = [0], cluster.answers

    def late(refs: Any, wait_s: float) -> Any:
        num_waits[0] += 1
        return [] if num_waits[0] < 20 else answers(refs, wait_s)

    cluster.answers = late  # type: ignore[method-assign]
    assert the(Job(Config(), tmp_path / "run"), cluster).result() is None
    assert caplog.text.count("no run has begun yet, with 1 CPU each") == 1


def test_an_error_is_the_runs_own(made: dict[str, Any], tmp_path: Path) -> None:
    def deed(out: Path) -> None:
        write_files(out)
        raise LookupError("no such data on this node")

    made["deed"] = deed
    with pytest.raises(LookupError, match="no such data on this node") as caught:
        the(Job(Config(), tmp_path / "run")).result()
    assert "on another node" in caught.value.__notes__[0]


def test_an_interrupted_run_is_no_failure_and_leaves_what_there_is(
    made: dict[str, Any], tmp_path: Path
) -> None:
    def deed(out: Path) -> None:
        write_files(out)
        raise KeyboardInterrupt

    made["deed"] = deed
    future = the(Job(Config(), tmp_path / "run"))
    with pytest.raises(KeyboardInterrupt):
        future.result()
    assert (tmp_path / "run" / "events.jsonl").read_bytes() == LOG * 3


def dying(times: int) -> Callable[[PretendWorker, Thing], None]:
    left = [times]

    def before(worker: PretendWorker, thing: Thing) -> None:
        if thing.method == "look" and left[0]:
            left[0] -= 1
            wait([worker.held._run])  # a thread would outlive it, which a process does not
            worker.end()
            worker.held = None

    return before


def test_a_run_whose_worker_died_is_begun_anew(made: dict[str, Any], tmp_path: Path) -> None:
    cluster = PretendCluster(before=dying(2))
    job = Job(Config(), tmp_path / "run")
    job.out.mkdir()
    (job.out / "left behind").touch()
    assert the(job, cluster).result() is None
    assert len(cluster.hired) == 3
    assert sorted(p.name for p in job.out.iterdir()) == ["deeper", "empty", "events.jsonl"]


def test_a_run_at_which_everybody_dies_is_given_up(made: dict[str, Any], tmp_path: Path) -> None:
    cluster = PretendCluster(before=dying(99))
    with pytest.raises(RunError, match="3 workers died at this run, the last of: it was killed"):
        the(Job(Config(), tmp_path / "run"), cluster).result()


def test_a_disk_that_is_full_here_is_that_runs_error(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spread, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        the(Job(Config(), tmp_path / "run")).result()


def test_an_error_of_the_cluster_ends_what_is_under_way(
    made: dict[str, Any], tmp_path: Path
) -> None:
    cluster = PretendCluster()

    def fail(_refs: object, _wait_s: float) -> Any:
        raise RunError("a worker of the cluster cannot be asked")

    cluster.answers = fail  # type: ignore[method-assign]
    with pytest.raises(RunError, match="cannot be asked"):
        the(Job(Config(), tmp_path / "run"), cluster).result()


def test_a_run_for_which_there_is_no_room_can_be_interrupted(
    made: dict[str, Any], tmp_path: Path
) -> None:
    cluster = PretendCluster()
    cluster.answers = lambda _refs, _wait_s: []  # type: ignore[method-assign]
    pool = Spread(cluster, Share())
    future = pool.submit_run(Job(Config(), tmp_path / "run"))
    pool.interrupt()
    with pytest.raises(KeyboardInterrupt):
        future.result(timeout=5)
    assert not cluster.hired[0].alive


def test_a_run_under_way_is_asked_to_end_early_until_it_does(
    made: dict[str, Any], tmp_path: Path
) -> None:
    asked_twice = threading.Event()

    def deed(out: Path) -> None:
        write_files(out)
        assert asked_twice.wait(SOON_S)
        raise KeyboardInterrupt

    made["deed"] = deed
    pool = Spread(PretendCluster(), Share())
    log = tmp_path / "run" / "events.jsonl"
    future = pool.submit_run(Job(Config(), tmp_path / "run"))
    until(log.exists)  # while it goes on
    while made["interrupts"] < 2:
        pool.interrupt()
    asked_twice.set()
    until(future.done)
    with pytest.raises(KeyboardInterrupt):
        future.result()
    pool.shutdown()
    assert log.read_bytes() == LOG * 3


def test_a_run_whose_process_was_killed_there_is_begun_anew(
    made: dict[str, Any], tmp_path: Path
) -> None:
    num_made = [0]

    def deed(out: Path) -> None:
        num_made[0] += 1
        write_files(out)
        if num_made[0] == 1:
            raise BrokenProcessPool

    made["deed"] = deed
    cluster = PretendCluster()
    assert the(Job(Config(), tmp_path / "run"), cluster).result() is None
    assert len(cluster.hired) == 2


def test_other_software_on_a_node_is_refused(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Spread(PretendCluster(), Share())
    pool._software = "pisces 0.0 and torch 1.0"
    future = pool.submit_run(Job(Config(), tmp_path / "run"))
    until(future.done)
    pool.shutdown()
    with pytest.raises(RunError, match=r"has pisces 0\.0 and torch 1\.0, this one pisces"):
        future.result()


def test_what_a_node_cannot_make_is_that_runs_error(made: dict[str, Any], tmp_path: Path) -> None:
    cluster = PretendCluster()
    cluster.answers = lambda refs, _wait_s: [(refs[0], Refused("No module named 'mine'"))]
    with pytest.raises(RunError, match="cannot make this run: No module named 'mine'"):
        the(Job(Config(), tmp_path / "run"), cluster).result()


def test_what_killed_workers_left_is_removed_and_nothing_else(tmp_path: Path, made: Any) -> None:
    alive, dead = Outpost(), Outpost()
    (dead._above / "run").mkdir()
    dead._held.close()  # as when its process is gone
    Outpost().leave()
    assert (alive._above.exists(), dead._above.exists()) == (True, False)
    alive.leave()


def test_a_run_takes_a_gpu_where_it_is_to_train_on_one() -> None:
    assert share_of(check({"train": {"device": "cuda"}})) == Share(gpus=1.0)
    assert share_of(Config()) == Share()
    assert share_of(check({"train": {"workers": 3}})) == Share(cpus=3.0)


def test_a_comparison_counts_whole_logs(tmp_path: Path) -> None:
    sampled = check({"record": {"share": 0.5}})
    with pytest.raises(ConfigError, match=r"record\.share: must be 1 in a comparison"):
        jobs_of(sampled, ["pisces"], [1], tmp_path)


def test_one_spreads_runs_or_their_training() -> None:
    on_ray = check({"train": {"backend": "ray"}})
    with pytest.raises(ConfigError, match="leave out one of the two"), made_where([on_ray], 1, "x"):
        pass
    with made_where([on_ray, on_ray], None) as where:
        assert where.num_workers == 1  # it has the cluster to itself
    with made_where([Config()], 7) as where:
        assert where.num_workers == 1  # run that there is

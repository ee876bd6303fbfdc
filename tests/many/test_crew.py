"""The crew: what becomes of runs that fail and of workers that die."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from pisces.config import Config
from pisces.errors import RunError
from pisces.many.crew import Crew
from pisces.many.jobs import Job
from pisces.many.where import Where
from pisces.progress.standing import Standing
from pisces.tables import StopAt

NUM_JOBS = 3


class Pool:
    """Settles every job at once, as the script says."""

    one_spoils_all = True

    def __init__(self, script: list[Exception | None]) -> None:
        self.script = script
        self.jobs: list[Job] = []
        self.is_down = False

    def submit_run(self, job: Job) -> Future[None]:
        self.jobs.append(job)
        future: Future[None] = Future()
        error = self.script.pop(0)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
        return future

    def shutdown(self) -> None:
        self.is_down = True


MakeCrew = Callable[..., tuple[Crew, list[Pool], list[Job]]]


@pytest.fixture
def make_crew(tmp_path: Path) -> MakeCrew:
    """A crew of one whose jobs end as scripted; also its pools and the jobs it said were done."""

    def make(
        script: Sequence[Exception | None], *, keep_going: bool = True
    ) -> tuple[Crew, list[Pool], list[Job]]:
        pools: list[Pool] = []
        left = list(script)
        where = Where(1, lambda _num: pools.append(Pool(left)) or pools[-1])
        jobs = [Job(Config(), tmp_path / str(number)) for number in range(NUM_JOBS)]
        standings = [Standing("pisces", 1, StopAt()) for _ in jobs]
        done: list[Job] = []
        crew = Crew(jobs, standings, where, keep_going=keep_going, when_done=done.append)
        return crew, pools, done

    return make


def names(jobs: Sequence[Job]) -> list[str]:
    return [job.out.name for job in jobs]


def work(crew: Crew) -> None:
    with crew:
        while crew.work():
            pass


def test_all_goes_well(make_crew: MakeCrew) -> None:
    crew, pools, done = make_crew([None] * NUM_JOBS)
    work(crew)
    assert names(done) == ["0", "1", "2"]
    assert (len(pools), pools[0].is_down, crew.failures) == (1, True, [])


def test_a_failure_is_noted_and_the_others_go_on_elsewhere(make_crew: MakeCrew) -> None:
    crew, pools, done = make_crew([ValueError("no"), None, None])
    work(crew)
    assert names(done) == ["1", "2"]
    assert [(f.job.out.name, str(f.error)) for f in crew.failures] == [("0", "no")]
    assert [names(pool.jobs) for pool in pools] == [["0"], ["1", "2"]]


def test_a_failure_ends_the_work_unless_it_is_to_go_on(make_crew: MakeCrew) -> None:
    crew, _, done = make_crew([None, ValueError("no")], keep_going=False)
    work(crew)
    assert names(done) == ["0"]
    assert names([failure.job for failure in crew.failures]) == ["1"]


def test_a_run_whose_worker_died_is_tried_again(make_crew: MakeCrew, tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()  # what the dead worker left, and the one before it
    crew, pools, done = make_crew([BrokenProcessPool(), None, None, None])
    work(crew)
    assert names(done) == ["1", "2", "0"]
    assert (len(pools), crew.failures) == (2, [])
    assert not (tmp_path / "0").exists()


def test_a_run_begun_anew_is_counted_anew(make_crew: MakeCrew, tmp_path: Path) -> None:
    events = tmp_path / "0" / "events.jsonl"
    crew, _, _ = make_crew([None] * NUM_JOBS)
    (work,) = list(crew._todo)[:1]
    started = '{"kind":"started","at":1,"task":%d,"client":1}\n'
    events.parent.mkdir()
    events.write_text("".join(started % task for task in range(3)))
    work.look()
    assert work.standing.num_running == 3
    events.write_text(started % 7)
    work.look()
    assert work.standing.num_running == 1
    events.unlink()
    work.look()
    assert work.standing.num_running == 1


def test_what_was_begun_is_there_until_it_is_begun_anew(
    make_crew: MakeCrew, tmp_path: Path
) -> None:
    for number in range(NUM_JOBS):
        (tmp_path / str(number)).mkdir()
    crew, _, _ = make_crew([None] * NUM_JOBS)
    with crew:
        crew.work()
        assert [path.name for path in sorted(tmp_path.iterdir())] == ["1", "2"]


def test_a_run_around_which_workers_die_is_given_up(make_crew: MakeCrew) -> None:
    crew, _, done = make_crew([BrokenProcessPool(), None, None, *[BrokenProcessPool()] * 2])
    work(crew)
    assert names(done) == ["1", "2"]
    (failure,) = crew.failures
    assert isinstance(failure.error, RunError)
    assert "try fewer --jobs" in str(failure.error)

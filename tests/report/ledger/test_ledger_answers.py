"""Overview, client rows and one client's story, worked out by hand from the log in `ledgers.py`."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import pytest
from ledgers import CONFIG, HAND, append, arrived, ledger_of, line, picked, write
from runs import World, simulate

from pisces.errors import ConfigError, RunError
from pisces.record.lines import Line
from pisces.record.writer import CHECKPOINTS, CLIENTS
from pisces.report.ledger import Ledger, client_rows, client_story, overview
from pisces.report.ledger.wall import LOCKS, is_locked
from pisces.types import AT_THE_END, CALLED_OFF


class Clock:
    """A wall clock one turns by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_overview_by_hand(tmp_path: Path) -> None:
    found = overview(ledger_of(tmp_path))
    assert (found.name, found.protocol, found.seed) == ("pisces (seed 3)", "pisces", 3)
    assert (found.at, found.version, found.num_lines) == (11.0, 2, len(HAND))
    assert (found.metric, found.value, found.best) == ("accuracy", 0.6, 0.6)
    assert (found.target, found.time_to_target_s) == (0.5, 9.0)
    # 0 is gone, 1 has failed and is free, the update of 7 waits.
    assert (found.num_clients, found.num_running, found.num_idle) == (3, 0, 1)
    assert (found.num_buffered, found.num_gone, found.num_distrusted) == (1, 1, 0)
    assert (found.num_started, found.num_updates, found.num_aggregated) == (4, 3, 2)
    assert (found.num_failed, found.num_tasks_left, found.num_outliers) == (1, 0, 1)
    # The one that waits was trained from version 1, and it is version 2 now.
    assert (found.staleness_now, found.staleness_mean, found.staleness_max) == (1.0, 0.5, 1)
    assert found.staleness_bound == 2  # as the pacer says, not the 4 of the config
    assert found.updates_per_s == 0.0  # none since 9.9
    assert (found.share_done, found.limit) == (0.11, "time")
    assert found.clock == "virtual"


def test_what_became_of_tasks_adds_up(tmp_path: Path) -> None:
    def task(number: int, client: int) -> Line:
        return line("started", 12.0, task=number, client=client, version=2)

    ends = [
        line("failed", 13.0, task=4, client=1, reason=f"{CALLED_OFF}: enough"),
        line("left", 13.0, task=5, client=0, reason="went"),
        line("failed", 14.0, task=6, client=1, reason=AT_THE_END),
        line("failed", 14.0, task=7, client=1, reason=AT_THE_END),
        line("dropped", 14.0, task=2, reason="too late"),
    ]
    back = line("joined", 12.0, client=0, num_examples=10)
    starts = [task(4, 1), task(5, 0), task(6, 1), task(7, 1), task(8, 1)]
    ledger = ledger_of(tmp_path, [*HAND, back, *starts, *ends])
    found = overview(ledger)
    assert (found.num_started, found.num_updates, found.num_dropped) == (9, 3, 1)
    assert (found.num_failed, found.num_given_up, found.num_under_way) == (1, 1, 2)
    assert (found.num_tasks_left, found.num_running) == (1, 1)
    came_to = found.num_updates + found.num_failed + found.num_given_up + found.num_under_way
    assert came_to + found.num_tasks_left + found.num_running == found.num_started
    story = client_story(ledger, 1)
    assert {name: num for name, num in story.outcomes.items() if num} == {
        "running": 1,
        "aggregated": 1,
        "failed": 1,
        "called off": 1,
        "cut off": 2,
    }
    assert sum(story.outcomes.values()) == story.num_tasks == story.facts.picks
    assert story.facts.failures == 1, "who was called off has not failed"


def test_who_is_new_is_free_too(tmp_path: Path) -> None:
    more = [line("joined", 11.0, client=client, num_examples=1) for client in (8, 9)]
    found = overview(ledger_of(tmp_path, [*HAND, *more]))
    assert (found.num_clients, found.num_worked, found.num_idle) == (5, 3, 3)


def test_throughput_is_of_the_last_tenth_from_its_first_instant_on(tmp_path: Path) -> None:
    found = overview(ledger_of(tmp_path, HAND[:-1]))
    assert (found.at, found.updates_per_s) == (10.0, 1.0)  # the one at 9 s


def test_staleness_now_is_of_those_whose_version_is_known(tmp_path: Path) -> None:
    more = [
        line("started", 11.0, task=4, client=1, version=0),
        arrived(12.0, 4, 1, 0, 1.0, 1.0),
    ]
    # Task 2 is from version 1, task 4 from version 0; it is version 2 now.
    assert overview(ledger_of(tmp_path / "both", [*HAND, *more])).staleness_now == 1.5
    for own in more:
        del own["version"]
    assert overview(ledger_of(tmp_path / "one", [*HAND, *more])).staleness_now == 1.0
    lines = [
        {key: told for key, told in own.items() if key != "version" or own.get("task") != 2}
        for own in HAND
    ]
    assert overview(ledger_of(tmp_path / "none", lines)).staleness_now is None


def test_the_bound_of_the_config_where_the_pacer_says_none(tmp_path: Path) -> None:
    lines = [{k: v for k, v in own.items() if k != "pace"} for own in HAND]
    assert overview(ledger_of(tmp_path, lines)).staleness_bound == 4


def test_nothing_evaluated_and_no_config(tmp_path: Path) -> None:
    lines = [own for own in HAND if own["kind"] not in ("evaluated", "picked")]
    ledger = ledger_of(tmp_path / "plain", lines, None)
    found = overview(ledger)
    assert (found.metric, found.value, found.target, found.time_to_target_s) == (None,) * 4
    assert (found.name, found.seed, found.share_done, found.left_s) == ("plain", None, None, None)
    assert not ledger.has_decisions


def test_the_target_of_a_run_made_in_python_stands_in_its_summary(tmp_path: Path) -> None:
    made = 'made_in = "Python"\nprotocol = "pisces"\nseed = 3\n'
    ledger = ledger_of(tmp_path, HAND, made)
    (tmp_path / "summary.json").write_text(json.dumps({"target": 0.9}))  # of before a resume
    assert (overview(ledger).target, overview(ledger).is_target_known) == (None, False)
    (tmp_path / "summary.json").unlink()
    append(tmp_path, line("stopped", 12.0, reason="time"))
    ledger.read()
    assert not overview(ledger).is_target_known
    (tmp_path / "summary.json").write_text(json.dumps({"target": 0.5}))
    found = overview(ledger)
    assert (found.target, found.time_to_target_s, found.is_target_known) == (0.5, 9.0, True)
    (tmp_path / "summary.json").write_text(json.dumps({"target": 2.0, "metric": "loss"}))
    found = overview(ledger)  # of which 0.1 accuracy is no part
    assert (found.metric, found.value, found.target) == ("loss", None, 2.0)
    (tmp_path / "summary.json").write_text(json.dumps({"target": None}))
    assert (overview(ledger).target, overview(ledger).is_target_known) == (None, True)
    config = CONFIG.replace("target = 0.5\n", "")
    found = overview(ledger_of(tmp_path / "other", HAND, config))
    assert (found.target, found.is_target_known) == (None, True)  # none was set


def test_a_config_that_cannot_be_read_hides_nothing_else(tmp_path: Path) -> None:
    found = overview(ledger_of(tmp_path / "odd", HAND, "this is = not [toml"))
    assert (found.name, found.version, found.target) == ("odd", 2, None)


def test_a_damaged_log_that_nobody_goes_on_with_is_neither_running_nor_silent(
    tmp_path: Path,
) -> None:
    def state() -> str:
        ledger = Ledger(tmp_path)
        ledger.read()
        assert ledger.problem is not None
        return overview(ledger).state

    write(tmp_path, HAND)
    log = tmp_path / "events.jsonl"
    with log.open("ab") as file:
        file.write(b"{garbage}\n" * 2)
    assert state() == "running"  # it was written just now
    os.utime(log, (time.time() - 3600,) * 2)
    assert state() == "damaged"
    os.utime(log)
    (tmp_path / "summary.json").write_text("{}")
    assert state() == "damaged", "it has come to an end"
    with log.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert state() == ("running" if LOCKS.exists() else "damaged")  # it was resumed
    write(tmp_path, [*HAND, line("stopped", 12.0, reason="time")])
    with log.open("ab") as file:
        file.write(b"{garbage}\n" * 2)
    assert state() == "finished"


def test_a_sampled_log_is_not_damaged_and_its_run_not_about_to_begin(tmp_path: Path) -> None:
    ledger = Ledger(write(tmp_path, [line("sampled", 0.0, share=0.3), *HAND]))
    ledger.read()
    assert (ledger.is_sampled, ledger.is_damaged) == (True, False)
    found = overview(ledger)
    assert found.state == "sampled"
    assert found.problem is not None
    assert "some clients only" in found.problem
    write(tmp_path, HAND)  # another run in its place
    ledger.read()
    assert (ledger.is_sampled, overview(ledger).state) == (False, "running")


def test_a_run_is_running_finished_interrupted_or_silent(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    assert overview(ledger).state == "running"  # it was written just now
    an_hour_ago = time.time() - 3600
    os.utime(tmp_path / "events.jsonl", (an_hour_ago, an_hour_ago))
    ledger.read()
    found = overview(ledger)
    assert found.state == "silent"
    assert found.silent_s == pytest.approx(3600, abs=60)
    append(tmp_path, line("stopped", 12.0, reason="time"))
    ledger.read()
    found = overview(ledger)
    assert (found.state, found.reason, found.left_s, found.share_done) == ("finished", "time", 0, 1)


SERVED = {CLIENTS: "{}"}
KEPT = {f"{CHECKPOINTS}/000001.json": "{}"}


@pytest.mark.parametrize(
    ("reason", "config", "files", "who"),
    [
        ("time", CONFIG, KEPT, None),
        (None, CONFIG, {}, "pisces resume goes on with it"),
        ("interrupted", CONFIG, KEPT, "pisces resume goes on with it"),
        ("interrupted", CONFIG, {}, "it has no checkpoints: the command that made it makes it"),
        ("interrupted", CONFIG, SERVED, "pisces serve --resume goes on with it"),
        (None, 'made_in = "Python"', {}, "pisces.simulate(..., resume=True) goes on with it"),
        (None, 'made_in = "Python"', SERVED, "pisces.server.serve(..., resume=True) goes on"),
        (None, 'made_in = "Flower"', SERVED, "its Flower app goes on with it"),
    ],
)
def test_who_goes_on_with_a_run_that_was_broken_off(
    tmp_path: Path, reason: str | None, config: str, files: dict[str, str], who: str | None
) -> None:
    end = [] if reason is None else [line("stopped", 12.0, reason=reason)]
    ledger = ledger_of(tmp_path, [*HAND, *end], config)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    an_hour_ago = time.time() - 3600
    os.utime(tmp_path / "events.jsonl", (an_hour_ago, an_hour_ago))
    ledger.read()
    found = overview(ledger).goes_on
    assert found == who or (found is not None and who is not None and found.startswith(who))


def test_a_run_without_a_line_is_about_to_begin_or_was_left(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, [])
    assert overview(ledger).state == "empty"
    os.utime(tmp_path / "events.jsonl", (time.time() - 61.0,) * 2)
    ledger.read()
    assert overview(ledger).state == "unbegun"


@pytest.mark.skipif(not LOCKS.exists(), reason="the system lists no locks")
def test_a_log_that_a_process_holds_is_running_however_long_it_is_silent(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    os.utime(tmp_path / "events.jsonl", (1.0, 1.0))
    with (tmp_path / "events.jsonl").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ledger.read()
        if str(os.fstat(file.fileno()).st_ino) not in LOCKS.read_text():
            pytest.skip("the system does not list this lock")
        assert overview(ledger).state == "running"
    assert overview(ledger).state == "silent"


def test_locks_are_read_not_tried(tmp_path: Path) -> None:
    listed = tmp_path / "locks"
    listed.write_text(
        "1: POSIX  ADVISORY  WRITE 12 08:01:77 0 EOF\n"
        "2: FLOCK  ADVISORY  READ 13 08:01:78 0 EOF\n"
        "3: FLOCK  ADVISORY  WRITE 709 00:2f:131 0 EOF\n3: -> FLOCK\n"
    )
    assert is_locked(131, listed)
    assert not any(is_locked(inode, listed) for inode in (77, 78, 31, 0))
    assert not is_locked(131, tmp_path / "none")


def test_time_left_goes_by_what_was_seen(tmp_path: Path) -> None:
    clock = Clock()
    ledger = Ledger(write(tmp_path, HAND), clock=clock)
    ledger.read()
    clock.now += 10.0  # meanwhile the run does 39 of its seconds, and 61 are left
    append(tmp_path, line("evaluated", 50.0, version=2, accuracy=0.6))
    ledger.read()
    found = overview(ledger)
    assert found.left_s == pytest.approx(50.0 / 3.9)
    assert (found.limit, found.share_done) == ("time", 0.5)


def test_the_nearest_limit_counts(tmp_path: Path) -> None:
    clock = Clock()
    config = CONFIG.replace("time_s = 100.0", "time_s = 100.0\nversions = 4")
    ledger = Ledger(write(tmp_path, HAND, config), clock=clock)
    ledger.read()
    clock.now += 10.0
    made = {"tasks": [2], "staleness": [1], "weights": [1.0]}
    append(tmp_path, line("aggregated", 12.0, version=3, **made))
    ledger.read()
    found = overview(ledger)  # a version in ten seconds, one to go; 88 s of the run's take 880 s
    assert (found.limit, found.left_s, found.share_done) == ("versions", pytest.approx(10.0), 0.75)


def test_time_left_goes_by_the_times_of_the_files_until_something_was_seen(tmp_path: Path) -> None:
    clock = Clock()
    ledger = Ledger(write(tmp_path, HAND), clock=clock)
    now = time.time()
    os.utime(tmp_path / "config.toml", (now - 22.0,) * 2)
    os.utime(tmp_path / "events.jsonl", (now,) * 2)
    ledger.read()
    found = overview(ledger)  # 11 of its seconds in 22
    assert found.left_s == pytest.approx(178.0, rel=0.01)
    assert found.updates_per_wall_s == pytest.approx(3 / 22, rel=0.01)
    clock.now += 5.0  # nothing was written meanwhile
    ledger.read()
    assert overview(ledger).left_s == pytest.approx(178.0, rel=0.01)


def test_of_a_run_that_was_resumed_nothing_is_guessed(tmp_path: Path) -> None:
    clock = Clock()
    ledger = Ledger(write(tmp_path, HAND), clock=clock)
    kept = tmp_path / CHECKPOINTS / "000001.json"
    kept.parent.mkdir()
    kept.touch()
    now = time.time()
    os.utime(kept, (now - 3600.0,) * 2)
    os.utime(tmp_path / "config.toml", (now - 2.0,) * 2)
    ledger.read()
    found = overview(ledger)
    assert (found.left_s, found.updates_per_wall_s, found.share_done) == (None, None, 0.11)
    clock.now += 10.0
    append(tmp_path, line("evaluated", 50.0, version=2, accuracy=0.6))
    ledger.read()
    assert overview(ledger).left_s == pytest.approx(50.0 / 3.9)
    os.utime(kept)  # one of its own
    fresh = Ledger(tmp_path)
    fresh.read()
    assert overview(fresh).left_s is not None


@pytest.mark.parametrize("limit", ["inf", "nan", "0.0", "-1.0", "true"])
def test_what_is_no_limit_is_not_held_against_a_run(tmp_path: Path, limit: str) -> None:
    config = CONFIG.replace("time_s = 100.0", f"time_s = {limit}")
    found = overview(ledger_of(tmp_path, HAND, config))
    assert (found.share_done, found.limit, found.left_s) == (None, None, None)


def test_client_rows_by_hand(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    found = client_rows(ledger)
    assert (found.total, found.found, found.terms) == (3, 3, ("utility", "discount", "score"))
    zero, one, seven = found.rows
    assert (zero.client, zero.status, zero.num_examples, zero.loss) == (0, "gone", 10, 2.0)
    assert (zero.terms, zero.score) == (
        {"utility": 20.0, "discount": 1.0, "score": 20.0},
        20.0,
    )  # when not picked at 4 s
    assert (one.status, one.picks, one.updates, one.failures) == ("idle", 2, 1, 1)
    assert (one.latency_s, one.staleness, one.score, one.credits) == (6.0, 1, 42.0, 5)
    assert (seven.status, seven.credits, seven.score, seven.terms["discount"]) == (
        *("waiting", 4, None, 1.0),
    )
    assert (seven.staleness, seven.version) == (None, 1)


def test_client_rows_sorted_and_filtered(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)

    def ids(**how: object) -> list[int]:
        return [row.client for row in client_rows(ledger, **how).rows]  # type: ignore[arg-type]

    assert ids(order="score") == [0, 1, 7]  # 7 has none, and stays last
    assert ids(order="score", descending=True) == [1, 0, 7]
    assert ids(order="loss", descending=True) == [7, 1, 0]
    assert ids(order="credits") == [7, 0, 1]
    assert ids(order="latency_s") == [0, 7, 1]
    assert ids(status="gone") == [0]
    assert ids(find="7") == [7]
    assert ids(first=1, num=1) == [1]
    assert ids(first=9) == []
    with pytest.raises(ConfigError, match="sorted by 'beauty'"):
        client_rows(ledger, order="beauty")
    with pytest.raises(ConfigError, match="status"):
        client_rows(ledger, status="dead")


def test_names_of_a_served_run_are_passed_as_they_are(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    names = {0: "zoe", 1: "<script>alert(1)</script>", 7: "Adam"}
    told = [json.dumps({"client": client, "name": name}) for client, name in names.items()]
    (tmp_path / "clients.jsonl").write_text("\n".join(['{"run":"ab"}', *told, '{"cli']))
    assert [row.name for row in client_rows(ledger).rows] == list(names.values())
    assert [row.client for row in client_rows(ledger, order="name").rows] == [1, 7, 0]
    assert [row.client for row in client_rows(ledger, find="ada").rows] == [7]
    assert overview(ledger).clock == "wall"


def test_sparse_ids_take_a_row_each(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, [line("joined", 0.0, client=9_999_999, num_examples=1)])
    assert client_rows(ledger).total == 1
    assert ledger.notes.num_bytes < 1e6


def test_tasks_numbered_in_any_way(tmp_path: Path) -> None:
    renumbered = [
        own
        | ({"task": 1000 - 7 * own["task"]} if "task" in own else {})
        | ({"tasks": [1000 - 7 * task for task in own["tasks"]]} if "tasks" in own else {})
        for own in HAND
    ]
    ledger = ledger_of(tmp_path, renumbered)
    assert [task.task for task in client_story(ledger, 1).tasks] == [979, 993]
    assert client_story(ledger, 1).tasks[1].outcome == "aggregated"


# --- stories --------------------------------------------------------------------------------------


def test_story_of_tasks_by_hand(tmp_path: Path) -> None:
    story = client_story(ledger_of(tmp_path), 1)
    assert (story.joined_at, story.distrusted_at, story.num_tasks) == (0.0, None, 2)
    last, first = story.tasks
    assert (last.task, last.outcome, last.reason, last.ended_at) == (3, "failed", "crashed", 10.0)
    assert (first.outcome, first.staleness, first.weight) == ("aggregated", 1, 0.5)
    assert (first.into_version, first.loss, first.loss_left) == (2, 3.0, 1.5)
    odd = client_story(ledger_of(tmp_path), 7).tasks[0]
    assert (odd.outcome, odd.is_outlier, odd.credits, odd.ended_at) == ("waiting", True, 4, 9.0)


def test_why_by_hand(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    at_six, at_four, at_first = client_story(ledger, 0).decisions
    assert (at_first.fate, at_first.why) == ("picked", "A newcomer, drawn by lot.")
    assert at_four.fate == "passed over"
    assert "all slots went to newcomers" in at_four.why
    assert at_four.terms == {"utility": 20.0, "discount": 1.0, "score": 20.0}
    assert (at_six.fate, at_six.lowest) == ("passed over", 42.0)
    assert at_six.why == "Free, but its score 20 is below 42, the lowest that was picked."
    assert [d.fate for d in client_story(ledger, 1).decisions] == ["picked", "running", "picked"]
    assert client_story(ledger, 1).decisions[0].why == (
        "Picked: score 42 (utility 60, discount 0.7)."
    )
    assert [d.fate for d in client_story(ledger, 7).decisions] == [
        *("running", "picked", "passed over")
    ]


def test_why_a_newcomer_was_not_picked(tmp_path: Path) -> None:
    newcomer = line("joined", 11.0, client=9, num_examples=5)
    by_score = picked(12.0, 2, [1], [[50.0, 1.0, 50.0]])
    by_lot = picked(13.0, 2, [1, 7], [[50.0, 1.0, 50.0], [None, 1.0, None]])
    nobody = picked(14.0, 2, [], [])
    story = client_story(ledger_of(tmp_path, [*HAND, newcomer, by_score, by_lot, nobody]), 9)
    assert [decision.why for decision in story.decisions] == [
        "Free, but nobody was picked.",
        "Free and not heard from yet, but not drawn among the newcomers.",
        "Not heard from yet; all slots went by score, none to a newcomer.",
    ]


def test_decisions_by_fate_and_pages_of_their_own(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    story = client_story(ledger, 1, num=1, fate="picked", first_task=1)
    assert {fate: num for fate, num in story.fates.items() if num} == {"picked": 2, "running": 1}
    assert (story.num_decisions, [d.at for d in story.decisions]) == (2, [6.0])
    assert [d.at for d in client_story(ledger, 1, 1, 1, fate="picked").decisions] == [0.0]
    for until, at in ((3.9, [0.0]), (4.0, [4.0, 0.0]), (-1.0, [])):
        earlier = client_story(ledger, 1, until=until)
        assert ([d.at for d in earlier.decisions], earlier.num_decisions) == (at, len(at))
    assert client_story(ledger, 1, fate="picked", until=5.0).num_decisions == 1
    assert (story.first, story.first_task, [t.task for t in story.tasks]) == (0, 1, [1])


def test_a_client_is_doubted_while_its_last_update_is_an_outlier_that_was_dropped(
    tmp_path: Path,
) -> None:
    ledger = ledger_of(tmp_path)
    story = client_story(ledger, 7)  # an outlier, but it waits to be aggregated
    assert (story.num_outliers, story.is_doubted) == (1, False)
    append(tmp_path, line("dropped", 11.0, task=2, reason="its loss is doubted"))
    ledger.read()
    assert client_story(ledger, 7).is_doubted
    append(tmp_path, line("started", 11.0, task=5, client=7, version=2))
    append(tmp_path, line("failed", 12.0, task=5, client=7, reason="crashed"))
    append(tmp_path, line("started", 12.0, task=4, client=7, version=2))
    ledger.read()
    assert client_story(ledger, 7).is_doubted  # nothing newer was heard
    append(tmp_path, arrived(15.0, 4, 7, 2, 2.0, 3.0))
    ledger.read()
    story = client_story(ledger, 7)
    assert (story.num_outliers, story.is_doubted) == (1, False)
    assert not client_story(ledger, 0).is_doubted


def test_why_a_client_was_waiting_gone_or_distrusted(tmp_path: Path) -> None:
    more = [
        picked(12.0, 2, [1], [[50.0, 1.0, 50.0]]),
        line("dropped", 13.0, task=2, reason="too late"),
        line("distrusted", 13.0, client=7),
        picked(14.0, 2, [1], [[50.0, 1.0, 50.0]]),
        line("joined", 15.0, client=0, num_examples=10),
        picked(16.0, 2, [1], [[10.0, 1.0, 10.0]]),
        line("picked", 17.0, version=2, slots=1, num_free=2, clients=[1]),
    ]
    ledger = ledger_of(tmp_path, [*HAND, *more])
    fates = [d.fate for d in client_story(ledger, 7).decisions[:4]]
    assert fates == ["distrusted", "distrusted", "distrusted", "waiting"]
    assert client_story(ledger, 7).distrusted_at == 13.0
    assert client_story(ledger, 7).facts.status == "distrusted"
    assert client_story(ledger, 7).facts.credits == 0
    lot, back, gone, _ = client_story(ledger, 0).decisions[:4]
    assert (gone.fate, back.fate, lot.fate) == ("gone", "passed over", "passed over")
    assert "is not below the lowest that was picked" in back.why  # 20 against 10
    came = line("joined", 11.5, client=0, num_examples=10)
    alike = [*HAND, came, picked(12.0, 2, [1], [[20.0, 1.0, 20.0]])]
    why = client_story(ledger_of(tmp_path / "alike", alike), 0).decisions[0].why
    assert "20 is as high as the lowest that was picked" in why
    assert "by lot" in lot.why


def test_logs_with_very_many_lists_of_terms_are_read_in_time(tmp_path: Path) -> None:
    def decision(at: int) -> Line:
        told = {"version": 0, "slots": 1, "num_free": 1, "clients": [at % 3]}
        return line(
            "picked", float(at), **told, terms=[f"t{at}", "score"], scores=[[1.0, at + 0.5]]
        )

    began = time.process_time()  # not the wall's: others may keep the machine busy
    ledger = ledger_of(tmp_path, [decision(at) for at in range(20_000)])
    assert time.process_time() - began < 4  # where it looked through all of them it took 8
    rows = client_rows(ledger, order="score", descending=True).rows
    assert [row.score for row in rows] == [19_999.5, 19_998.5, 19_997.5]
    rows = client_rows(ledger, order="t19998").rows
    assert [row.terms.get("t19998") for row in rows] == [1.0, None, None]


def test_stories_are_cut_into_pages(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    whole = client_story(ledger, 0)
    assert whole.num_decisions == 3
    pages = [client_story(ledger, 0, first, 1).decisions for first in range(4)]
    assert [page[0] for page in pages[:3]] == list(whole.decisions)
    assert pages[3] == ()


def test_a_story_without_decisions_says_so_and_nobody_is_made_up(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, [own for own in HAND if own["kind"] != "picked"])
    story = client_story(ledger, 1)
    assert story.decisions == ()
    assert story.note is not None
    assert "does not say why" in story.note
    with pytest.raises(RunError, match="no client 5"):
        client_story(ledger, 5)


@pytest.mark.parametrize("protocol", ["pisces", "oort", "fedbuff"])
def test_every_decision_of_a_run_is_told_as_it_was(tmp_path: Path, protocol: str) -> None:
    """Against the simplest book-keeping there is, over a whole simulated run."""
    lines = simulate(protocol, World(odd_every=5, credits=2), decisions=True)
    ledger = ledger_of(tmp_path, lines, None)
    decisions = [own for own in lines if own["kind"] == "picked"]
    assert decisions
    fates = {
        client: [d.fate for d in client_story(ledger, client, num=10_000).decisions][::-1]
        for client in range(6)
    }
    running: dict[int, int] = {}
    waiting: dict[int, int] = {}
    banned: set[int] = set()
    place = 0
    for own in lines:
        match own["kind"]:
            case "started":
                running[own["task"]] = own["client"]
            case "arrived":
                waiting[own["task"]] = running.pop(own["task"])
            case "failed":
                running.pop(own["task"], None)
            case "dropped":
                waiting.pop(own["task"])
            case "aggregated":
                waiting = {t: c for t, c in waiting.items() if t not in own["tasks"]}
            case "distrusted":
                banned.add(own["client"])
            case "picked":
                for client in range(6):
                    expected = "passed over"
                    expected = "waiting" if client in waiting.values() else expected
                    expected = "running" if client in running.values() else expected
                    expected = "distrusted" if client in banned else expected
                    expected = "picked" if client in own["clients"] else expected
                    assert fates[client][place] == expected
                place += 1
    assert place == len(decisions)

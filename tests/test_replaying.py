"""A log with the run's own pace comes out as recorded; with another, as worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replays import Script, assert_as_recorded, rules_of, walked, write_run
from runs import World, any_protocol, any_world, of_kind, policies, simulate

from pisces.clients.checks import Limits
from pisces.clients.view import View
from pisces.errors import ConfigError, RunError
from pisces.execute.availability import Diurnal, Late, Markov
from pisces.execute.failures import Failures
from pisces.names import PROTOCOLS
from pisces.pace.fedbuff import Buffered
from pisces.pace.papaya import Papaya
from pisces.pace.pisces import Adaptive
from pisces.pace.port import Port
from pisces.pace.timed import Timed
from pisces.policy import Release
from pisces.record.reader import Run
from pisces.replaying import paces, replay, replay_all, words
from pisces.replaying.loop import Rules
from pisces.stop import Stop
from pisces.types import Plan

WORLDS = {
    "quiet": World(),
    "ticks, coming and going": World(
        tick_s=1.0, availability=Markov(12.0, 4.0, 3), odd_every=4, jitter=0.3
    ),
    "failures": World(failures=Failures(0.1, 0.1, 0.1, 3.0, 7), deadline_s=9.0, jitter=0.3),
    "silent for ever": World(failures=Failures(0.1, 0.1, 0.1, None, 3)),
    "hostile and late": World(
        availability=Late(Diurnal(16.0, 0.5, 2), 10.0, 0.5, 2), odd_every=3, credits=2
    ),
}
MANY_STEPS = Plan(epochs=50, batch_size=1)  # so that some are done whenever one is asked
CONFIG = """
protocol = "fedbuff"
[clients]
count = 4
concurrency = 3
[protocols.fedbuff]
buffer_size = 2
"""


# --- as recorded ----------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_is_replayed_as_recorded(protocol: str, world: World) -> None:
    lines = simulate(protocol, world)
    assert of_kind(lines, "aggregated")
    assert_as_recorded(lines, protocol, world)


@pytest.mark.parametrize("protocol", ["pisces", "fedavg", "fedbuff"])
@pytest.mark.parametrize("stop", [Stop(versions=6), Stop(updates=9), Stop(target=0.27)], ids=str)
def test_so_it_is_whatever_ended_it(protocol: str, stop: Stop) -> None:
    for world in (World(stop=stop, jitter=0.2), World(stop=stop, tick_s=2.5)):
        assert_as_recorded(simulate(protocol, world), protocol, world)


@settings(max_examples=25)
@given(any_world(), any_protocol)
def test_so_it_is_in_any_world(world: World, protocol: str) -> None:
    try:
        lines = simulate(protocol, world)
    except ConfigError:  # more updates wanted than there are clients
        return
    assert_as_recorded(lines, protocol, world)


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("fedavg", {"over_selection": 1.5}),
        ("fedavg", {"round_deadline_s": 2.5}),
        ("papaya", {"timeout_s": 3.5, "max_staleness": 1}),
        ("fedbuff", {"max_staleness": 0, "buffer_size": 1}),
        ("port", {"buffer_size": 2, "staleness_bound": 1}),
        ("pisces", {"pace": "strict", "staleness_bound": 2}),
        ("pisces", {"guard": "clusters"}),
    ],
)
def test_so_are_paces_that_call_off_pull_or_refuse(
    protocol: str, options: dict[str, object]
) -> None:
    world = World(jitter=0.3, deadline_s=20.0, plan=MANY_STEPS, stop=Stop(time_s=80.0))
    assert_as_recorded(simulate(protocol, world, **options), protocol, world, **options)


@pytest.mark.parametrize("tick_s", [0.3, 0.7, 1.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_so_are_clients_that_answer_at_the_tick_at_which_they_are_asked(
    tick_s: float, seed: int
) -> None:
    options = {"buffer_size": 2, "staleness_bound": 1}
    stop = Stop(time_s=80.0)
    world = World(jitter=0.3, deadline_s=20.0, tick_s=tick_s, plan=MANY_STEPS, seed=seed, stop=stop)
    lines = simulate("port", world, **options)
    in_time = [math.remainder(line["at"], tick_s) for line in of_kind(lines, "arrived")]
    assert any(abs(off) < 1e-9 for off in in_time)  # otherwise nobody was asked
    assert_as_recorded(lines, "port", world, **options)


def test_so_is_a_run_whose_updates_do_not_fit_in_memory() -> None:
    # An update of this model takes 16 bytes: three fit. Nobody is known, so paper's pace means to
    # wait for 180 s / 3.
    world = World(limits=Limits(max_buffered_bytes=48), concurrency=5)
    lines = simulate("pisces-paper", world)
    assert [line.get("reason") for line in of_kind(lines, "aggregated")].count(
        "no more updates fit in memory"
    )
    assert_as_recorded(lines, "pisces-paper", world)


def test_every_prefix_of_a_log_is_replayed_as_recorded() -> None:
    # A run that was killed or still goes on; its last turn may be cut anywhere.
    world = World(jitter=0.3)
    lines = simulate("pisces", world)
    for num in range(30, len(lines), 7):
        while lines[num]["at"] == lines[num - 1]["at"]:
            num += 1
        assert_as_recorded(lines[:num], "pisces", world)


# --- numbers by hand ------------------------------------------------------------------------------


def by_hand() -> Script:
    """FedBuff with K = 2 and C = 3 over four clients.

    t    0: tasks 0, 1, 2 on clients 0, 1, 2, from version 0
    t   10: task 0 arrives and waits; task 3 starts on client 3 (client 0 waits)
    t   14: task 1 arrives: version 1 of tasks 0, 1; task 4 starts on client 0, from version 1
    t   20: task 3 arrives, of version 0, and waits; task 5 starts on client 1, from version 1
    t   25: task 4 arrives: version 2 of task 3 (1 behind) and task 4; task 6 starts on client 3
    t   30: task 2 arrives, of version 0, and waits
    t   40: over
    """
    return (
        Script()
        .join(0.0, 0, 1, 2, 3)
        .start(0.0, 0, 0, 0)
        .start(0.0, 1, 1, 0)
        .start(0.0, 2, 2, 0)
        .arrive(10.0, 0)
        .start(10.0, 3, 3, 0)
        .arrive(14.0, 1)
        .aggregate(14.0, 1, [0, 1], [0, 0])
        .start(14.0, 4, 0, 1)
        .arrive(20.0, 3)
        .start(20.0, 5, 1, 1)
        .arrive(25.0, 4)
        .aggregate(25.0, 2, [3, 4], [1, 0])
        .start(25.0, 6, 3, 2)
        .arrive(30.0, 2)
        .say("failed", 40.0, task=5, client=1, reason="the run stopped")
        .say("failed", 40.0, task=6, client=3, reason="the run stopped")
        .say("dropped", 40.0, task=2, reason="the run stopped")
        .stop(40.0)
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(write_run(tmp_path / "run", by_hand().lines, CONFIG))


def test_what_was_recorded_in_numbers(run: Run) -> None:
    replayed = replay(run)
    assert replayed.check.is_same
    assert (replayed.check.num_recorded, replayed.check.num_same) == (2, 2)
    figures = replayed.recorded
    assert figures == replayed.replayed
    assert (figures.num_aggregations, figures.num_updates, figures.num_dropped) == (2, 4, 0)
    assert figures.interval_median_s == 11.0  # 25 - 14
    assert figures.staleness_mean == 0.25  # 0, 0, 1, 0
    assert figures.wait_mean_s == 2.25  # 4, 0, 5, 0
    assert replayed.differs_at is None
    assert replayed.differences == ()


def test_a_larger_buffer_makes_versions_later(run: Run) -> None:
    # K = 3: at 10 one waits, at 14 two; task 4 is started at 14 on client 0, whose update waits.
    # At 20 task 3 makes three: version 1 of tasks 0, 1, 3, none of them behind. Task 5 starts from
    # it. Task 4 (of version 0 here) waits at 25, task 2 (of version 0) at 30: two, not three.
    replayed = replay(run, ["pace.buffer_size=3"])
    (made,) = replayed.aggregations
    assert (made.at, made.tasks, made.staleness) == (20.0, (0, 1, 3), (0, 0, 0))
    assert made.waits_s == (10.0, 6.0, 0.0)
    assert made.terms == {"buffered": 3, "size": 3}
    assert (replayed.differs_at, replayed.differs_version) == (14.0, 0)
    assert replayed.differs_in == "when to make a version"
    assert replayed.unknown.num_impossible == 1  # task 4; client 3 is free at 25, as in the run
    assert replayed.unknown.num_other_versions == 2  # task 4 from 0, not 1; task 6 from 1, not 2
    told = [(d.at, d.recorded and d.recorded.version, d.replayed) for d in replayed.differences]
    assert [(at, theirs) for at, theirs, _ in told] == [(14.0, 1), (20.0, None), (25.0, 2)]
    assert replayed.differences[0].terms == {"buffered": 2, "size": 3}
    text = "\n".join(replayed.caveats)
    assert replayed.caveats[0].startswith("a tendency only: 1 start could not have been")
    assert "(33% of those after the first difference)" in text
    assert "4 of 7 starts come after the first" not in text  # task 4 is the first after: 3 are
    assert "3 of 7 starts come after the first" in text


@pytest.mark.parametrize(("num", "is_much"), [(1, False), (2, True)])
def test_beyond_a_fifth_of_impossible_starts_it_is_but_a_tendency(num: int, is_much: bool) -> None:
    recorded = SimpleNamespace(num_starts=9)
    other = SimpleNamespace(
        num_starts=4, loop=SimpleNamespace(unknown=SimpleNamespace(num_impossible=num))
    )
    (told,) = words._of_the_impossible(recorded, other)  # type: ignore[arg-type]
    assert told.startswith("a tendency only") == is_much


def test_a_smaller_buffer_makes_them_sooner(run: Run) -> None:
    # K = 1: every arrival is a version: 10 (task 0), 14 (task 1 of 0, one behind), 20 (task 3 of
    # version 1, as it was started after the first: one behind), 25 (task 4, of version 2, one
    # behind), 30 (task 2, of version 0, four behind).
    replayed = replay(run, ["pace.buffer_size=1"])
    assert [(a.at, a.tasks, a.staleness) for a in replayed.aggregations] == [
        (10.0, (0,), (0,)),
        (14.0, (1,), (1,)),
        (20.0, (3,), (1,)),
        (25.0, (4,), (1,)),
        (30.0, (2,), (4,)),
    ]
    assert (replayed.differs_at, replayed.differs_version) == (10.0, 0)
    assert replayed.replayed.staleness_max == 4
    assert replayed.unknown.num_impossible == 0


def test_another_pace_altogether_wakes_when_it_wants_to(run: Run) -> None:
    # Every 16 s: at 16 of tasks 0 and 1, at 32 of tasks 3 (of version 0), 4 (of version 0, as it
    # was started at 14) and 2 (of version 0).
    replayed = replay(run, ["pace.policy=timed", "pace.timeout_s=16"])
    assert [(a.at, a.tasks, a.staleness) for a in replayed.aggregations] == [
        (16.0, (0, 1), (0, 0)),
        (32.0, (3, 4, 2), (1, 1, 1)),
    ]
    # A pace of rounds has no seats while something waits or somebody runs from this version.
    assert replayed.unknown.num_unwanted == 4


def test_a_pace_that_wakes_at_the_very_end(run: Run) -> None:
    replayed = replay(run, ["pace.policy=timed", "pace.timeout_s=40"])
    assert [a.at for a in replayed.aggregations] == [40.0]


def test_updates_may_be_refused_that_were_not(run: Run) -> None:
    # Task 3 is one behind when it arrives at 20; task 2, at 30, then only waits with task 4.
    replayed = replay(run, ["pace.max_staleness=0"])
    assert [a.tasks for a in replayed.aggregations] == [(0, 1)]
    assert replayed.replayed.num_dropped == 2  # tasks 3 and 2
    assert (replayed.differs_at, replayed.differs_in) == (20.0, "which update to refuse")


def test_dollars_in_a_picture_are_no_formulas(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from pisces.replaying.picture import draw

    replayed = replace(replay(run, ["pace.buffer_size=3"]), changes=("a=$^$",))
    draw([replayed], tmp_path / "paces.svg")
    assert "<!-- a=$^$ -->" in (tmp_path / "paces.svg").read_text()


def test_several_paces_take_one_walk(run: Run) -> None:
    alone = [replay(run, [f"pace.buffer_size={size}"]) for size in (1, 3)]
    together = replay_all(run, paces.variants(["pace.buffer_size=1, 3"]))
    assert [r.as_json() for r in together] == [r.as_json() for r in alone]


def test_a_pace_that_calls_off_loses_what_would_have_come() -> None:
    # Within 12 s: task 1 (14 s) is called off at 12 and comes to nothing, task 2 (30 s) as well.
    _, mine, (other,) = walked(by_hand().lines, Buffered(3, 2), Papaya(3, 2, 12.0))
    assert mine.differs_at is None
    assert (other.differs_at, other.what) == (12.0, "whom to call off")
    assert [a.tasks for a in other.loop.aggregations] == [(0, 3)]
    assert other.loop.unknown.num_wasted == 2


def test_who_answers_at_once_is_not_missing() -> None:
    # Tasks 0 and 1 begin with version 0. At 5 task 0 makes version 1; at 8 task 2 fills the buffer,
    # and task 1, one version behind, is asked for what there is: it answers then, or not.
    def asked(answers_at: float) -> Any:
        script = Script().join(0.0, 0, 1).start(0.0, 0, 0, 0).start(0.0, 1, 1, 0).arrive(5.0, 0)
        script.aggregate(5.0, 1, [0], [0]).start(5.0, 2, 0, 1).arrive(8.0, 2).arrive(answers_at, 1)
        script.aggregate(answers_at, 2, [2, 1], [0, 1]).stop(20.0)
        _, mine, _ = walked(script.lines, Port(2, 1, 1), Port(2, 1, 1))
        assert mine.differs_at is None
        return mine.loop.unknown.num_unanswered

    assert (asked(8.0), asked(11.0)) == (0, 1)


def test_a_pace_that_would_start_fewer_is_not_said_to_start_more() -> None:
    def unfilled(concurrency: int) -> int:
        _, _, (other,) = walked(by_hand().lines, Buffered(3, 2), Buffered(concurrency, 2))
        return int(other.loop.unknown.num_unfilled)

    assert unfilled(2) == 0 < unfilled(5)


def test_what_the_run_called_off_ends_so_whatever_the_pace() -> None:
    script = Script().join(0.0, 0, 1).start(0.0, 0, 0, 0).start(0.0, 1, 1, 0).arrive(5.0, 0)
    script.aggregate(5.0, 1, [0], [0]).start(5.0, 2, 0, 1)
    reason = "called off: no report within 8 s"
    script.say("failed", 8.0, task=1, client=1, reason=reason).start(8.0, 3, 1, 1)
    script.arrive(9.0, 2).aggregate(9.0, 2, [2], [0]).stop(10.0)
    _, mine, (other,) = walked(script.lines, Papaya(2, 1, 8.0), Buffered(2, 1))
    assert mine.differs_at is None
    assert (other.differs_at, other.loop.unknown.num_given_up) == (8.0, 1)
    assert [a.tasks for a in other.loop.aggregations] == [(0,), (2,)]


def test_a_version_that_could_not_be_is_none_here_either() -> None:
    script = Script().join(0.0, 0, 1).start(0.0, 0, 0, 0).start(0.0, 1, 1, 0).arrive(5.0, 0)
    script.say("dropped", 5.0, task=0, reason="the model would not be finite")
    script.start(5.0, 2, 0, 0).arrive(7.0, 1).aggregate(7.0, 1, [1], [0]).stop(9.0)
    recorded, mine, _ = walked(script.lines, Buffered(2, 1))
    assert mine.differs_at is None
    assert mine.loop.num_dropped == recorded.num_dropped == 1


def test_an_update_that_could_not_be_used_alone_can_be_with_others() -> None:
    # Task 1 alone would not have been finite; whether it is so along with task 0 nobody knows.
    script = Script().join(0.0, 0, 1).start(0.0, 0, 0, 0).start(0.0, 1, 1, 0).arrive(5.0, 0)
    script.aggregate(5.0, 1, [0], [0]).start(5.0, 2, 0, 1).arrive(7.0, 1)
    script.say("dropped", 7.0, task=1, reason="the model would not be finite").stop(9.0)
    _, mine, (other,) = walked(script.lines, Buffered(2, 1), Buffered(2, 2))
    assert [a.tasks for a in mine.loop.aggregations] == [(0,)]
    assert [a.tasks for a in other.loop.aggregations] == [(0, 1)]


def test_versions_end_a_run_where_they_would_have() -> None:
    rules = Rules(stop=Stop(versions=2))
    lines = [*by_hand().lines[:-1], {"kind": "stopped", "at": 40.0, "reason": "versions"}]
    _, _, (sooner,) = walked(lines, Buffered(3, 2), Buffered(3, 1), rules=rules)
    assert sooner.loop.over == (14.0, "versions")
    assert len(sooner.loop.aggregations) == 2


def test_ticks_are_when_it_decides() -> None:
    # Every 8 s and every 2 updates: at 16 (two wait since 14) and at 32 (of tasks 3, 4 and 2).
    rules = Rules(tick_s=8.0)
    _, _, (ticking,) = walked(by_hand().lines, Buffered(3, 2), Buffered(3, 2), rules=rules)
    assert [(a.at, a.tasks) for a in ticking.loop.aggregations] == [
        (16.0, (0, 1)),
        (32.0, (3, 4, 2)),
    ]


def test_what_comes_at_a_tick_is_decided_on_then() -> None:
    script = Script().join(0.0, 0).start(0.0, 0, 0, 0).arrive(16.0, 0).stop(40.0)
    _, _, (ticking,) = walked(script.lines, Buffered(1, 1), Buffered(1, 1), rules=Rules(tick_s=8.0))
    assert [a.at for a in ticking.loop.aggregations] == [16.0]


def test_tiny_ticks_take_no_time() -> None:
    rules = Rules(tick_s=1e-9)
    _, _, (ticking,) = walked(by_hand().lines, Buffered(3, 2), Timed(3, 16.0), rules=rules)
    assert [a.at for a in ticking.loop.aggregations] == pytest.approx([16.0, 32.0])


# --- what holds whatever the log ------------------------------------------------------------------


@settings(max_examples=25)
@given(any_world(deadline_s=st.just(30.0)), st.sampled_from(["fedbuff", "pisces"]))
def test_a_strict_bound_holds_where_everybody_could_be_started(world: World, protocol: str) -> None:
    try:
        lines = simulate(protocol, world)
    except ConfigError:
        return
    own = policies(protocol, world.concurrency).pacer
    others = [Adaptive(world.concurrency, bound, mode="strict") for bound in (1, 2, 4)]
    _, _, replayed = walked(lines, own, *others, rules=rules_of(world))
    for bound, other in zip((1, 2, 4), replayed, strict=True):
        if not other.loop.unknown.num_impossible:
            stale = [s for a in other.loop.aggregations for s in a.staleness]
            assert max(stale, default=0) <= bound


@settings(max_examples=25)
@given(any_world(), any_protocol, any_protocol)
def test_any_pace_over_any_log_takes_every_update_once(
    world: World, protocol: str, other: str
) -> None:
    try:
        lines = simulate(protocol, world)
        pacer = policies(other, world.concurrency).pacer
    except ConfigError:
        return
    own = policies(protocol, world.concurrency).pacer
    _, _, (replayed,) = walked(lines, own, pacer, rules=rules_of(world))
    tasks = [task for aggregation in replayed.loop.aggregations for task in aggregation.tasks]
    arrived = {line["task"] for line in of_kind(lines, "arrived")}
    assert len(tasks) == len(set(tasks))
    assert set(tasks) <= arrived
    assert all(s >= 0 for a in replayed.loop.aggregations for s in a.staleness)
    instants = [aggregation.at for aggregation in replayed.loop.aggregations]
    assert instants == sorted(instants)


# --- where a run comes from -----------------------------------------------------------------------


def test_in_real_time_decisions_are_the_same_by_what_they_are_about(tmp_path: Path) -> None:
    # The pace wakes at 16; the loop came to it at 16.004.
    script = Script().join(0.0, 0, 1).start(0.0, 0, 0, 0).start(0.0, 1, 1, 0).arrive(10.0, 0)
    script.aggregate(16.004, 1, [0], [0]).stop(20.0)
    config = 'protocol = "fedar"\n[protocols.fedar]\ntimeout_s = 16.0'
    config += "\n[clients]\ncount = 2\nconcurrency = 2\n"
    folder = write_run(tmp_path / "served", script.lines, config)
    assert not replay(folder).check.is_same
    (folder / "clients.jsonl").write_text("")
    check = replay(folder).check
    assert check.is_same
    assert check.most_apart_s == pytest.approx(0.004)


class Impatient(Buffered):
    """It would call off whoever works."""

    def release(self, view: View) -> list[Release]:
        return [Release(task, "enough") for task in view.running.task_ids.tolist()]


def test_a_flower_app_tells_its_pace(tmp_path: Path) -> None:
    config = 'made_in = "Flower"\nprotocol = "fedbuff"\nseed = 1\n[clients]\nconcurrency = 300\n'
    config += "[protocols.fedbuff]\nbuffer_size = 2\n[train_config]\nlr = 0.1\n"
    folder = write_run(tmp_path / "app", by_hand().lines, config)
    (folder / "clients.jsonl").write_text("")
    assert replay(folder, ["pace.buffer_size=3"]).check.is_same
    assert not paces.source_of(Run.open(folder)).rules.can_release  # nobody can be called off there
    (folder / "config.toml").write_text(config.replace('"fedbuff"', '"my policies"'))
    with pytest.raises(ConfigError, match="made in Flower, and does not say which pace it had"):
        replay(folder)
    impatient = Impatient(3, 2)
    assert replay(folder, pacer=impatient, own=impatient).check.is_same
    (folder / "config.toml").write_text('made_in = "Python"\nprotocol = "mine"\nseed = 1\n')
    assert not replay(folder, pacer=impatient, own=impatient).check.is_same  # there it calls off


def test_a_run_made_in_python_tells_its_pace_if_it_has_one_by_name(tmp_path: Path) -> None:
    config = 'made_in = "Python"\nprotocol = "fedbuff"\nseed = 1\ntick_s = 8.0\n'
    config += (
        "[clients]\nconcurrency = 3\ndeadline_s = 30.0\n[protocols.fedbuff]\nbuffer_size = 2\n"
    )
    config += '[stop]\nversions = 7\ntarget = 20.0\nmetric = "mine"\n'
    folder = write_run(tmp_path / "named", by_hand().lines, config)
    source = paces.source_of(Run.open(folder))
    assert (source.concurrency, source.deadline_s) == (3, 30.0)
    assert source.rules == Rules(tick_s=8.0, stop=Stop(versions=7))
    assert source.policies.pacer.num_buffered == 2
    assert replay(folder, ["pace.buffer_size=3"]).replayed.num_aggregations == 1
    for damaged in ('concurrency = "3"', "concurrency = 0"):
        (folder / "config.toml").write_text(config.replace("concurrency = 3", damaged))
        with pytest.raises(ConfigError, match=r"clients\.concurrency"):
            replay(folder)


def test_what_an_older_pisces_wrote_of_such_a_run_does_not_say_its_pace(tmp_path: Path) -> None:
    config = 'made_in = "Flower"\nprotocol = "fedbuff"\nseed = 1\nconcurrency = 3\n'
    config += "settings = \"{'buffer_size': 2}\"\ntrain_config = '{}'\n"
    folder = write_run(tmp_path / "old", by_hand().lines, config)
    with pytest.raises(ConfigError, match="does not say which pace it had"):
        replay(folder)
    assert replay(folder, pacer=Buffered(3, 3), own=Buffered(3, 2)).check.is_same


def test_a_run_made_in_python_is_given_its_pacers(tmp_path: Path) -> None:
    config = 'made_in = "Python"\nprotocol = "mine"\nseed = 1\n'
    run = Run.open(write_run(tmp_path / "mine", by_hand().lines, config))
    with pytest.raises(ConfigError, match="does not say which pace it had"):
        replay(run, ["pace.bound=1"])
    replayed = replay(run, pacer=Buffered(3, 3), own=Buffered(3, 2))
    assert replayed.check.is_same
    assert [a.at for a in replayed.aggregations] == [20.0]
    assert replayed.changes == ()


def test_the_tick_of_a_run_is_as_its_folder_says_or_as_it_is_given(tmp_path: Path) -> None:
    config = 'made_in = "Python"\nprotocol = "mine"\nseed = 1\n'
    pacers: Any = {"pacer": Buffered(3, 2), "own": Buffered(3, 2)}
    older = write_run(tmp_path / "older", by_hand().lines, config)
    assert [a.at for a in replay(older, **pacers, tick_s=8.0).aggregations] == [16.0, 32.0]
    newer = write_run(tmp_path / "newer", by_hand().lines, f"{config}tick_s = 8.0\n")
    assert [a.at for a in replay(newer, **pacers).aggregations] == [16.0, 32.0]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"pacer": Buffered(3, 3)}, "own: must be a pacer, not None: give both"),
        ({"own": Buffered(3, 3), "tick_s": 1.0}, "pacer: must be a pacer, not None: give both"),
        ({"tick_s": 2.5}, "tick_s: must be left out where no pacers are given, not 2.5: the"),
        (
            {"changes": ["pace.bound=1"], "pacer": Buffered(3, 3), "own": Buffered(3, 2)},
            "changes: must be left out where pacers are given, not ['pace.bound=1']: change",
        ),
        (
            {"pacer": Buffered(3, 3), "own": Buffered(3, 2), "tick_s": -1.0},
            "tick_s: must be 0, or so many seconds as the run's loop decided after, not -1.0",
        ),
    ],
)
def test_what_does_not_go_together_is_said(run: Run, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        replay(run, **given)
    assert str(caught.value).startswith(says)


def test_a_pace_that_was_not_the_runs_own_is_found_out(run: Run) -> None:
    config = (run.path / "config.toml").read_text()
    (run.path / "config.toml").write_text(config.replace("buffer_size = 2", "buffer_size = 3"))
    check = replay(Run.open(run.path)).check
    assert (check.is_same, check.num_same, check.differs_at) == (False, 0, 14.0)
    assert check.why


def test_logs_that_do_not_tell_steps_are_found_out(tmp_path: Path) -> None:
    world = World()
    lines = simulate("fedcompass", world)
    older = [{k: v for k, v in line.items() if k != "num_steps"} for line in lines]
    config = 'protocol = "fedcompass"\n[latency]\nkind = "compute"\n'
    config += "[clients]\ncount = 6\nconcurrency = 3\n"
    assert replay(write_run(tmp_path / "new", lines, config)).check.is_same
    check = replay(write_run(tmp_path / "old", older, config)).check
    assert not check.is_same
    assert "its pace goes by steps" in check.why[0]


# --- what is asked --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("select.policy=uniform", "a replay can only ask the pace otherwise"),
        ("stop.time_s=9", "a replay can only ask the pace otherwise"),
        ("protocol=fedavg", "a replay can only ask the pace otherwise"),
        ("pace=3", "a replay can only ask the pace otherwise"),
        ("pace.=3", "a replay can only ask the pace otherwise"),
        ("pace.buffer_sise=3", r"did you mean pace.buffer_size\?"),
        ("pace.server_rate=3", "the pace of fedbuff has no such setting, only buffer_size"),
        ("pace.buffer_size=0", "pace: buffer_size: must be greater than or equal to 1, not 0"),
        ("pace.buffer_size=x", "pace: buffer_size: must be a valid integer, not 'x'"),
        ("pace.policy=adaptiv", "did you mean 'adaptive'"),
        ("pace.policy=fedasync", None),
        ("pace.policy=pisces", None),
        ("pace.buffer_size=none", None),
    ],
)
def test_what_may_be_asked(run: Run, change: str, told: str | None) -> None:
    if told is None:
        assert replay(run, [change]).check.is_same
    else:
        with pytest.raises(ConfigError, match=told):
            replay(run, [change])


def test_a_pace_without_settings_says_what_helps(tmp_path: Path) -> None:
    config = CONFIG.replace("fedbuff", "fedasync").replace("buffer_size = 2", "")
    folder = write_run(tmp_path / "run", by_hand().lines, config)
    with pytest.raises(ConfigError, match="has no settings: choose another"):
        replay(folder, ["pace.buffer_size=3"])


def test_a_pace_of_a_table_is_changed_there(tmp_path: Path) -> None:
    config = CONFIG + '[pace]\npolicy = "adaptive"\nstaleness_bound = 3\nunseen_latency_s = 24.0\n'
    source = paces.source_of(Run.open(write_run(tmp_path / "run", by_hand().lines, config)))
    assert vars(paces.pacer_of(source, ["pace.bound=7"])) == vars(
        Adaptive(3, 7, unseen_latency_s=24.0)
    )
    other = paces.pacer_of(source, ["pace.policy=adaptive", "pace.bound=7"])
    assert vars(other) == vars(Adaptive(3, 7, unseen_latency_s=180.0))
    with pytest.raises(ConfigError, match="unknown key"):
        paces.pacer_of(source, ["pace.buffer_size=7"])


def test_short_names_stand_for_a_protocols_own(tmp_path: Path) -> None:
    config = 'protocol = "pisces"\n[clients]\ncount = 4\nconcurrency = 3\n'
    source = paces.source_of(Run.open(write_run(tmp_path / "run", by_hand().lines, config)))
    assert vars(paces.pacer_of(source, ["pace.mode=elapsed", "pace.bound=7"])) == vars(
        Adaptive(3, 7, mode="elapsed")
    )


def test_values_are_combined() -> None:
    assert paces.variants([]) == [()]
    assert paces.variants(["pace.a=1,2", "pace.b=x"]) == [
        ("pace.a=1", "pace.b=x"),
        ("pace.a=2", "pace.b=x"),
    ]
    assert paces.variants(["pace.a='1,2'"]) == [("pace.a='1,2'",)]
    with pytest.raises(ConfigError, match="at most 20 paces at once, not 100"):
        paces.variants([f"pace.{key}=" + ",".join(map(str, range(10))) for key in "ab"])


def test_a_pace_that_would_be_refused_is_replayed_and_said_to_be(run: Run) -> None:
    replayed = replay(run, ["pace.policy=adaptive", "pace.mode=strict"])
    assert "would be refused: a strict pace needs clients.deadline_s" in replayed.caveats[0]


# --- damaged logs ---------------------------------------------------------------------------------


def damaged(tmp_path: Path, lines: list[dict[str, object]]) -> Path:
    return write_run(tmp_path / "damaged", lines, CONFIG)


def test_a_last_line_cut_short_is_left_out(run: Run) -> None:
    path = run.path / "events.jsonl"
    path.write_bytes(path.read_bytes()[:-300])
    assert replay(run).check.is_same


def test_a_line_that_is_none_is_refused(run: Run) -> None:
    path = run.path / "events.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"kind":"arrived"', b'{"kind":arrived', 1))
    with pytest.raises(RunError, match="line 8: not an event"):
        replay(run)


def test_time_that_runs_backwards_is_refused(tmp_path: Path) -> None:
    lines = by_hand().lines
    lines[7] = {**lines[7], "at": 99.0}
    with pytest.raises(RunError, match="time runs backwards in the log, from 99 s to 10 s"):
        replay(damaged(tmp_path, lines))


@pytest.mark.parametrize(("client", "why"), [(1, "runs already"), (3_000_000, "never joined")])
def test_a_start_that_cannot_be_is_refused(tmp_path: Path, client: int, why: str) -> None:
    lines = by_hand().lines
    lines[6] = {**lines[6], "client": client}
    with pytest.raises(RunError, match=f"task 2 is started on client {client}, which {why}"):
        replay(damaged(tmp_path, lines))


def test_a_log_in_which_nobody_was_started_has_nothing_to_replay(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nobody was started in it yet"):
        replay(damaged(tmp_path, []))


def test_lines_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    lines = [line for made in by_hand().lines for line in (made, {"kind": "weather", "at": 0.0})]
    assert replay(damaged(tmp_path, lines)).check.is_same


def test_a_client_that_says_what_the_server_would_is_believed_nothing(tmp_path: Path) -> None:
    script = Script().join(0.0, 0, 1).start(0.0, 0, 0, 0).start(0.0, 1, 1, 0)
    script.say("failed", 2.0, task=0, client=0, reason="the run stopped").start(2.0, 2, 0, 0)
    script.arrive(5.0, 1).arrive(6.0, 2).aggregate(6.0, 1, [1, 2], [0, 0]).stop(9.0)
    check = replay(damaged(tmp_path, script.lines)).check
    assert (check.is_same, check.num_same) == (True, 1)


def test_numbers_that_are_not_known_are_none() -> None:
    script = Script().join(0.0, 0).start(0.0, 0, 0, 0).stop(9.0)
    recorded, _, _ = walked(script.lines, Buffered(1, 1))
    figures = recorded.numbers(None)
    assert figures.interval_median_s is figures.staleness_max is figures.wait_mean_s is None
    assert not math.isnan(figures.num_aggregations)

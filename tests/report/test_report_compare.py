"""Times to target and paired speed-ups, worked out by hand."""

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.errors import RunError
from pisces.record.lines import plain
from pisces.record.reader import Run
from pisces.record.summary import Tally
from pisces.report import compare as comparing
from pisces.report.compare import BySeed, Result, Row, by_protocol, compare, drawn_of
from pisces.report.estimate import Bound, Estimate
from pisces.report.goal import Goal

MakeRun = Callable[..., Run]


def result(time: float | None, end: float = 100.0) -> Result:
    return Result(time, replace(Tally().counts(), at=end), None)


def results(*times: float | None, end: float = 100.0) -> dict[int | None, Result]:
    return {seed: result(time, end) for seed, time in enumerate(times)}


def paired_speedup(of: BySeed, reference: BySeed) -> Estimate:
    found = comparing.paired_speedup(of, reference)
    assert found is not None
    return found


INF = math.inf


def test_speedups_are_paired_by_seed() -> None:
    # Ratios 20/10, 90/30 and 40/40, that is 2, 3 and 1. The medians' ratio would be 40/30.
    speedup = paired_speedup(results(20.0, 90.0, 40.0), results(10.0, 30.0, 40.0))
    assert speedup.known == (2.0, "")
    assert (speedup.min, speedup.max) == (1.0, 3.0)
    assert not speedup.has_interval
    assert speedup.num == 3


@pytest.mark.parametrize(
    ("times", "reference", "expected"),
    [
        # The other never got there: at least 100/20.
        ([None], [20.0], (5.0, ">=", 5.0, INF)),
        # The reference never got there: at most 50/100.
        ([50.0], [None], (0.5, "<=", -INF, 0.5)),
        # Neither did: nothing is known.
        ([None], [None], (None, "", -INF, INF)),
        # 2, 3 and at least 5: the median is 3 whatever the last one is.
        ([20.0, 30.0, None], [10.0, 10.0, 20.0], (3.0, "", 2.0, INF)),
        # 8 and at least 5 and at least 10: between 8 and infinity.
        ([80.0, None, None], [10.0, 20.0, 10.0], (8.0, ">=", 5.0, INF)),
        # At most 0.2, at most 0.5, and 3: at most 0.5.
        ([20.0, 50.0, 30.0], [None, None, 10.0], (0.5, "<=", -INF, 3.0)),
        # Unknown, 2 and 4: the median is 2 to 4, so at least 2.
        ([None, 20.0, 40.0], [None, 10.0, 10.0], (2.0, ">=", -INF, INF)),
        # Both there from the start; the reference alone (over 0: not known); the other alone.
        ([0.0], [0.0], (1.0, "", 1.0, 1.0)),
        ([10.0], [0.0], (None, "", -INF, INF)),
        ([0.0], [10.0], (0.0, "", -INF, 0.0)),
    ],
)
def test_what_is_known_when_targets_are_not_reached(
    times: list[float | None],
    reference: list[float | None],
    expected: tuple[float | None, Bound, float, float],
) -> None:
    speedup = paired_speedup(results(*times), results(*reference))
    assert (*speedup.known, speedup.min, speedup.max) == expected


def test_a_median_between_two_known_ends_has_both() -> None:
    # Unknown, 2 and 4: the median is 2 to 4; then at most 0.2 and 3: between 1.5 and 1.6.
    speedup = paired_speedup(results(None, 20.0, 40.0), results(None, 10.0, 10.0))
    assert (speedup.known, speedup.most) == ((2.0, ">="), 4.0)
    speedup = paired_speedup(results(20.0, 30.0), results(None, 10.0))
    assert (speedup.known, speedup.most) == ((1.5, ">="), 1.6)


def test_seeds_only_one_of_them_has_are_not_paired() -> None:
    others: BySeed = {1: result(20.0), 2: result(90.0)}
    reference: BySeed = {2: result(30.0), 3: result(1.0)}
    found = paired_speedup(others, reference)
    assert (found.known, found.num) == ((3.0, ""), 1)
    assert comparing.paired_speedup(others, {4: result(1.0)}) is None


def test_the_interval_comes_with_five_seeds_and_is_always_the_same() -> None:
    speedup = paired_speedup(results(20.0, 22.0, 24.0, 26.0, 90.0), results(*[10.0] * 5))
    assert speedup.known == (2.4, "")
    assert (speedup.min, speedup.max) == (2.0, 9.0)
    # The median of 5 draws is the least value when at least 3 of 5 draws are it: chance
    # 10 (1/5)^3 (4/5)^2 + 5 (1/5)^4 (4/5) + (1/5)^5 = 5.8 %, above the 2.5 % cut off at each end.
    assert (speedup.low, speedup.high) == (2.0, 9.0)
    again = paired_speedup(results(20.0, 22.0, 24.0, 26.0, 90.0), results(*[10.0] * 5))
    assert again == speedup


def test_the_interval_is_narrower_than_the_range_with_more_seeds() -> None:
    times = [10.0 + seed for seed in range(20)]
    speedup = paired_speedup(results(*times), results(*[10.0] * 20))
    assert speedup.known == (1.95, "")  # between 19/10 and 20/10
    assert 1.0 < speedup.low < 1.95 < speedup.high < 2.9


def test_the_interval_is_open_where_runs_never_got_there() -> None:
    speedup = paired_speedup(results(20.0, 30.0, None, None, None), results(*[10.0] * 5))
    assert speedup.known == (10.0, ">=")
    assert (speedup.low, speedup.high) == (2.0, INF)


TIMES = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=7)


@settings(max_examples=80)
@given(TIMES, st.integers(1, 60), st.integers(1, 60))
def test_what_is_said_of_runs_cut_short_is_true_of_the_whole_ones(
    times: list[tuple[int, int]], end: int, reference_end: int
) -> None:
    truth = float(np.median([a / b for a, b in times]))
    cut: BySeed = {s: result(a if a <= end else None, end) for s, (a, _) in enumerate(times)}
    reference: BySeed = {
        s: result(b if b <= reference_end else None, reference_end)
        for s, (_, b) in enumerate(times)
    }
    median, bound = paired_speedup(cut, reference).known
    if bound == ">=":
        assert median is not None
        assert truth >= median
    elif bound == "<=":
        assert median is not None
        assert truth <= median
    else:
        assert median in (None, truth)


def aggregated(staleness: list[int]) -> dict[str, object]:
    return {"kind": "aggregated", "at": 1.0, "version": 7, "tasks": [], "staleness": staleness}


def known(row: Row) -> tuple[float | None, Bound]:
    assert row.speedup is not None
    return row.speedup.known


def test_rows(make_run: MakeRun) -> None:
    runs = [
        make_run("oort", 1, {20.0: 0.5, 80.0: 0.9}, wall_s=4.0),
        make_run("oort", 2, {20.0: 0.5, 80.0: 0.7}, wall_s=6.0),
        make_run("fedbuff", 1, {40.0: 0.9}, lines=[aggregated([1, 9])], num_updates=10),
        make_run("fedbuff", 2, {50.0: 0.9}, lines=[aggregated([3])], num_updates=30),
        make_run("pisces", 1, {20.0: 0.9}),
        make_run("pisces", 2, {25.0: 0.8}),
    ]
    pisces, fedbuff, oort = compare(runs, 0.8, reference="pisces")
    assert [row.protocol for row in (pisces, fedbuff, oort)] == ["pisces", "fedbuff", "oort"]
    assert pisces.seeds == (1, 2)
    assert (pisces.reached, pisces.time_to_target_s) == (2, 22.5)
    assert pisces.speedup is None
    assert fedbuff.speedup == Estimate(2, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0)  # 40/20 and 50/25
    assert fedbuff.max_staleness == 9
    assert fedbuff.updates == 20.0
    assert fedbuff.versions == 7.0
    assert fedbuff.wall_s is None
    # One of two got there: half is not a majority, so there is no median time.
    assert (oort.reached, oort.time_to_target_s) == (1, None)
    # 80/20 and at least 100/25.
    assert oort.speedup == Estimate(2, 4.0, INF, 4.0, INF, 4.0, INF)
    assert oort.final == pytest.approx(0.8)  # 0.9 and 0.7
    assert oort.wall_s == 5.0
    assert oort.max_staleness is None


def test_the_fastest_is_the_reference_unless_one_is_named(make_run: MakeRun) -> None:
    runs = [make_run("slow", 1, {90.0: 0.9}), make_run("fast", 1, {10.0: 0.9})]
    fast, slow = compare(runs, 0.8)
    assert (fast.protocol, fast.speedup) == ("fast", None)
    assert (slow.protocol, known(slow)) == ("slow", (9.0, ""))
    slow, fast = compare(runs, 0.8, reference="slow")
    assert slow.protocol == "slow"
    assert known(fast) == (pytest.approx(10 / 90), "")


def test_the_fastest_of_the_others_comes_first(make_run: MakeRun) -> None:
    times = {"a": 50.0, "b": 90.0, "never": None, "at once": 0.0, "soon": 5.0}
    runs = [make_run(p, 1, {} if t is None else {t: 0.9}) for p, t in times.items()]
    rows = compare(runs, 0.8, reference="a")
    assert [r.protocol for r in rows] == ["a", "at once", "soon", "b", "never"]


def test_among_those_without_a_median_time_more_runs_there_come_first(make_run: MakeRun) -> None:
    finals = {"ref": (0.9, 0.9), "worse": (0.1, 0.1), "none": (None, None), "half": (0.9, 0.05)}
    finals |= {"better": (0.7, 0.3)}  # ends at 0.5, as `half` at 0.475, but never was at 0.8
    runs = [
        make_run(p, seed, {10.0: value})
        for p, values in finals.items()
        for seed, value in enumerate(values)
    ]
    rows = compare(runs, 0.8, reference="ref")
    assert [row.protocol for row in rows] == ["ref", "half", "better", "worse", "none"]


@pytest.mark.parametrize("reason", ["interrupted", None])
def test_runs_cut_short_have_no_say(make_run: MakeRun, reason: str | None) -> None:
    runs = [
        make_run("pisces", 1, {20.0: 0.9}),
        make_run("pisces", 2, {10.0: 0.1}, end=12.0, reason=reason),
        make_run("oort", 1, {60.0: 0.9}),
        make_run("oort", 2, {90.0: 0.9}),  # over 12 s it would be 7.5 or less
        make_run("fedavg", 1, {10.0: 0.95}, end=12.0, reason=reason),
    ]
    pisces, oort, fedavg = compare(runs, 0.8)
    assert (pisces.seeds, pisces.reached, pisces.num_cut_short) == ((1,), 1, 1)
    assert (pisces.time_to_target_s, pisces.final) == (20.0, 0.9)
    assert oort.speedup == Estimate(1, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0)
    assert oort.num_cut_short == 0
    # Nothing but such a run: it is the last one, whatever it had reached.
    assert (fedavg.seeds, fedavg.num_cut_short, fedavg.reached) == ((), 1, 0)
    assert (fedavg.time_to_target_s, fedavg.speedup, fedavg.final) == (None, None, None)
    assert (fedavg.versions, fedavg.updates, fedavg.wall_s) == (None, None, None)
    # Nor is it the fastest.
    assert [row.protocol for row in compare(runs[3:], 0.8)] == ["oort", "fedavg"]


def test_a_run_without_a_final_value_counts_as_the_worst(make_run: MakeRun) -> None:
    values = [0.9, 0.8, None]
    runs = [make_run("pisces", seed, {10.0: value}) for seed, value in enumerate(values)]
    assert compare(runs, 0.5)[0].final == 0.8  # of 0.9, 0.8 and worse
    assert compare(runs[1:], 0.5)[0].final is None


def test_lower_is_better_for_a_loss(make_run: MakeRun) -> None:
    lines = [
        {"kind": "evaluated", "at": at, "version": 1, "perplexity": value}
        for at, value in [(10.0, 900.0), (20.0, 790.0)]
    ]
    (row,) = compare([make_run("pisces", 1, {}, lines=lines)], 800.0, metric="perplexity")
    assert (row.time_to_target_s, row.final) == (20.0, 790.0)


def test_rows_as_json(make_run: MakeRun) -> None:
    runs = [make_run("pisces", 3, {10.0: 0.9}), make_run("oort", 3, {})]
    rows = compare([*runs, make_run("fedbuff", 4, {20.0: 0.9})], 0.8)
    pisces, fedbuff, oort = json.loads(json.dumps([plain(row.as_json()) for row in rows]))
    assert " ".join(oort) == (  # what others read: none of them may go
        "protocol seeds reached time_to_target_s num_pairs speedup speedup_bound speedup_min "
        "speedup_max speedup_low speedup_high versions updates max_staleness final wall_s "
        "speedup_most num_cut_short"
    )
    assert (pisces["seeds"], pisces["time_to_target_s"]) == ([3], 10.0)
    assert (oort["num_pairs"], oort["speedup"], oort["speedup_bound"]) == (1, 10.0, ">=")
    assert (oort["speedup_min"], oort["speedup_max"], oort["speedup_most"]) == (10.0, None, None)
    for row in (pisces, fedbuff):  # the reference, and one without a seed in common
        told = {key: value for key, value in row.items() if "speedup" in key}
        assert (row["num_pairs"], told.pop("speedup_bound")) == (0, "")
        assert set(told.values()) == {None}


def test_both_ends_of_a_median_are_in_the_json(make_run: MakeRun) -> None:
    # 2 and 4, and one pair of which nothing is known: the median is 2 to 4.
    times = {"pisces": (10.0, 10.0, None), "oort": (20.0, 40.0, None)}
    runs = [
        make_run(protocol, seed, {} if time is None else {time: 0.9})
        for protocol, of in times.items()
        for seed, time in enumerate(of)
    ]
    row = plain(compare(runs, 0.8)[1].as_json())
    assert (row["speedup"], row["speedup_bound"], row["speedup_most"]) == (2.0, ">=", 4.0)
    assert (row["speedup_min"], row["speedup_max"]) == (None, None)


def test_errors_name_the_runs(make_run: MakeRun) -> None:
    run = make_run("pisces", 1, {})
    with pytest.raises(RunError, match="no runs to compare"):
        compare([], 0.8)
    with pytest.raises(RunError, match="reference 'pices': choose one of pisces"):
        compare([run], 0.8, reference="pices")
    twin = make_run("pisces", 2, {})
    (twin.path / "config.toml").write_text((run.path / "config.toml").read_text())
    with pytest.raises(RunError, match=r"pisces-1 and .*pisces-2 are both pisces \(seed 1\)"):
        compare([run, Run.open(twin.path)], 0.8)


def test_the_same_folder_twice_is_one_run(make_run: MakeRun) -> None:
    run = make_run("pisces", 1, {})
    assert by_protocol([run, Run.open(run.path)]) == {"pisces": {1: run}}


def test_runs_cut_short_are_drawn_only_where_there_are_no_others(make_run: MakeRun) -> None:
    whole = make_run("pisces", 1, {10.0: 0.9})
    cut = [make_run("oort", seed, {10.0: 0.9}, reason="interrupted") for seed in (1, 2)]
    goal = Goal("accuracy", 0.8)
    assert drawn_of([whole, *cut], goal) == ([whole], goal)
    assert drawn_of(cut, goal) == (
        cut,
        Goal("accuracy"),
    )  # nobody knows which of them would have been faster
    assert drawn_of(cut[:1], goal) == (cut[:1], goal)


def test_speedups_have_an_interval_where_there_are_pairs_enough(make_run: MakeRun) -> None:
    runs = [make_run("pisces", seed, {10.0: 0.9}) for seed in range(5)]
    runs += [make_run("oort", seed, {20.0 + seed: 0.9}) for seed in range(5)]
    row = compare(runs, 0.8)[1].as_json()
    assert (row["num_pairs"], row["speedup_low"], row["speedup_high"]) == (5, 2.0, 2.4)
    few = compare([run for run in runs if run.seed in (0, 1)], 0.8)[1].as_json()
    assert (few["speedup_low"], few["speedup_high"]) == (None, None)
    assert (few["speedup_min"], few["speedup_max"]) == (2.0, 2.1)

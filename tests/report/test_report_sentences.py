"""Sentences made from numbers: true, and singular where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pisces.quantities import how_many, listed
from pisces.record.reader import Run
from pisces.report.compare import compare
from pisces.report.goal import Goal
from pisces.report.sentences import about_comparison, about_run

MakeRun = Callable[..., Run]


def told(run: Run, target: float | None = None, **options: Any) -> str:
    return " ".join(about_run(run, Goal("accuracy", target), **options))


def compared(runs: list[Run], **bounds: float) -> str:
    return " ".join(about_comparison(compare(runs, 0.8), runs, Goal("accuracy", 0.8), bounds))


def test_counts_and_lists() -> None:
    assert [how_many(n, "run") for n in (0, 1, 2, 1000)] == [
        "no runs",
        "1 run",
        "2 runs",
        "1,000 runs",
    ]
    assert [listed(names) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
    assert listed(range(11)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 10"  # not: and 1 more
    assert listed(range(14)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 4 more"


def test_a_run_that_got_there(make_run: MakeRun) -> None:
    summary: dict[str, Any] = {
        "reason": "target",
        "num_clients": 1,
        "num_updates": 12,
        "num_aggregated": 11,
        "num_dropped": 1,
        "versions": 1,
        "mean_staleness": 2.5,
        "max_staleness": 4,
        "num_failed": 1,
        "num_called_off": 3,
        "num_under_way": 1,
        "num_left": 2,
        "num_outliers": 1,
        "distrusted": [7],
    }
    run = make_run("pisces", 3, {10.0: 0.2, 20.0: 0.85}, end=20.0, **summary)
    text = told(run, target=0.8, bound=4)
    for sentence in (
        "pisces (seed 3) trained a model over 1 client.",
        "It ended after 20 s of virtual time: it had reached its target.",
        "It reached accuracy 0.8 after 20 s. Its last accuracy was 0.85, its best 0.85.",
        "12 updates arrived: 11 went into 1 version and 1 was dropped.",
        "Updates were 2.5 versions stale on average, the stalest 4; the bound is 4, and no update "
        "was staler.",
        "1 update was taken for an outlier; client 7 ran out of credits and was not picked again.",
        "1 task failed, 2 tasks were called off by the protocol and clients left 2 times.",
        "1 task was under way when the run stopped, and came to nothing.",
    ):
        assert sentence in text
    assert "beyond the bound of 3." in told(run, target=0.8, bound=3)
    assert "It did not reach accuracy 0.9." in told(run, target=0.9)


def test_a_run_that_is_not_over(make_run: MakeRun) -> None:
    text = told(make_run("pisces", 1, {10.0: 0.2}, reason=None), target=0.8, clock="wall")
    assert "It is not over, or was killed: the log ends after 10 s." in text
    assert "It had not reached accuracy 0.8 by then." in text
    assert "No tasks started, and no update arrived." in text
    cut = told(make_run("pisces", 2, {}, reason="interrupted", end=5.0))
    assert "It was interrupted after 5 s of virtual time" in cut
    assert "Nothing was evaluated" in cut


@pytest.mark.parametrize("reason", ["time", "silent clients", "a reason of next year"])
def test_every_reason_has_an_end(make_run: MakeRun, reason: str) -> None:
    assert ": " in told(make_run("pisces", 1, {}, reason=reason))


def test_speedups_with_their_intervals(make_run: MakeRun) -> None:
    # pisces takes 10 s; fedbuff 20, 21, 22, 23 and 24; oort never gets there within 100 s.
    runs = [make_run("pisces", s, {10.0: 0.9}) for s in range(1, 6)]
    runs += [make_run("fedbuff", s, {19.0 + s: 0.9}) for s in range(1, 6)]
    runs += [make_run("oort", s, {50.0: 0.1}) for s in range(1, 6)]
    runs += [make_run("fedavg", 1, {10.0: 0.9}, reason="interrupted")]
    text = compared(runs)
    assert "15 runs of 4 protocols" in text
    assert "of seeds 1 to 5." in text
    assert "pisces reached accuracy 0.8 after 10 s (median of 5 runs)." in text
    assert "pisces was 2.20 times as fast as fedbuff (95 % interval 2.00 to 2.40, 5 pairs)." in text
    assert "oort did not reach accuracy 0.8 in any of its 5 runs." in text
    assert (
        "pisces was at least 10.00 times as fast as oort (95 % interval 10.00 and up, 5 pairs)."
        in text
    )
    assert "1 run (1 of fedavg) was interrupted or is not over, and does not count." in text
    assert "pisces and fedavg have no finished seed in common: no speed-up." in text


def test_few_pairs_are_called_few(make_run: MakeRun) -> None:
    runs = [make_run("pisces", s, {10.0: 0.9}) for s in (1, 2)]
    one = [*runs, make_run("oort", 1, {5.0: 0.9})]
    assert "0.50 times as fast as oort, in one pair of runs: that may be chance." in compared(one)
    two = [*one, make_run("oort", 2, {20.0: 0.9})]
    assert "(0.50 to 2.00 in 2 pairs, too few for an interval): that may be chance." in compared(
        two
    )


def test_slower_is_called_slower(make_run: MakeRun) -> None:
    runs = [make_run("pisces", s, {10.0: 0.9}) for s in range(5)]
    runs += [make_run("oort", s, {5.0: 0.9}) for s in range(5)]
    assert "0.50 times as fast as oort (95 % interval 0.50 to 0.50, 5 pairs): it was slower." in (
        compared(runs)
    )


def test_nothing_that_counts(make_run: MakeRun) -> None:
    runs = [make_run(name, 1, {}, reason=None) for name in ("pisces", "oort")]
    text = compared(runs)
    assert text.startswith("No run came to its end")
    assert "2 runs (1 of pisces and 1 of oort) were interrupted or are not over" in text


CONFIG = """
[model]
name = "mlp"
[data]
dataset = "digits"
corrupted = {share}
[clients]
count = 60
concurrency = 10
"""


def with_config(run: Run, share: float) -> Run:
    path = run.path / "config.toml"
    path.write_text(path.read_text() + CONFIG.format(share=share))
    return Run.open(run.path)


def test_a_comparison_says_what_was_compared(make_run: MakeRun) -> None:
    facts: dict[str, Any] = {"num_clients": 60, "max_staleness": 9}
    one, two = (
        make_run(
            "pisces", seed, {10.0: 0.9}, num_aggregated=n, mean_staleness=m, distrusted=bad, **facts
        )
        for seed, n, m, bad in ((1, 10, 2.0, [1]), (2, 40, 3.0, [1, 5, 7]))
    )
    oort = make_run("oort", 1, {20.0: 0.9}, num_clients=60, max_staleness=0, mean_staleness=0.0)
    text = compared([with_config(run, 0.2) for run in (one, two, oort)])
    assert ": mlp on digits, 60 clients, 10 at a time, a fifth with wrong labels." in text
    assert (
        # of all 50 updates, as the histogram has it: (10 * 2 + 40 * 3) / 50
        "pisces: updates were 2.8 versions stale on average, the stalest 9; 1 to 3 clients were "
        "distrusted." in text
    )
    assert "oort: no update was stale; no clients were distrusted." in text
    for bound, against in (
        (9, "the stalest 9, its bound;"),
        (16, "the stalest 9, within its bound of 16;"),
        (8, "the stalest 9, beyond its bound of 8;"),
    ):
        assert against in compared([one, two, oort], pisces=bound)


def test_what_differs_between_runs_is_not_said_of_all(make_run: MakeRun) -> None:
    runs = [make_run("pisces", s, {10.0: 0.9}, num_clients=60) for s in (1, 2)]
    one, two = (with_config(run, share) for run, share in zip(runs, (0.1, 0.2), strict=True))
    text = compared([one, two])
    assert "mlp on digits, 60 clients, 10 at a time." in text
    assert "wrong labels" not in text


@pytest.mark.parametrize(
    ("distrusted", "found"),
    [
        ([], "none of them was distrusted."),
        ([3], "1 client was distrusted, and the log does not say which of these they are."),
    ],
)
def test_a_run_tells_of_clients_with_wrong_labels(
    make_run: MakeRun, distrusted: list[int], found: str
) -> None:
    run = with_config(make_run("pisces", 1, {10.0: 0.9}, distrusted=distrusted), 0.2)
    assert f"A fifth of the clients (12 of 60) had wrong labels; {found}" in told(run)


def test_seeds_far_apart_are_told_without_those_between(make_run: MakeRun) -> None:
    runs = [make_run("pisces", seed, {10.0: 0.9}) for seed in (1, 3_000_000_000)]
    assert "of seeds 1 and 3000000000." in compared(runs)

"""Figures: their numbers by hand, their words, and that they stay small and plain."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledgers import CONFIG, HAND, ledger_of, line, write
from runs import World, simulate

from pisces import build, config, dashboard
from pisces.errors import ConfigError
from pisces.record.lines import Line, encode
from pisces.report.charts import LOOK
from pisces.report.compare import compare
from pisces.report.figures import (
    Figure,
    bounded,
    compare_curves,
    compare_speedups,
    compare_times,
    contributors,
    curve,
    intervals,
    losses,
    median_curves,
    staleness,
    timeline,
)
from pisces.report.figures.busy import spent
from pisces.report.figures.comparison import held
from pisces.report.figures.figure import Trace, middle, thinned
from pisces.report.figures.judging import judge_of
from pisces.report.goal import Goal
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import ReadRun
from pisces.report.styles import BLUE, COLOURS, SCALE

HALF = Goal("accuracy", 0.5)


def read(ledgers: Sequence[Ledger]) -> list[ReadRun]:
    return [ReadRun.of(ledger) for ledger in ledgers]


OF_ONE: dict[str, Callable[[Ledger], Figure]] = {
    "curve": lambda ledger: curve(ledger, Goal.watched([ledger])),
    "timeline": timeline,
    "outcomes": lambda ledger: timeline(ledger, colour="outcome"),
    "intervals": intervals,
    "contributors": contributors,
    "staleness": staleness,
    "losses": losses,
    "compare-curves": lambda ledger: compare_curves(read([ledger]), HALF),
    "compare-times": lambda ledger: compare_times(read([ledger]), HALF),
    "compare-speedups": lambda ledger: compare_speedups(read([ledger]), HALF),
}
MOST_POINTS = 10_000


def by_name(figure: Figure) -> dict[str, Trace]:
    return {trace["name"]: trace for trace in figure.data if "name" in trace}


def num_points(figure: Figure) -> int:
    return sum(np.size(trace.get("z", trace.get("x", ()))) for trace in figure.data)


def check(figure: Figure) -> None:
    """What holds for all of them."""
    text = json.dumps([figure.data, figure.layout], allow_nan=False)
    assert "color" not in json.dumps(figure.layout.get("font", {}))
    assert not {"paper_bgcolor", "plot_bgcolor", "font"} & figure.layout.keys(), text
    assert figure.words.endswith(".")
    assert num_points(figure) <= MOST_POINTS


@pytest.mark.parametrize("name", OF_ONE)
def test_all_of_them_by_hand_and_of_nothing(tmp_path: Path, name: str) -> None:
    check(OF_ONE[name](ledger_of(tmp_path / "some")))
    nothing = OF_ONE[name](Ledger(tmp_path / "none"))
    check(nothing)
    assert not nothing.data


def test_curve(tmp_path: Path) -> None:
    figure = curve(ledger_of(tmp_path), HALF)
    assert (figure.data[0]["x"], figure.data[0]["y"]) == ([0.0, 4.0, 9.0], [0.1, 0.4, 0.6])
    assert (figure.data[1]["x"], figure.data[1]["y"]) == ([9.0], [0.5])  # the target was met
    assert figure.data[1]["textposition"] == "bottom left"  # there is no room beyond the end
    soon = curve(ledger_of(tmp_path), Goal("accuracy", 0.3))
    assert (soon.data[1]["x"], soon.data[1]["textposition"]) == ([4.0], "bottom right")
    assert figure.layout["shapes"][0]["y0"] == 0.5
    assert "the target 0.5 was reached after 9 s" in figure.words
    other = curve(ledger_of(tmp_path), Goal("loss"))
    assert other.data[0]["y"] == [2.3, None]
    assert "shapes" not in other.layout  # the target is one of accuracy
    assert "not reached yet" in curve(ledger_of(tmp_path), Goal("accuracy", 0.9)).words
    over = ledger_of(tmp_path, [*HAND, line("stopped", 12.0, reason="time")])
    assert "the target 0.9 was not reached." in curve(over, Goal("accuracy", 0.9)).words
    assert "shapes" not in curve(over, Goal("accuracy")).layout  # who asks for none gets none
    assert "never evaluated" in curve(ledger_of(tmp_path), Goal("beauty")).words


def test_a_long_curve_keeps_its_extremes(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    values = rng.random(20_000)
    values[12_345], values[777] = 9.0, -9.0
    lines = [
        line("evaluated", float(n), version=n, accuracy=None if n % 97 == 0 else v)
        for n, v in enumerate(values.tolist())
    ]
    figure = curve(ledger_of(tmp_path, lines), HALF)
    drawn = figure.data[0]["y"]
    assert len(drawn) < 2000
    assert {9.0, -9.0} <= set(drawn)
    assert (figure.data[0]["x"][0], figure.data[0]["x"][-1]) == (0.0, 19_999.0)
    check(figure)


def test_thinned_keeps_ends_and_stays_in_order() -> None:
    kept = thinned(np.full(10_000, math.nan), 400)
    assert kept[0] == 0
    assert kept[-1] == 9999
    assert list(kept) == sorted(set(kept.tolist()))


def test_timeline_bars(tmp_path: Path) -> None:
    figure = timeline(ledger_of(tmp_path), colour="outcome")
    bars = by_name(figure)
    assert list(bars) == ["waiting", "aggregated", "failed"]
    assert (bars["aggregated"]["base"], bars["aggregated"]["x"]) == ([0.0, 0.0], [4.0, 6.0])
    assert (bars["failed"]["base"], bars["failed"]["x"]) == ([6.0], [4.0])
    assert bars["aggregated"]["y"] == [0, 1]
    assert bars["waiting"]["y"] == [2]  # the third row is client 7
    assert bars["failed"]["y"] == [1]
    assert "staleness 1" in bars["aggregated"]["hovertext"][1]
    assert "staleness" not in bars["failed"]["hovertext"][0]
    assert figure.layout["yaxis"]["ticktext"] == ["0", "1", "7"]
    by_staleness = by_name(timeline(ledger_of(tmp_path)))
    assert by_staleness["aggregated"]["marker"]["color"] == [0, 1]
    assert by_staleness["aggregated"]["marker"]["colorbar"]["dtick"] == 1  # of versions


def tasks_in(figure: Figure) -> list[int]:
    told = [text for trace in figure.data for text in trace["hovertext"]]
    return sorted(int(re.findall(r"task (\d+)", text)[0]) for text in told)


def test_timeline_zooms_and_pages(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    assert tasks_in(timeline(ledger, since=6.5, until=8.0)) == [2, 3]
    assert tasks_in(timeline(ledger, first=1, num=1)) == [1, 3]
    assert tasks_in(timeline(ledger, since=20.0, until=30.0)) == []
    with pytest.raises(ConfigError, match="staleness or outcome"):
        timeline(ledger, colour="beauty")  # type: ignore[arg-type]


def test_a_timeline_of_too_many_tasks_is_shaded(tmp_path: Path) -> None:
    lines: list[Line] = [line("joined", 0.0, client=c, num_examples=1) for c in range(2)]
    for n in range(2000):  # client 0 is busy half of the time, client 1 always
        for client, end in ((0, n + 0.5), (1, n + 1.0)):
            task = 2 * n + client
            lines.append(line("started", float(n), task=task, client=client, version=n))
            told = {"task": task, "client": client, "version": n, "num_examples": 1}
            lines.append(line("arrived", end, **told, loss=1.0, latency_s=1.0))
        own = {"tasks": [2 * n, 2 * n + 1], "staleness": [0, 3], "weights": [0.5, 0.5]}
        lines.append(line("aggregated", n + 1.0, version=n + 1, **own))
    ledger = ledger_of(tmp_path, lines)
    busy = timeline(ledger, colour="outcome")
    assert busy.data[0]["type"] == "heatmap"
    assert busy.data[0]["colorbar"]["ticktext"] == ["aggregated"]
    assert busy.data[0]["text"] == [["aggregated"] * 90] * 2
    # Pieces of 2000 / 90 s begin at 0, and the middle of each is where it is drawn.
    np.testing.assert_allclose(busy.data[0]["x"], (np.arange(90) + 0.5) * 2000 / 90)
    # Client 0 works for half of each second, 11.11 s of a piece, client 1 for all of it, 22.22 s; a
    # piece may hold half a task of client 0 more or less.
    starts, edges = np.arange(2000.0), np.linspace(0.0, 2000.0, 91)
    half, whole = (spent(edges, starts, starts + s, np.ones(2000)) for s in (0.5, 1.0))
    np.testing.assert_allclose(half, 0.5 * 2000 / 90, atol=0.5)
    np.testing.assert_allclose(whole, 2000 / 90)
    stale = np.array(timeline(ledger).data[0]["z"])
    np.testing.assert_allclose(stale, [[0.0] * 90, [3.0] * 90], atol=1e-6)
    assert "zoom in" in busy.words
    check(busy)
    assert timeline(ledger, until=100.0).data[0]["type"] == "bar"
    # Of 4000 tasks too many are client 0's alone; in half of the time its 1000 can be drawn.
    assert timeline(ledger, or_fewer=(1,)).data[0]["type"] == "heatmap"
    assert timeline(ledger, or_fewer=(1,)).layout["yaxis"]["ticktext"] == ["0", "1"]
    some = timeline(ledger, until=1000.0, or_fewer=(1,))
    assert {trace["type"] for trace in some.data} == {"bar"}
    assert some.layout["yaxis"]["ticktext"] == ["0"]


def test_who_worked_in_vain_is_seen_in_a_shaded_timeline(tmp_path: Path) -> None:
    lines: list[Line] = []
    for n in range(1600):  # of client 0 all is aggregated, of 1 all is dropped, 2 fails at the end
        for client in range(2) if n < 1500 else range(3):
            told = {"task": 3 * n + client, "client": client, "version": n}
            lines.append(line("started", float(n), **told))
            if client == 2:
                lines.append(line("failed", n + 0.9, **told, reason="crashed"))
                continue
            lines.append(line("arrived", n + 0.9, **told, num_examples=1, loss=1.0))
            if client == 1:
                lines.append(line("dropped", n + 0.9, task=3 * n + 1, reason="too late"))
        own = {"tasks": [3 * n], "staleness": [2], "weights": [1.0]}
        lines.append(line("aggregated", n + 0.9, version=n + 1, **own))
    ledger = ledger_of(tmp_path, lines)
    by_staleness = timeline(ledger)
    stale, unused = (np.array(trace["z"], float) for trace in by_staleness.data)
    assert not np.isnan(stale[0]).any()
    assert np.isnan(stale[1:]).all()
    assert np.isnan(unused[0]).all()
    assert (unused[1] == 1).all()
    assert np.isnan(unused[2][:84]).all()
    assert (unused[2][85:] == 1).all()
    assert by_staleness.data[1]["text"][1][0] == "dropped"
    assert "Grey: at work" in by_staleness.words
    assert "1,600 aggregated with staleness 2; 1,600 dropped; 100 failed" in by_staleness.words
    check(by_staleness)
    by_outcome = timeline(ledger, colour="outcome")
    (trace,) = by_outcome.data
    assert trace["colorbar"]["ticktext"] == ["aggregated", "dropped", "failed"]
    cells = np.array(trace["z"], float)
    assert (cells[0] == 0).all()
    assert (cells[1] == 1).all()
    assert np.isnan(cells[2][0])
    assert cells[2][-1] == 2
    check(by_outcome)


def test_a_timeline_says_whose_tasks_it_shows(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    assert "4 tasks of the 3 clients that ever worked" in timeline(ledger).words
    some = timeline(ledger, first=1).words
    assert "of 2 of the 3 clients that ever worked, after the first, from" in some
    some = timeline(ledger, num=2).words
    assert "of the first 2 of the 3 clients that ever worked, from" in some
    assert "1 waiting; 1 failed" in timeline(ledger).words


def test_pieces_in_which_nobody_worked_stay_empty(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)  # odd instants, far behind which sums of them are rounded
    starts, end = np.cumsum(rng.uniform(10.0, 30.0, 1600)), 1e6 / 3
    lines: list[Line] = []
    for n, at in enumerate(starts.tolist()):
        told = {"task": n, "client": n % 100, "version": n}
        lines.append(line("started", at, **told))
        lines.append(line("arrived", at + 7.3, **told, num_examples=1, loss=1.0, latency_s=7.3))
        own = {"tasks": [n], "staleness": [80], "weights": [1.0]}
        lines.append(line("aggregated", at + 7.3, version=n + 1, **own))
    lines.append(line("evaluated", end, version=1, accuracy=0.5))
    found = timeline(ledger_of(tmp_path, lines), num=100).data[0]["z"]
    edges = np.linspace(0.0, end, 91)
    for client, row in enumerate(found):
        own = starts[client::100]
        for value, since, until in zip(row, edges[:-1], edges[1:], strict=True):
            assert (value is not None) == bool(np.any((own < until) & (own + 7.3 > since)))
            assert value is None or value == pytest.approx(80, rel=1e-3)


def test_time_spent_in_pieces() -> None:
    # Tasks 0-3 and 2-10 in the pieces 0-4, 4-8, 8-12: 3 + 2, 4 and 2 seconds.
    edges = np.array([0.0, 4.0, 8.0, 12.0])
    found = spent(edges, np.array([0.0, 2.0]), np.array([3.0, 10.0]), np.ones(2))
    assert found.tolist() == [5.0, 4.0, 2.0]


def test_intervals(tmp_path: Path) -> None:
    figure = intervals(ledger_of(tmp_path))
    dots, limit = figure.data
    assert dots["customdata"] == [1, 2]  # versions
    assert (dots["x"], dots["y"]) == ([4.0, 6.0], [4.0, 2.0])
    assert (limit["x"], limit["y"]) == ([4.0, 6.0], [2.0, 2.0])
    assert limit["line"]["shape"] == "vh"  # each over the time before its version
    assert (dots["name"], limit["name"]) == ("interval", "the pacer's limit")
    plain = [{k: v for k, v in own.items() if k != "pace"} for own in HAND]
    figure = intervals(ledger_of(tmp_path, plain))
    assert len(figure.data) == 1
    assert figure.words.endswith("; the pacer has no limit in seconds.")  # it was asked
    plain = [own for own in plain if own["kind"] != "picked"]
    words = intervals(ledger_of(tmp_path / "plain", plain)).words
    assert words.endswith("; whether the pacer has a limit was not recorded.")


def test_a_version_may_come_later_than_the_pacer_s_limit(tmp_path: Path) -> None:
    words = intervals(ledger_of(tmp_path)).words
    due = "one is due once the pacer's limit, 2 s in the median, is over and there is an update."
    assert due in words
    assert words.endswith("while a slow client was at work it may have been longer.")
    told = [{**own, "pace": {"buffered": 4.0}} if "pace" in own else own for own in HAND]
    words = intervals(ledger_of(tmp_path / "buffered", told)).words
    assert words.endswith("; the pacer has no limit in seconds.")


def test_contributors(tmp_path: Path) -> None:
    figure = contributors(ledger_of(tmp_path))
    bars, low, high, median = figure.data
    assert (bars["x"], bars["y"]) == ([1, 2], [1.0, 1.0])
    assert low["y"] == high["y"] == median["y"] == [1.0, 0.5]
    assert figure.words.startswith("1 update makes a version on average, 1 at most")
    lines = [
        line("aggregated", n + 1.0, version=n + 1, tasks=[], staleness=[0, 0], weights=[0.2, None])
        for n in range(1000)
    ]
    figure = contributors(ledger_of(tmp_path, lines))
    assert "each bar is the mean of 7 versions" in figure.words  # 1000 versions in 150 bars at most
    bars, _, high, _ = figure.data
    assert (len(bars["x"]), set(bars["y"]), set(high["y"])) == (143, {2.0}, {0.2})
    assert "; their weights are 0.2;" in figure.words
    assert figure.layout["yaxis2"]["rangemode"] == "tozero"


def of_staleness(staleness: int) -> dict[str, Any]:
    return {"version": 1, "tasks": [], "staleness": [staleness], "weights": []}


def test_staleness(tmp_path: Path) -> None:
    figure = staleness(ledger_of(tmp_path))
    (bars,) = figure.data
    assert (bars["x"], bars["y"], bars["customdata"]) == ([0, 1], [50.0, 50.0], [1.0, 1.0])
    assert figure.layout["shapes"][0]["x0"] == 2.0
    assert "none beyond the bound 2" in figure.words
    assert figure.layout["xaxis"]["dtick"] == 1
    far = line("aggregated", 20.0, version=3, tasks=[], staleness=[10**12], weights=[])
    figure = staleness(ledger_of(tmp_path, [*HAND, far]))
    assert "1 beyond the bound 2" in figure.words
    check(figure)
    # One bar alone is as wide as a version, on an axis of some of them.
    one = staleness(ledger_of(tmp_path / "3", [line("aggregated", 1.0, **of_staleness(0))]))
    assert one.layout["xaxis"]["range"] == [-0.6, 4.6]
    assert one.layout["xaxis"]["dtick"] == 1
    one = staleness(ledger_of(tmp_path / "4", [line("aggregated", 1.0, **of_staleness(50))]))
    assert one.layout["xaxis"]["range"] == [-0.6, 50.6]
    assert "dtick" not in one.layout["xaxis"]
    at_it = line("aggregated", 20.0, version=3, tasks=[], staleness=[2], weights=[])
    assert "none beyond the bound 2" in staleness(ledger_of(tmp_path / "2", [*HAND, at_it])).words


def test_losses_and_credits(tmp_path: Path) -> None:
    figure = losses(ledger_of(tmp_path))
    told = {name: (dots["x"], dots["y"]) for name, dots in by_name(figure).items()}
    assert told["believed"] == ([0, 0], [2.0, 3.0])  # by the version they were trained from
    assert told["outlier"] == ([1], [9.0])
    assert told["credits left"] == ([1], [4])
    assert by_name(figure)["outlier"]["customdata"] == [7]  # whose it is
    least, most = figure.layout["yaxis2"]["range"]
    assert least < 0 < 4 < most  # a dot at no credits left would be drawn whole, too
    assert "does not find outliers by clusters of losses" in figure.words
    usual = [own for own in HAND if own["kind"] != "outlier"]
    assert "judge" not in losses(ledger_of(tmp_path / "usual", usual)).words


CLUSTERS = [
    '[judge]\npolicy = "clusters"\noutlier_window = 0\nradius = 0.5\n',
    "[protocols.pisces]\noutlier_window = 0\n",
]
# As runs have them, spelled out; and a judge of another kind, or none.
JUDGED = [
    'protocol = "pisces-paper"',
    'protocol = "pisces-paper"\n[protocols.pisces-paper]\noutlier_window = 2',
    'protocol = "pisces"\n[protocols.pisces]\nguard = "clusters"',
    'protocol = "pisces-artifact"\n[protocols.pisces-artifact]\nguard = true',
    'protocol = "fedavg"\n[judge]\npolicy = "clusters"\nradius = 0.2',
]
NOT_JUDGED = [
    'protocol = "pisces"',
    'protocol = "pisces-artifact"',
    'protocol = "pisces-paper"\n[judge]\npolicy = "learning"',
    'protocol = "fedavg"',
]


def spelled_out(text: str) -> tuple[str, Any]:
    """As a run's folder has it, and the judge that the run has."""
    found = config.check(tomllib.loads(f"{text}\n[clients]\nconcurrency = 6"))
    return config.to_toml(build.resolved(found)), build.policies_of(found).judge


@pytest.mark.parametrize("told", JUDGED)
def test_clusters_are_drawn_as_the_run_s_own_judge_sees_them(tmp_path: Path, told: str) -> None:
    text, own = spelled_out(told)
    found = judge_of(ledger_of(tmp_path, HAND, text))
    assert found is not None
    rng = np.random.default_rng(1)
    records = [(int(rng.integers(0, 12)), float(rng.gamma(2.0))) for _ in range(200)]
    seen = [own.clusters_of(records, version) for version in range(12)]
    assert any(seen)
    assert [found.clusters_of(records, version) for version in range(12)] == seen


@pytest.mark.parametrize("told", NOT_JUDGED)
def test_who_is_not_judged_by_clusters_has_none(tmp_path: Path, told: str) -> None:
    assert judge_of(ledger_of(tmp_path, HAND, spelled_out(told)[0])) is None


@pytest.mark.parametrize(
    "table",
    [
        *('radius = "far"', "radius = -1.0", "beauty = 1"),
        *(f"outlier_window = {window}" for window in ("1.5", "inf", "1_000_000_000_000")),
    ],
)
def test_of_a_judge_that_cannot_be_the_figure_says_so(tmp_path: Path, table: str) -> None:
    text = f'[clients]\nconcurrency = 4\n[judge]\npolicy = "clusters"\n{table}'
    figure = losses(ledger_of(tmp_path, HAND, text))
    assert "settings of the judge cannot be used" in figure.words
    check(figure)


def test_losses_that_are_too_many_to_draw_are_said_to_be_a_part(tmp_path: Path) -> None:
    def many(num: int, odd: int) -> str:
        lines: list[Line] = []
        for task in range(num):
            told = {"task": task, "client": 0, "version": 0}
            lines.append(line("started", 0.0, **told))
            lines.append(line("arrived", 1.0, **told, num_examples=1, loss=1.0 + task))
            if task < odd:
                lines.append(line("outlier", 1.0, client=0, task=task))
        return losses(ledger_of(tmp_path / f"{num}-{odd}", lines)).words

    assert "drawn" not in many(600, 0)
    assert "drawn" not in many(900, 300)
    # 100 stretches of 6 losses or 7 that only grow: of each its ends, which are its extremes.
    assert "601 losses (200 of them drawn), 301 in the median" in many(601, 0)
    assert "901 losses (500 of them drawn)" in many(901, 300)
    assert "301 outliers, the latest 300 of them drawn" in many(301, 301)


@pytest.mark.parametrize("judge", CLUSTERS)
def test_losses_with_the_clusters_that_dbscan_saw(tmp_path: Path, judge: str) -> None:
    # Ten clients tell 1.0 to 1.9, one tells 8: one cluster around the ten, and none at 8.
    lines: list[Line] = []
    for task, loss in enumerate([1.0 + n / 10 for n in range(10)] + [8.0]):
        told = {"task": task, "client": task, "version": 0}
        lines.append(line("started", 0.0, **told))
        lines.append(line("arrived", 1.0, **told, num_examples=1, loss=loss))
    config = 'protocol = "pisces"\n[clients]\nconcurrency = 4\n' + judge
    figure = losses(ledger_of(tmp_path, lines, config))
    band = next(trace for trace in figure.data if "DBSCAN" in trace["name"])
    low, high, _ = band["y"]
    assert low < 1.0
    assert 1.9 < high < 8.0
    assert len(band["y"]) == 3
    assert "clusters of 1 version" in figure.words


def test_a_cluster_reaches_below_zero_but_on_a_logarithmic_axis(tmp_path: Path) -> None:
    config = '[clients]\nconcurrency = 4\n[judge]\npolicy = "clusters"\nradius = 3.0'

    def drawn(name: str, *furthest: float) -> Figure:
        lines: list[Line] = []
        for task, loss in enumerate((1.0, 1.1, 1.2, 1.3, *furthest)):
            told = {"task": task, "client": task, "version": 0}
            lines.append(line("started", 0.0, **told))
            lines.append(line("arrived", 1.0, **told, num_examples=1, loss=loss))
        return losses(ledger_of(tmp_path / name, lines, config))

    linear, logarithmic = drawn("near"), drawn("far", 1e5)
    assert linear.data[0]["y"][:2] == [-2.0, 4.3]
    assert logarithmic.data[0]["y"][:2] == [1.0, 4.3]  # to the least loss
    assert logarithmic.layout["yaxis"]["exponentformat"] == "e"  # not 100µ, nor raised


@pytest.mark.parametrize("radius", ["inf", "1e308"])
def test_a_cluster_without_end_is_a_figure(tmp_path: Path, radius: str) -> None:
    lines: list[Line] = []
    for task in range(9):
        told = {"task": task, "client": task, "version": 0}
        lines.append(line("started", 0.0, **told))
        lines.append(line("arrived", 1.0, **told, num_examples=1, loss=1.0 + task))
    judge = f'[judge]\npolicy = "clusters"\nradius = {radius}'
    check(bounded(losses(ledger_of(tmp_path, lines, "[clients]\nconcurrency = 4\n" + judge))))


@pytest.mark.filterwarnings("error")
def test_the_median_of_large_losses_is_one_of_them(tmp_path: Path) -> None:
    lines = [
        {**one, "loss": 1e308 if number % 2 else 1.5e308} if one["kind"] == "arrived" else one
        for number, one in enumerate(HAND)
    ]
    told = [one["loss"] for one in lines if one["kind"] == "arrived"]
    words = losses(ledger_of(tmp_path, lines)).words
    assert f", {2 * np.median([loss / 2 for loss in told]):.4g} in the median" in words
    assert middle([1e308, 1.5e308]) == 1.25e308
    assert middle([1.0, 2.0, math.inf]) == 2.0


def test_names_out_of_logs_are_never_markup(tmp_path: Path) -> None:
    name = '<a href="https://x">y</a>'
    ledger = ledger_of(tmp_path, HAND, CONFIG.replace('"pisces"', json.dumps(name), 1))
    (tmp_path / "clients.jsonl").write_text(json.dumps({"client": 7, "name": name}) + "\n")
    for draw in OF_ONE.values():
        figure = draw(ledger)
        text = json.dumps([figure.data, figure.layout])
        assert "<a " not in text
    assert "&lt;a " in json.dumps(timeline(ledger).layout)


# --- several runs ---------------------------------------------------------------------------------


def runs_of(tmp_path: Path) -> list[Ledger]:
    """Times to 0.5: 10 and 20 with pisces, 30 with fedbuff, whose second run never gets there."""
    ledgers = []
    for protocol, seed, reached in (
        *(("pisces", 1, 10.0), ("pisces", 2, 20.0)),
        *(("fedbuff", 1, 30.0), ("fedbuff", 2, None)),
    ):
        lines = [line("evaluated", 0.0, version=0, accuracy=0.1)]
        if reached is not None:
            lines.append(line("evaluated", reached, version=1, accuracy=0.6))
        lines.append(line("stopped", 100.0, reason="time"))
        folder = write(
            tmp_path / f"{protocol}-{seed}", lines, f'protocol="{protocol}"\nseed={seed}'
        )
        ledgers.append(Ledger(folder))
        ledgers[-1].read()
    return ledgers


def test_comparisons_by_hand(tmp_path: Path) -> None:
    ledgers = runs_of(tmp_path)
    figure = compare_curves(read(ledgers), HALF)
    assert [trace["showlegend"] for trace in figure.data] == [True, False, True, False]
    assert "pisces: accuracy 0.6 in the median, 2 of 2 at the target 0.5" in figure.words
    check(figure)
    figure = compare_times(read(ledgers), HALF)
    bar, dots, beyond, others = figure.data
    assert (bar["x"], dots["x"]) == ([15.0], [10.0, 20.0])
    # One at 30 s, the other later than 100 s: later than 65 s in the median.
    assert (beyond["x"], others["x"]) == ([65.0], [30.0, 100.0])
    assert others["marker"]["symbol"] == ["circle", "triangle-right-open"]
    assert "fedbuff: reached by 1 of 2" in figure.words
    check(figure)
    # 30 / 10 = 3 with seed 1, and more than 100 / 20 = 5 with seed 2: at least 4 in the median.
    figure = compare_speedups(read(ledgers), HALF)
    (dot,) = figure.data
    assert (dot["x"], dot["marker"]["symbol"]) == ([4.0], "triangle-right")
    assert "pisces over fedbuff: >= 4.00x" in figure.words
    check(figure)


def test_a_run_without_the_target_is_drawn_where_it_ended_itself(tmp_path: Path) -> None:
    ledgers = []
    for seed, end in ((1, 50.0), (2, 80.0)):
        lines = [line("evaluated", 0.0, version=0, accuracy=0.1), line("stopped", end, reason="x")]
        ledgers.append(ledger_of(tmp_path / str(seed), lines, f'protocol="a"\nseed={seed}'))
    bar, dots = compare_times(read(ledgers), HALF).data
    # Later than 50 s and later than 80 s: in the median later than 65 s, and no more is sure.
    assert (bar["x"], dots["x"]) == ([65.0], [50.0, 80.0])


def test_locks_are_taken_in_one_order(tmp_path: Path) -> None:
    ledgers, taken = [Ledger(tmp_path / name) for name in "abcd"], []

    class Lock:
        def __init__(self, number: int) -> None:
            self.number = number

        def __enter__(self) -> None:
            taken.append(self.number)

        def __exit__(self, *_: object) -> None: ...

    for number, ledger in enumerate(ledgers):
        ledger.lock = Lock(number)  # type: ignore[assignment]
    for order in (ledgers, ledgers[::-1]):
        with held(order):
            pass
    assert taken[:4] == taken[4:]


def test_medians_of_many_curves_by_hand(tmp_path: Path) -> None:
    figure = median_curves(read(runs_of(tmp_path)), HALF)
    # pisces comes to 0.6 at 10 s and at 20 s: from 10 to 20 s the median is that of 0.1 and 0.6.
    # fedbuff comes to 0.6 at 30 s, or never: it is drawn as long as half of its runs go on.
    times = [[0.0, 10.0, 20.0]] * 3 + [[0.0, 30.0]] * 3
    assert [trace["x"] for trace in figure.data] == times
    low, high, median, *others = (trace["y"] for trace in figure.data)
    assert (low, high) == ([0.1, 0.1, 0.6], [0.1, 0.6, 0.6])
    assert median == pytest.approx([0.1, 0.35, 0.6])
    low, high, median = others
    assert (low, high) == ([0.1, 0.1], [0.1, 0.6])
    assert median == pytest.approx([0.1, 0.35])
    assert [trace.get("name") for trace in figure.data[2::3]] == ["pisces", "fedbuff"]
    assert figure.layout["shapes"][0]["y0"] == 0.5
    check(figure)
    assert "No run was evaluated yet." in median_curves(read([ledger_of(tmp_path, [])]), HALF).words
    assert "choose some" in median_curves([], HALF).words


def test_speedups_are_those_of_the_comparison(tmp_path: Path) -> None:
    ledgers = runs_of(tmp_path)
    rows = compare([ledger.run for ledger in ledgers], 0.5)
    (dot,), (row,) = compare_speedups(read(ledgers), HALF).data, rows[1:]
    found = row.speedup
    assert found is not None
    assert dot["x"] == [found.least]
    assert dot["error_x"]["arrayminus"] == [found.least - found.min]
    assert f"{found.num} pairs" in dot["hovertemplate"]


def test_comparisons_that_cannot_be_made_say_why(tmp_path: Path) -> None:
    ledgers = runs_of(tmp_path)
    assert "have no target in common" in compare_times(read(ledgers), Goal("accuracy")).words
    assert "two protocols" in compare_speedups(read(ledgers[:2]), HALF).words
    (tmp_path / "again").mkdir()
    for name in ("events.jsonl", "config.toml"):
        (tmp_path / "again" / name).write_bytes((ledgers[0].path / name).read_bytes())
    again = Ledger(tmp_path / "again")
    again.read()
    assert "one run per seed" in compare_speedups(read([*ledgers, again]), HALF).words


def test_whole_runs_of_any_protocol_can_be_drawn(tmp_path: Path) -> None:
    ledgers = []
    for protocol in ("pisces", "fedavg", "fedbuff"):
        world = World(odd_every=5, credits=2)
        lines = simulate(protocol, world, decisions=True)
        ledgers.append(ledger_of(tmp_path / protocol, lines, f'protocol = "{protocol}"\nseed = 1'))
        for draw in OF_ONE.values():
            check(draw(ledgers[-1]))
    several: list[Callable[..., Any]] = [compare_curves, median_curves]
    for draw in [*several, compare_times, compare_speedups]:
        check(draw(read(ledgers), Goal.watched(ledgers, target=0.005)))


def test_half_a_log_can_be_drawn(tmp_path: Path) -> None:
    text = b"".join(map(encode, HAND))
    for num in range(0, len(text), 97):
        folder = tmp_path / str(num)
        write(folder, [])
        (folder / "events.jsonl").write_bytes(text[:num])
        ledger = Ledger(folder)
        ledger.read()
        for draw in OF_ONE.values():
            check(draw(ledger))


# --- numbers that nobody can draw -----------------------------------------------------------------


def with_large(value: float) -> list[Line]:
    """The log by hand, with such a number in place of some metrics, losses, weights and times."""
    changed = {
        "evaluated": {"accuracy": value},
        "arrived": {"loss": value, "loss_rms": value, "loss_left": value},
        "aggregated": {"weights": [value]},
        "left": {"at": value},
    }
    return [{**own, **(changed.get(own["kind"], {}) if own["at"] > 4.0 else {})} for own in HAND]


def all_numbers(value: Any) -> list[float]:
    if isinstance(value, bool | str) or value is None:
        return []
    if isinstance(value, int | float):
        return [abs(value)]
    parts = value.values() if isinstance(value, Mapping) else value
    return [number for part in parts for number in all_numbers(part)]


@pytest.mark.parametrize("value", [1e300, -1e300, 1.7e308])
def test_what_is_too_large_is_not_drawn_and_told(tmp_path: Path, value: float) -> None:
    config = CONFIG.replace("target = 0.5", "target = 1.75e308")  # which is not reached
    ledger = ledger_of(tmp_path, with_large(value), config)
    whole = curve(ledger, Goal.watched([ledger]))
    figure = bounded(whole)
    assert max(all_numbers(whole.data)) == abs(value)
    assert max(all_numbers([figure.data, figure.layout])) <= 1e100
    assert figure.words == f"{whole.words} 1 number beyond 1e+100 cannot be drawn."
    assert figure.data[0]["y"] == [0.1, 0.4, None]
    assert not figure.layout["shapes"], "a target out of sight"
    for make in (timeline, intervals, contributors, staleness, losses):
        figure = bounded(make(ledger))
        assert max(all_numbers([figure.data, figure.layout])) <= 1e100, make
        json.dumps([figure.data, figure.layout], allow_nan=False)


@pytest.mark.parametrize(
    ("value", "is_told"), [(0.6, False), (1e9, False), (1e15, True), (1e90, True)]
)
def test_axes_of_large_numbers_have_no_superscripts(
    tmp_path: Path, value: float, is_told: bool
) -> None:
    lines = [{**own, "accuracy": value} if own["kind"] == "evaluated" else own for own in HAND]
    whole = curve(ledger_of(tmp_path, lines), HALF)
    figure = bounded(whole)
    assert (figure.layout["yaxis"].get("exponentformat") == "e") is is_told
    assert "exponentformat" not in figure.layout["xaxis"]
    assert (figure.words, figure.data) == (whole.words, whole.data)


# --- colours --------------------------------------------------------------------------------------


def on_dark() -> dict[str, str]:
    return dict(re.findall(r'"(#[0-9A-F]{6})": "(#[0-9A-F]{6})"', LOOK.read_text()))


def light_of(colour: str) -> float:
    """How bright a colour is, as WCAG counts it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_what_is_otherwise_in_the_dark_are_colours_of_ours() -> None:
    other = on_dark()
    assert BLUE in other
    assert other.keys() <= {*COLOURS, *SCALE}
    assert not set(COLOURS) & set(other.values())


def test_the_stalest_are_what_is_seen_best_on_a_dark_page(tmp_path: Path) -> None:
    (bars,) = (t for t in timeline(ledger_of(tmp_path)).data if t["name"] == "aggregated")
    assert [colour for _, colour in bars["marker"]["colorscale"]] == list(SCALE)
    lights = [light_of(on_dark()[colour]) for colour in SCALE]
    assert lights == sorted(lights)
    report = re.findall(r"--(?:paper|card): (#[0-9a-f]{6})", LOOK.with_name("page.css").read_text())
    live = (Path(dashboard.__file__).parent / "static/page.css").read_text()
    (card,) = re.findall(r"--card: light-dark\(#[0-9a-f]{6}, (#[0-9a-f]{6})\)", live)
    for paper in (*report[2:], card):
        assert (lights[0] + 0.05) / (light_of(paper) + 0.05) >= 2


def test_a_run_that_ended_as_it_began_has_no_axis_of_nothing(tmp_path: Path) -> None:
    lines = [
        line("joined", 0.0, client=0, num_examples=10),
        line("started", 0.0, task=0, client=0, version=0),
    ]
    figure = timeline(ledger_of(tmp_path, [*lines, line("stopped", 0.0, reason="interrupted")]))
    assert "range" not in figure.layout["xaxis"]

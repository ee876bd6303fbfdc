"""Pictures: what is in them, and that they land in a file."""

import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from pisces.errors import ConfigError, RunError
from pisces.record.reader import Run
from pisces.report.band import band
from pisces.report.goal import Goal
from pisces.report.printed.gallery import Material, drawn
from pisces.report.printed.paper import save
from pisces.report.printed.share import picture
from pisces.report.printed.sheets import at_most_one
from pisces.report.styles import COLOURS, styles_of

MakeRun = Callable[..., Run]

LINES = [
    {"kind": "joined", "at": 0.0, "client": 0, "num_examples": 10},
    {"kind": "joined", "at": 0.0, "client": 1, "num_examples": 20},
    {"kind": "started", "at": 0.0, "task": 0, "client": 1, "version": 0},
    {"kind": "aggregated", "at": 1.0, "version": 1, "tasks": [0, 1], "staleness": [0, 3]},
    {"kind": "aggregated", "at": 2.0, "version": 2, "tasks": [2, 3], "staleness": [1, 0]},
]


@pytest.fixture
def runs(make_run: MakeRun) -> list[Run]:
    return [
        make_run("pisces", 1, {20.0: 0.5, 40.0: 0.9}, lines=LINES),
        make_run("pisces", 2, {20.0: 0.6, 60.0: 0.9}, lines=LINES),
        make_run("oort", 1, {20.0: 0.3, 90.0: 0.7}, lines=LINES),
        make_run("fedavg", 1, {}),
    ]


def draw(name: str, runs: list[Run], path: Path, target: float | None = None) -> bool:
    """As beside the runs; False where there is nothing to draw."""
    figure = drawn(name, Material(runs, Goal("accuracy", target)))
    if figure is not None:
        save(figure, path)
    return figure is not None


def words(path: Path) -> list[str]:
    """The texts in an SVG, which keeps each as a comment beside its shapes."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(), re.DOTALL)


def test_a_band_holds_values_until_the_next() -> None:
    one = np.array([1.0, 3.0]), np.array([0.1, 0.5])
    two = np.array([2.0, 3.0, 4.0]), np.array([0.2, 0.4, 0.8])
    three = np.array([1.0, 4.0]), np.array([0.3, 0.3])
    grid, low, middle, high = band([one, two, three])
    # From 2 on all have a value: (.1 .2 .3), (.5 .4 .3), and at 4 the first has ended: (.5 .8 .3)
    assert grid.tolist() == [2.0, 3.0, 4.0]
    assert low.tolist() == [0.1, 0.3, 0.3]
    assert middle.tolist() == [0.2, 0.4, 0.5]
    assert high.tolist() == [0.3, 0.5, 0.8]


def test_a_band_may_end_where_its_curves_do() -> None:
    one = np.array([1.0, 2.0]), np.array([0.1, 0.5])
    two = np.array([1.0, 3.0]), np.array([0.3, 0.9])
    grid, low, middle, high = band([one, two], hold=False)
    # At 3 the first has ended, and the second is all there is.
    assert grid.tolist() == [1.0, 2.0, 3.0]
    assert low.tolist() == [0.1, 0.3, 0.9]
    assert middle.tolist() == [0.2, 0.4, 0.9]
    assert high.tolist() == [0.3, 0.5, 0.9]


def test_a_band_ends_where_fewer_than_half_of_its_curves_go_on() -> None:
    ends = (1.0, 2.0, 4.0)
    curves = [(np.array([0.0, end]), np.array([0.1, 0.1 * end])) for end in ends]
    grid, _, middle, _ = band(curves)
    # Beyond 2 only the last of three goes on; until there the first keeps its 0.1.
    assert grid.tolist() == [0.0, 1.0, 2.0]
    assert middle.tolist() == [0.1, 0.1, 0.1]
    assert band(curves[1:])[0].tolist() == [0.0, 2.0, 4.0]  # one of two is half of them


def test_a_protocol_has_its_colour_in_whatever_company() -> None:
    alone, later = styles_of(["fedbuff"]), styles_of(["other", "pisces", "fedbuff"])
    assert alone["fedbuff"] == later["fedbuff"]
    assert later["pisces"].colour == COLOURS[0]
    assert later["other"].colour == COLOURS[4]  # the first that is no main protocol's
    with_owner = styles_of(["other", "pisces-paper"])
    assert with_owner["pisces-paper"].colour == COLOURS[4]
    assert with_owner["other"].colour == COLOURS[5]


def test_colours_are_used_up_before_one_comes_again() -> None:
    names = ["pisces", "fedbuff", *(f"v{number}" for number in range(13))]
    given = list(styles_of(names).values())
    assert {style.colour for style in given[:12]} == set(COLOURS)
    assert len(set(given)) == 15  # those that share a colour have other dashes


@pytest.mark.parametrize(("metric", "top"), [("accuracy", 1.0), ("loss", 1.2)])
def test_no_accuracy_is_beyond_one(metric: str, top: float) -> None:
    axes = Figure().subplots()
    axes.set_ylim(0.5, 1.2)
    at_most_one(axes, metric)
    assert axes.get_ylim() == (0.5, top)


def test_a_band_of_nothing_is_empty() -> None:
    assert [len(part) for part in band([])] == [0, 0, 0, 0]


def test_accuracy_names_every_protocol_and_its_time(runs: list[Run], tmp_path: Path) -> None:
    draw("curve", runs, tmp_path / "plot.svg", 0.8)
    shown = words(tmp_path / "plot.svg")
    assert "pisces: 50 s" in shown  # of 40 and 60
    assert "oort: reached by 0 of 1" in shown
    assert "fedavg: reached by 0 of 1" in shown  # never evaluated, and still not left out
    assert "time (s)" in shown
    assert "median over seeds, as long as half of them go on; shaded: least to greatest" in shown


def test_accuracy_of_which_some_reached_the_target(make_run: MakeRun, tmp_path: Path) -> None:
    times = [10.0, 20.0, None]
    runs = [make_run("pisces", s, {t or 50.0: 0.9 if t else 0.1}) for s, t in enumerate(times)]
    draw("curve", runs, tmp_path / "plot.svg", 0.8)
    assert "pisces: 20 s (reached by 2 of 3)" in words(tmp_path / "plot.svg")


def test_the_mark_of_a_target_met_at_the_very_end_is_whole(make_run: MakeRun) -> None:
    some = [make_run("pisces", 1, {10.0: 0.1, 20.0: 0.9})]
    figure = drawn("curve", Material(some, Goal("accuracy", 0.8)))
    assert figure is not None
    axes = figure.axes[0]
    (mark,) = (line for line in axes.lines if line.get_marker() == "o")
    assert list(mark.get_xdata()) == [axes.get_xlim()[1]]
    assert not mark.get_clip_on()


def test_accuracy_without_a_target_or_seeds(runs: list[Run], tmp_path: Path) -> None:
    draw("curve", runs[:1], tmp_path / "plot.svg")
    shown = words(tmp_path / "plot.svg")
    assert "pisces" in shown
    assert not any("median" in text or "target" in text for text in shown)


def test_many_protocols_are_not_shaded(make_run: MakeRun, tmp_path: Path) -> None:
    for num, told in ((7, "shaded: least to greatest"), (8, "half of them go on")):
        some = [make_run(f"{i} of {num}", s, {20.0: 0.5}) for i in range(num) for s in (1, 2)]
        draw("curve", some, tmp_path / f"{num}.svg")
        assert any(text.endswith(told) for text in words(tmp_path / f"{num}.svg"))


def test_times_to_target_begin_with_the_quickest(make_run: MakeRun, tmp_path: Path) -> None:
    # Medians 50, 60 and two that are not known: of these, one was met once.
    path, times = tmp_path / "times.svg", {"late": (50, 60, 70), "soon": (40, 50, 90)}
    some = [make_run(n, s, {float(t): 0.9}) for n, at in times.items() for s, t in enumerate(at)]
    some += [make_run("once", s, {30.0: top}) for s, top in enumerate((0.9, 0.1, 0.1))]
    some += [make_run("never", s, {20.0: 0.1}) for s in range(3)]
    draw("times", some, path, 0.9)
    told = words(path)
    assert "time to accuracy 0.9 (s)" in told
    names = [text for text in told if text in {*times, "once", "never"}]
    assert names == ["soon", "late", "once", "never"]


@pytest.mark.parametrize(
    ("best", "told"),
    [
        ((0.9, 0.9), "bar: median; dot: a seed"),
        ((0.9, 0.1), "bar: median; dot: a seed; triangle: ended without it"),
        ((0.1, 0.1), "bar: median; triangle: ended without it"),
    ],
)
def test_only_marks_that_are_there_are_explained(
    make_run: MakeRun, tmp_path: Path, best: tuple[float, float], told: str
) -> None:
    some = [make_run("pisces", seed, {20.0: top}) for seed, top in enumerate(best)]
    draw("times", some, tmp_path / "times.svg", 0.8)
    assert told in words(tmp_path / "times.svg")


def test_a_median_that_is_not_known_is_drawn_as_far_as_it_is_sure(make_run: MakeRun) -> None:
    # Later than 50 s and later than 80 s: in the median later than 65 s, and no more is sure.
    some = [make_run("never", seed, {1.0: 0.1}, end=end) for seed, end in ((1, 50.0), (2, 80.0))]
    figure = drawn("times", Material(some, Goal("accuracy", 0.9)))
    assert figure is not None
    (bar,) = figure.axes[0].patches
    assert (bar.get_width(), bar.get_hatch()) == (65.0, "///")


def test_a_long_name_stays_on_the_sheet(make_run: MakeRun, tmp_path: Path) -> None:
    name = "a-protocol-of-which-the-name-is-rather-long"
    draw("curve", [make_run(name, 1, {1.0: 0.5})], tmp_path / "plot.svg", 0.4)
    assert f"{name}: 1 s" in words(tmp_path / "plot.svg")


def test_png_has_150_dots_per_inch(runs: list[Run], tmp_path: Path) -> None:
    draw("curve", runs, tmp_path / "deep" / "plot.PNG", 0.8)
    data = (tmp_path / "deep" / "plot.PNG").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", data[16:20]) == (1050,)  # 7 inches


def test_the_same_runs_give_the_same_picture(runs: list[Run], tmp_path: Path) -> None:
    for kind in ("png", "svg", "pdf"):
        one, two = tmp_path / f"one.{kind}", tmp_path / f"two.{kind}"
        for path in (one, two):
            draw("curve", runs, path, 0.8)
        assert one.read_bytes() == two.read_bytes()


def test_nothing_evaluated_is_no_picture(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run("fedavg", 1, {}), make_run("fedavg", 2, {5.0: None})]
    assert not draw("curve", runs, tmp_path / "plot.png", 0.8)
    assert not (tmp_path / "plot.png").exists()


def test_dollars_are_no_formulas(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("a$_b$", 1, {1.0: 0.5}, lines=LINES)
    for name in ("curve", "staleness", "involvement"):
        draw(name, [run], tmp_path / "plot.svg")
        assert any(text.startswith("a$_b$") for text in words(tmp_path / "plot.svg"))


def test_staleness_says_mean_and_maximum(runs: list[Run], tmp_path: Path) -> None:
    draw("staleness", runs, tmp_path / "plot.svg")
    shown = words(tmp_path / "plot.svg")
    assert "mean 1.0, max 3" in shown  # (0 + 3 + 1 + 0) / 4
    assert "no updates" in shown
    assert "staleness (versions)" in shown


def test_what_was_never_stale_is_a_bar_and_no_slab(make_run: MakeRun) -> None:
    fresh = [{**LINES[0], "staleness": [0, 0]}]
    figure = drawn(
        "staleness", Material([make_run("fedavg", 1, {}, lines=fresh)], Goal("accuracy"))
    )
    assert figure is not None
    assert figure.axes[0].get_xlim() == (-0.6, 4.6)


def test_wide_staleness_is_drawn_in_few_bars(make_run: MakeRun, tmp_path: Path) -> None:
    wide = {"kind": "aggregated", "at": 1.0, "version": 1, "tasks": [], "staleness": [0, 399]}
    draw("staleness", [make_run("pisces", 1, {}, lines=[wide])], tmp_path / "plot.svg")
    # 400 values in 40 bars of ten; each bar is a clipped shape.
    bars = re.findall(
        r'<g id="patch_\d+">\s*<path[^>]*clip-path', (tmp_path / "plot.svg").read_text()
    )
    assert len(bars) == 40


def test_involvement_has_a_panel_per_protocol(runs: list[Run], tmp_path: Path) -> None:
    draw("involvement", runs, tmp_path / "plot.svg")
    shown = words(tmp_path / "plot.svg")
    assert {"pisces", "oort", "fedavg", "times picked"} <= set(shown)


def test_panels_that_do_not_fill_the_last_row(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run(f"p{number}", 1, {}, lines=LINES) for number in range(5)]
    draw("involvement", runs, tmp_path / "plot.svg")
    assert {f"p{number}" for number in range(5)} <= set(words(tmp_path / "plot.svg"))


@pytest.mark.parametrize("name", ["curve", "staleness", "involvement"])
def test_errors_say_what_to_do(name: str, runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.png or \.svg or \.pdf, not 'plot.jpg'"):
        picture(runs, name, tmp_path / "plot.jpg")
    with pytest.raises(RunError, match="no runs to draw"):
        picture([], name, tmp_path / "plot.png")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot write .*choose another"):
        picture(runs, name, tmp_path / "file" / "plot.png")


def test_looking_at_runs_loads_neither_torch_nor_global_plot_state() -> None:
    code = (
        "import sys, pisces.report.printed.plots, pisces.report.table; "
        "assert not {'torch', 'matplotlib.pyplot'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""Pictures by name, in print, and the numbers behind them."""

from __future__ import annotations

import csv
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledgers import write

from pisces.errors import ConfigError, RunError
from pisces.record.reader import Run
from pisces.report.goal import Goal
from pisces.report.printed.gallery import PICTURES, Material, chosen, drawn
from pisces.report.printed.paper import Paper, in_bytes
from pisces.report.printed.share import picture, share, table, width_of, write_csv

MakeRun = Callable[..., Run]

# Two clients; 0 trains twice, the second time an outlier; 1 is called off once, then is cut off.
LINES: list[dict[str, Any]] = [
    {"kind": "joined", "at": 0.0, "client": 0, "num_examples": 10},
    {"kind": "joined", "at": 0.0, "client": 1, "num_examples": 30},
    {
        "kind": "picked",
        "at": 0.0,
        "version": 0,
        "slots": 1,
        "num_free": 2,
        "clients": [0],
        "terms": ["utility", "score"],
        "scores": [[2.0, 1.5]],
        "others": [1],
        "other_scores": [[None, None]],
    },
    {"kind": "started", "at": 0.0, "task": 0, "client": 0, "version": 0},
    {"kind": "started", "at": 1.0, "task": 1, "client": 1, "version": 0},
    {"kind": "arrived", "at": 4.0, "task": 0, "client": 0, "version": 0, "loss": 0.5},
    {
        "kind": "aggregated",
        "at": 5.0,
        "version": 1,
        "tasks": [0],
        "staleness": [0],
        "weights": [1.0],
        "pace": {"slowest_s": 8.0, "limit_s": 4.0, "bound": 2},
    },
    {"kind": "started", "at": 5.0, "task": 2, "client": 0, "version": 1},
    {"kind": "failed", "at": 6.0, "task": 1, "client": 1, "reason": "called off: too slow"},
    {"kind": "started", "at": 7.0, "task": 3, "client": 1, "version": 1},
    {"kind": "arrived", "at": 9.0, "task": 2, "client": 0, "version": 1, "loss": 7.25},
    {"kind": "outlier", "at": 9.0, "client": 0, "task": 2, "credits": 0},
    {"kind": "distrusted", "at": 9.0, "client": 0},
    {"kind": "aggregated", "at": 11.5, "version": 2, "tasks": [2], "staleness": [3]},
    {"kind": "failed", "at": 12.0, "task": 3, "client": 1, "reason": "the run stopped"},
]
ALONE = ("timeline", "intervals", "losses", "scores")


@pytest.fixture
def run(make_run: MakeRun) -> Run:
    return make_run("pisces", 1, {0.0: 0.1, 10.0: 0.8}, lines=LINES, end=12.0)


def goal(target: float | None = None) -> Goal:
    return Goal("accuracy", target)


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text().splitlines()))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("curve", [["protocol", "seed", "time_s", "accuracy"], ["pisces", "1", "0.0", "0.1"]]),
        (
            "times",
            [
                ["protocol", "seed", "time_to_target_s", "ended_at"],
                ["pisces", "1", "10.0", "12.0"],
            ],
        ),
        (
            "staleness",
            [
                ["protocol", "staleness", "num_updates"],
                ["pisces", "0", "1"],
                ["pisces", "3", "1"],
            ],
        ),
        (
            "involvement",
            [
                ["protocol", "seed", "client", "num_examples", "num_picked"],
                ["pisces", "1", "0", "10", "2"],
                ["pisces", "1", "1", "30", "2"],
            ],
        ),
        (
            "timeline",
            [
                *[["task", "client", "version", "started_at", "ended_at", "outcome", "staleness"]],
                ["0", "0", "0", "0.0", "4.0", "aggregated", "0"],
                ["1", "1", "0", "1.0", "6.0", "called off", ""],
                ["2", "0", "1", "5.0", "9.0", "aggregated", "3"],
                ["3", "1", "1", "7.0", "12.0", "cut off", ""],
            ],
        ),
        (
            "intervals",
            [
                ["version", "at", "interval_s", "limit_s", "num_updates"],
                ["1", "5.0", "5.0", "4.0", "1"],
                ["2", "11.5", "6.5", "", "1"],
            ],
        ),
        (
            "losses",
            [
                ["at", "client", "task", "version", "loss", "is_outlier"],
                ["4.0", "0", "0", "0", "0.5", "0"],
                ["9.0", "0", "2", "1", "7.25", "1"],
            ],
        ),
        (
            "scores",
            [
                ["at", "client", "was_picked", "utility", "score"],
                ["0.0", "0", "1", "2.0", "1.5"],
                ["0.0", "1", "0", "", ""],
            ],
        ),
    ],
)
def test_the_numbers_behind(run: Run, tmp_path: Path, name: str, told: list[list[str]]) -> None:
    table([run], name, tmp_path / "it.csv", goal(0.8))
    found = rows(tmp_path / "it.csv")
    assert found[: len(told)] == told
    assert len(found) == (3 if name == "curve" else len(told))


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_the_same_run_gives_the_same_picture(run: Run, kind: str) -> None:
    paper = Paper(3.3)
    first, second = (drawn("timeline", Material([run], goal()), paper) for _ in range(2))
    assert first is not None
    assert second is not None
    assert in_bytes(first, kind, paper) == in_bytes(second, kind, paper)


@pytest.mark.parametrize(("name", "width"), [("curve", 7.0), *((n, 3.3) for n in PICTURES)])
def test_pictures_are_as_wide_as_asked(run: Run, tmp_path: Path, name: str, width: float) -> None:
    picture([run], name, tmp_path / "it.png", goal(0.8), width=width)
    data = (tmp_path / "it.png").read_bytes()
    assert struct.unpack(">I", data[16:20]) == (round(300 * width),)


def test_a_pdf_has_its_fonts_and_no_date(run: Run, tmp_path: Path) -> None:
    picture([run], "staleness", tmp_path / "it.pdf")
    data = (tmp_path / "it.pdf").read_bytes()
    assert b"/FontFile2" in data  # a TrueType font, embedded
    assert b"/Type3" not in data
    assert b"CreationDate" not in data


def test_an_svg_says_its_words_as_shapes(run: Run, tmp_path: Path) -> None:
    picture([run], "timeline", tmp_path / "it.svg")
    text = (tmp_path / "it.svg").read_text()
    assert "<text" not in text
    assert {"client", "staleness (versions)"} <= set(re.findall(r"<!-- (.*?) -->", text))
    assert "<dc:date>" not in text


def test_of_many_clients_the_busiest_are_drawn(make_run: MakeRun) -> None:
    lines = [
        {"kind": "started", "at": float(n), "task": n, "client": n % 50, "version": 0}
        for n in range(60)  # clients 0 to 9 twice, the others once
    ]
    figure = drawn(
        "timeline", Material([make_run("pisces", 1, {}, lines=lines, reason=None)], goal())
    )
    assert figure is not None
    labels = [int(label.get_text()) for label in figure.axes[0].get_yticklabels()]
    assert labels == list(range(0, 40, 3))
    assert figure.axes[0].get_title() == "the busiest 40 of 50 clients"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([{"kind": "sampled", "at": 0.0, "share": 0.5}, *LINES], "is sampled"),
        ([*LINES[:3], {"kind": "started", "at": 1.0}, *LINES[3:]], "line 4: not an event"),
    ],
)
def test_a_log_that_cannot_be_counted_is_not_drawn(
    tmp_path: Path, lines: list[dict[str, Any]], words: str
) -> None:
    material = Material([Run(write(tmp_path, lines))], goal())
    for name in ALONE:
        with pytest.raises(RunError, match=words):
            drawn(name, material)


# --- which, and where -----------------------------------------------------------------------------


def test_all_that_can_be_drawn(run: Run, make_run: MakeRun) -> None:
    other = make_run("fedavg", 1, {0.0: 0.1}, lines=LINES)
    assert set(chosen([], Material([run], goal(0.8)))) == set(PICTURES)
    assert set(chosen([], Material([run, other], goal(0.8)))) == set(PICTURES) - set(ALONE)
    assert set(chosen([], Material([run, other], goal()))) == set(PICTURES) - {*ALONE, "times"}


def test_runs_cut_short_are_drawn_only_alone(run: Run, make_run: MakeRun) -> None:
    cut = make_run("fedavg", 1, {0.0: 0.1}, reason=None)
    (drawn_one,) = Material([run, cut], goal(0.8)).runs
    assert drawn_one.path == run.path
    only = Material([cut, make_run("fedavg", 2, {0.0: 0.1}, reason=None)], goal(0.8))
    assert len(only.runs) == 2
    assert only.goal == goal()
    assert Material([cut], goal(0.8)).goal == goal(0.8)


def test_wrong_names_list_the_known(run: Run, make_run: MakeRun) -> None:
    with pytest.raises(ConfigError, match="no figure is called 'pie': choose from curve, times"):
        chosen(["pie"], Material([run], goal()))
    other = make_run("fedavg", 1, {})
    with pytest.raises(RunError, match="'timeline': of one run only, and there are 2"):
        chosen(["timeline"], Material([run, other], goal()))
    with pytest.raises(RunError, match="'times': these runs have no target in common"):
        chosen(["times"], Material([run], goal()))


def test_what_is_empty_is_left_out_and_said(make_run: MakeRun, tmp_path: Path) -> None:
    bare = Material([make_run("pisces", 1, {}, lines=LINES[:2])], goal())
    names = ["curve", "timeline", "intervals", "losses", "scores"]
    for kind in ("png", "csv"):
        written, left_out = share(bare, kind, tmp_path / kind, [], 3.3)
        assert "curve: nothing was evaluated" in left_out
        told = [name for words in left_out for name in words.split(": ")[0].split(", ")]
        assert set(names) <= set(told)
        assert sorted([*told, *(path.stem for path in written)]) == sorted(PICTURES)


def test_where_a_figure_that_was_named_has_nothing_to_show_none_is_written(
    make_run: MakeRun, tmp_path: Path
) -> None:
    bare = Material([make_run("pisces", 1, {}, lines=LINES[:2])], goal())
    for kind in ("png", "csv"):
        with pytest.raises(RunError, match="'curve': nothing was evaluated; choose another"):
            share(bare, kind, tmp_path / kind, ["involvement", "curve"], 3.3)
        assert not (tmp_path / kind).exists()
    with pytest.raises(RunError, match="'scores': no scores were written down"):
        picture(bare.all_runs, "scores", tmp_path / "it.pdf")


def test_what_cannot_be_drawn_of_several_is_said(
    run: Run, make_run: MakeRun, tmp_path: Path
) -> None:
    both = Material([run, make_run("fedavg", 1, {0.0: 0.1}, lines=LINES)], goal())
    written, left_out = share(both, "csv", tmp_path, [], 7.0)
    assert {path.stem for path in written} == {"curve", "staleness", "involvement"}
    assert left_out == [
        "times: these runs have no target in common: say one with --target 0.9",
        "timeline, intervals, losses, scores: of one run only, and there are 2: give one run "
        "folder",
    ]


def test_files_are_not_written_to_stdout(run: Run) -> None:
    with pytest.raises(ConfigError, match="--csv writes files, and not to stdout"):
        share(Material([run], goal()), "csv", Path("-"), ["curve"], 3.3)


@pytest.mark.parametrize(("sizes", "is_row"), [((100, 100, 103), True), ((10, 50, 90), False)])
def test_clients_of_one_size_stand_in_a_row(
    make_run: MakeRun, sizes: tuple[int, ...], is_row: bool
) -> None:
    lines = [
        {"kind": "joined", "at": 0.0, "client": c, "num_examples": n} for c, n in enumerate(sizes)
    ]
    started = [
        {"kind": "started", "at": 1.0, "task": task, "client": client, "version": 0}
        for task, client in enumerate((2, 2, 2, 1))
    ]
    lines += [*started, {"kind": "distrusted", "at": 2.0, "client": 1}]
    figure = drawn("involvement", Material([make_run("pisces", 1, {}, lines=lines)], goal()))
    assert figure is not None
    dots, crosses = figure.axes[0].lines
    assert list(dots.get_xdata()) == ([1, 3] if is_row else [90, 10])
    assert list(dots.get_ydata()) == [3, 0]
    assert list(crosses.get_xdata()) == [2 if is_row else 50]


def test_places(run: Run, tmp_path: Path) -> None:
    material = Material([run], goal())
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder.pdf").mkdir()
    for place, names, words in (
        ("file", ["curve"], "is a file: give --pdf a folder, or a name in .pdf"),
        ("folder.pdf", ["curve"], "is a folder"),
        ("it.pdf", [], "can hold one figure: say which with --figure"),
        ("it.pdf", ["curve", "losses"], "can hold one figure"),
        ("it.png", ["curve"], "--pdf writes .pdf files, not 'it.png'"),
        ("it.JPG", ["curve"], "--pdf writes .pdf files, not 'it.JPG'"),
    ):
        with pytest.raises((ConfigError, RunError), match=re.escape(words)):
            share(material, "pdf", tmp_path / place, names, 7.0)
    assert (tmp_path / "file").read_text() == "mine"
    (written,), _ = share(material, "pdf", tmp_path / "deep" / "it.pdf", ["losses"], 7.0)
    assert written.read_bytes().startswith(b"%PDF")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["it.pdf"]  # nothing half written
    (written,), _ = share(material, "pdf", tmp_path / "v1.2", ["losses"], 7.0)  # no kind of file
    assert written == tmp_path / "v1.2" / "losses.pdf"


def test_widths() -> None:
    assert [width_of(text) for text in ("column", "page", "5.5", 4)] == [3.3, 7.0, 5.5, 4.0]
    for wrong in ("huge", "nan", "0.1", "-3", "1e9"):
        with pytest.raises(ConfigError, match=f"not {wrong!r}"):
            width_of(wrong)


def test_names_are_no_formulas_to_a_spreadsheet(tmp_path: Path) -> None:
    write_csv(tmp_path / "it.csv", {"=name": ["=1+1", "a,b", 'c"'], "value": [-1.5, None, True]})
    assert rows(tmp_path / "it.csv") == [
        ["'=name", "value"],
        ["'=1+1", "-1.5"],
        ["a,b", ""],
        ['c"', "1"],
    ]


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_whatever_a_spreadsheet_takes_for_a_formula_is_text(tmp_path: Path, first: str) -> None:
    write_csv(tmp_path / "it.csv", {"a": [f"{first}1"]})
    with (tmp_path / "it.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["a"], [f"'{first}1".replace("\r", " ")]]

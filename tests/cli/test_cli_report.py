"""`pisces report` and `pisces runs`: run folders of every kind, in tables and plots."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import tomlkit
from matplotlib.image import imread

from pisces.record import follower, reader
from pisces.record.writer import open_file

PLOTS = ("accuracy.png", "staleness.png", "involvement.png")


def assert_drawn(picture: Path) -> None:
    """A picture of a decent size with something on it."""
    pixels = imread(picture)[..., :3]
    assert min(pixels.shape[:2]) > 300
    assert pixels.std() > 0.05  # a blank sheet has 0
    colours = np.unique(pixels.reshape(-1, 3), axis=0)
    assert len(colours) > 20


@pytest.fixture
def killed(finished: Path) -> Path:
    """A run that was killed in the middle of a line."""
    folder = Path("runs/killed")
    shutil.copytree(finished, folder)
    for name in ("summary.json", "model.safetensors"):
        (folder / name).unlink()
    events = folder / "events.jsonl"
    events.write_bytes(events.read_bytes()[: events.stat().st_size * 2 // 3])
    assert not events.read_bytes().endswith(b"\n")
    (folder / "config.toml").write_text(
        (folder / "config.toml").read_text().replace("seed = 1", "seed = 2")
    )
    return folder


def test_one_run(pisces: Callable[..., Any], finished: Path) -> None:
    ran = pisces("report", finished)
    assert (ran.code, ran.err) == (0, "")
    assert "time, at 60 s" in ran.out
    assert "time to accuracy 0.99" in ran.out
    for name in PLOTS:
        assert f"plot: {finished / name}" in ran.out
        assert_drawn(finished / name)


def test_quiet_is_the_table_alone(pisces: Callable[..., Any], finished: Path) -> None:
    ran = pisces("report", finished, "-q")
    assert "plot:" not in ran.out
    assert "time to accuracy 0.99" in ran.out
    assert (finished / "accuracy.png").exists()


def test_one_run_as_json(pisces: Callable[..., Any], finished: Path) -> None:
    found = json.loads(pisces("report", finished, "--json", "--out", "plots").out)
    summary = json.loads((finished / "summary.json").read_text())
    assert found == {**summary, "plots": [f"plots/{name}" for name in PLOTS]}
    assert not (finished / "accuracy.png").exists()


def test_a_killed_run(pisces: Callable[..., Any], killed: Path) -> None:
    ran = pisces("report", killed, "--out", "plots")
    assert ran.code == 0
    assert "not finished, at" in ran.out
    for name in PLOTS:
        assert_drawn(Path("plots", name))


def test_a_run_that_has_just_begun(pisces: Callable[..., Any], killed: Path) -> None:
    (killed / "events.jsonl").write_bytes(b"")
    ran = pisces("report", killed)
    assert ran.code == 0
    assert "not finished, at 0 s" in ran.out


def test_a_folder_of_runs(pisces: Callable[..., Any], finished: Path, killed: Path) -> None:
    # The killed run has no summary; its config says which target it had. It is only counted.
    ran = pisces("report", "runs", "--json")
    assert ran.code == 0
    (row,) = json.loads(ran.out)["rows"]
    assert (row["protocol"], row["seeds"], row["num_cut_short"]) == ("pisces", [1], 1)
    assert_drawn(Path("runs/accuracy.png"))


def test_nothing_but_runs_cut_short(pisces: Callable[..., Any], killed: Path) -> None:
    for run in (killed, Path("runs/first")):
        for name in ("summary.json", "model.safetensors"):
            (run / name).unlink(missing_ok=True)
    lines = Path("runs/first/events.jsonl").read_text().splitlines(keepends=True)
    Path("runs/first/events.jsonl").write_text("".join(lines[:-1]))
    ran = pisces("report", "runs")
    assert ran.code == 0
    assert "2 cut short" in ran.out
    assert_drawn(Path("runs/accuracy.png"))


def test_several_folders_with_a_target_and_a_reference(
    pisces: Callable[..., Any], small: str, finished: Path
) -> None:
    assert pisces("run", small, "--set", "protocol=fedavg", "--out", "other", "-q").code == 0
    args = ("report", finished, "other", "--target", 0.05, "--out", "plots")
    ran = pisces(*args, "--reference", "fedavg")
    assert ran.code == 0
    rows = [line for line in ran.out.splitlines() if line[1:7] in ("pisces", "fedavg")]
    # Both meet 0.05 at the start, so they are equally fast.
    assert [line.split()[0] for line in rows] == ["fedavg", "pisces"]
    assert "1.00x" in rows[1]
    assert pisces(*args, "--reference", "oort").code == 2


def test_runs_without_a_common_target_need_one(
    pisces: Callable[..., Any], small: str, finished: Path
) -> None:
    args = ("--seed", 2, "--set", "stop.target=0.98", "-q")
    assert pisces("run", small, *args, "--out", "runs/second").code == 0
    ran = pisces("report", "runs")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: these runs have no target in common: say one with --target 0.9\n"
    assert pisces("report", "runs", "--target", 0.5).code == 0


def test_the_metric_is_the_runs_own(pisces: Callable[..., Any], small: str) -> None:
    args = ("--set", "stop.metric=loss", "--set", "stop.target=2.0", "-q")
    assert pisces("run", small, *args, "--out", "r").code == 0
    ran = pisces("report", "r")
    assert ran.code == 0
    assert "time to loss 2" in ran.out
    assert_drawn(Path("r/loss.png"))


def test_a_metric_nobody_measured(pisces: Callable[..., Any], finished: Path) -> None:
    ran = pisces("report", finished, "--metric", "f1")
    assert ran.code == 2
    assert "has no metric 'f1': choose one of accuracy, loss" in ran.err
    assert ran.err.count("\n") == 1


def test_plots_that_cannot_be_written(pisces: Callable[..., Any], finished: Path) -> None:
    ran = pisces("report", finished, "--out", finished / "config.toml")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("more", [(), ("--json",), ("--pdf", "p", "--csv", "c")])
@pytest.mark.parametrize("num", [1, 2])
def test_each_log_is_read_once(
    pisces: Callable[..., Any],
    finished: Path,
    killed: Path,
    monkeypatch: pytest.MonkeyPatch,
    num: int,
    more: tuple[str, ...],
) -> None:
    opened: Counter[str] = Counter()

    def counting(path: Path) -> BinaryIO:
        opened[path.parent.name] += path.name == "events.jsonl"
        return open_file(path)

    for module in (reader, follower):
        monkeypatch.setattr(module, "open_file", counting)
    if more and find_spec("plotly"):
        more = (*more, "--html", "page.html")
    ran = pisces("report", *(finished, killed)[:num], "--target", 0.5, "--out", "plots", *more)
    assert ran.code == 0, ran.err
    assert_drawn(Path("plots/accuracy.png"))
    assert opened == dict.fromkeys(["first", "killed"][:num], 1)


def damage(run: Path) -> None:
    """A line without what its kind must have, in the middle."""
    lines = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    lines.insert(len(lines) // 2, b'{"kind":"started","at":1.0}\n')
    (run / "events.jsonl").write_bytes(b"".join(lines))


@pytest.mark.parametrize("has_summary", [True, False])
@pytest.mark.parametrize(
    "options", [(), ("--csv", "out"), ("--csv", "out", "--html", "it.html"), ("--json",)]
)
def test_a_damaged_log_is_refused_before_anything_is_written(
    pisces: Callable[..., Any], finished: Path, has_summary: bool, options: tuple[str, ...]
) -> None:
    damage(finished)
    if not has_summary:
        (finished / "summary.json").unlink()
    before = sorted(Path().rglob("*"))
    ran = pisces("report", finished, *options)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {finished}/events.jsonl, line ")
    assert 'not an event but b\'{"kind":"started"' in ran.err
    assert ran.err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("has_summary", [True, False])
def test_a_page_shows_of_a_damaged_log_what_can_be_read(
    pisces: Callable[..., Any], finished: Path, has_summary: bool
) -> None:
    pytest.importorskip("plotly")
    damage(finished)
    if not has_summary:
        (finished / "summary.json").unlink()
    ran = pisces("report", finished, "--html", "it.html")
    assert (ran.code, ran.out) == (0, "file: it.html\n")
    assert ran.err.startswith(f"no table: {finished}/events.jsonl, line ")
    assert "The log could not be read to its end: " in Path("it.html").read_text()


# --- for others -----------------------------------------------------------------------------------


def test_figures_and_numbers_in_folders(pisces: Callable[..., Any], finished: Path) -> None:
    before = sorted(finished.iterdir())
    args = ("--svg", "out", "--csv", "out", "--figure", "curve", "--figure", "losses")
    ran = pisces("report", finished, *args)
    assert (ran.code, ran.err) == (0, "")
    assert "time to accuracy 0.99" in ran.out
    names = ("curve.svg", "losses.svg", "curve.csv", "losses.csv")
    assert [line for line in ran.out.splitlines() if line.startswith("file: ")] == [
        f"file: out/{name}" for name in names
    ]
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(names)
    assert sorted(finished.iterdir()) == before  # nothing beside the run
    again = pisces("report", finished, *args, "--out", "plots", "--json")
    assert json.loads(again.out)["files"] == [f"out/{name}" for name in names]
    assert (Path("plots") / "accuracy.png").exists()


def test_a_single_figure_in_a_file(pisces: Callable[..., Any], finished: Path) -> None:
    args = ("--figure", "timeline", "--width", "column", "-q")
    ran = pisces("report", finished, "--pdf", "one.pdf", *args)
    assert (ran.code, ran.err) == (0, "")
    assert "file:" not in ran.out
    assert Path("one.pdf").read_bytes().startswith(b"%PDF")


def test_a_page(pisces: Callable[..., Any], finished: Path, killed: Path) -> None:
    pytest.importorskip("plotly")
    ran = pisces("report", finished, "--html", "one.html")
    assert (ran.code, ran.err) == (0, "")
    assert "file: one.html" in ran.out
    text = Path("one.html").read_text()
    assert "pisces (seed 1) trained the model mlp on digits over 12 clients" in text
    assert pisces("report", "runs", "--html", "one.html").code == 0
    assert "1 run (1 of pisces) was interrupted or is not over" in Path("one.html").read_text()
    ran = pisces("report", finished, "--html", ".")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: cannot write .: it is a folder; give --html a file\n"


def test_files_of_runs_without_a_common_target(
    pisces: Callable[..., Any], small: str, finished: Path
) -> None:
    args = ("--seed", 2, "--set", "stop.target=0.98", "-q")
    assert pisces("run", small, *args, "--out", "runs/second").code == 0
    ran = pisces("report", "runs", "--csv", "all")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "file: all/curve.csv")
    assert "no table: these runs have no target in common" in ran.err
    assert "left out: timeline, intervals, losses, scores: of one run only" in ran.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--png", "f", "--figure", "pie"), "no figure is called 'pie': choose from curve, "),
        (("--png", "f.png"), "f.png can hold one figure: say which with --figure"),
        (("--figure", "curve"), "--figure goes with --png, --svg, --pdf, --csv: give one of them"),
        (("--csv", "f", "--width", "page"), "--width goes with --png, --svg, --pdf"),
        (("--png", "f", "--width", "wide"), "a figure is as wide as a column"),
        (("--png", "small.toml"), "small.toml is a file: give --png a folder"),
    ],
)
def test_options_that_make_no_sense(
    pisces: Callable[..., Any], small: str, finished: Path, args: tuple[str, ...], words: str
) -> None:
    ran = pisces("report", finished, *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {words}")
    assert ran.err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["runs", "small.toml"]


def test_nothing_evaluated_is_said(pisces: Callable[..., Any], finished: Path) -> None:
    lines = (finished / "events.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"evaluated"' not in line]
    (finished / "events.jsonl").write_text("".join(kept))
    (finished / "summary.json").unlink()
    ran = pisces("report", finished)
    assert ran.code == 0
    assert ran.err == "no picture of accuracy over time: nothing was evaluated\n"
    assert "accuracy.png" not in ran.out
    assert not (finished / "accuracy.png").exists()


# --- runs -----------------------------------------------------------------------------------------


def test_runs_are_listed(pisces: Callable[..., Any], finished: Path, killed: Path) -> None:
    ran = pisces("runs")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    heading, _, first, second = (line.split() for line in ran.out.splitlines() if line.strip())
    assert heading[:3] == ["folder", "in", "runs"]
    assert (first[0], first[1], first[2], first[-1]) == ("first", "pisces", "1", "time")
    assert (second[0], second[-2:]) == ("killed", ["not", "over"])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("{}-seed1", ["{}-seed1"]),  # which says protocol and seed: they have no columns
        ("a/b-seed1", ["a/b-seed1", "{}", "1"]),
    ],
)
def test_names_of_runs_stay_whole(
    pisces: Callable[..., Any], finished: Path, name: str, shown: list[str]
) -> None:
    protocol = "pisces-without-adaptive-pace"
    made = Path("out") / name.format(protocol)
    shutil.copytree(finished, made)
    config = (made / "config.toml").read_text()
    (made / "config.toml").write_text(config.replace('"pisces"', f'"{protocol}"', 1))
    lines = pisces("runs", "out").out.splitlines()
    assert max(map(len, lines)) <= 80
    cells = [cell.format(protocol) for cell in shown]
    assert [line.split()[: len(cells)] for line in lines if "seed1" in line] == [cells]


def test_names_that_are_too_long_are_broken_after_a_hyphen(
    pisces: Callable[..., Any], finished: Path
) -> None:
    shutil.copytree(finished, "out/first-of-many/" + "-".join(["words"] * 12))
    lines = pisces("runs", "out").out.splitlines()
    firsts = [line.split()[0] for line in lines[2:] if line.strip()]
    assert firsts == [
        "first-of-many/",
        *["words-words-words-words-"] * 2,
        *["words-words-words-words"],
    ]


def test_runs_as_json(pisces: Callable[..., Any], finished: Path) -> None:
    (found,) = json.loads(pisces("runs", "runs", "--json").out)
    assert (found["folder"], found["protocol"], found["reason"]) == ("runs/first", "pisces", "time")


def test_an_empty_folder(pisces: Callable[..., Any], folder: Path) -> None:
    (folder / "runs").mkdir()
    ran = pisces("runs")
    assert (ran.code, ran.out) == (0, "no runs below runs; make some: pisces demo\n")
    assert pisces("runs", "--json").out == "[]\n"


def test_a_run_that_stopped_at_its_target_is_not_held_to_more(
    pisces: Callable[..., Any], small: str
) -> None:
    args = ("--set", "stop.target=0.05", "-q", "--out", "r")
    assert pisces("run", small, *args).code == 0
    ran = pisces("report", "r", "--target", 0.5)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: r stopped once it had reached 0.05")


def test_runs_of_different_worlds_are_pointed_out(pisces: Callable[..., Any], small: str) -> None:
    for number, alpha in enumerate((0.5, 5.0)):
        args = ("--seed", number, "--set", f"data.alpha={alpha}", "--set", "stop.target=1.0")
        assert pisces("run", small, *args, "-q", "--out", f"runs/{number}").code == 0
    ran = pisces("report", "runs")
    assert ran.code == 0
    assert ran.err == "not the same world: runs/0 and runs/1 differ in data.alpha\n"


def test_of_different_worlds_the_dataset_and_the_model_come_first(
    pisces: Callable[..., Any], finished: Path
) -> None:
    shutil.copytree(finished, "runs/other")
    config = tomllib.loads((finished / "config.toml").read_text())
    config["clients"] |= {"count": 1000, "min_examples": 1000}
    config["data"] |= {"dataset": "unknown", "alpha": 1000.0}
    config["model"] |= {"name": "unknown"}
    Path("runs/other/config.toml").write_text(tomlkit.dumps(config))
    ran = pisces("report", "runs")
    assert "differ in data.dataset, model.name, clients.count and " in ran.err
    assert " more\n" in ran.err

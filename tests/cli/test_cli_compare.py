"""`pisces compare`: the same worlds for every protocol, whatever the number of workers."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pisces.cli.options import fresh_folder, names, numbers
from pisces.record.reader import Run

RUNS = ("fedbuff-seed1", "fedbuff-seed2", "pisces-seed1", "pisces-seed2")


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").open()]


def of_kind(run: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in events(run) if line["kind"] == kind]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One comparison by one worker, and again by two: filled by the first test."""
    return {"folder": tmp_path_factory.mktemp("compared")}


@pytest.fixture
def both(compared: dict[str, Any], pisces: Callable[..., Any], small: str) -> dict[str, Any]:
    folder = compared["folder"]
    if "one" not in compared:
        args = ("compare", small, "--protocols", "pisces,fedbuff", "--seeds", "1,2")
        args = (*args, "--target", 0.95)
        compared["one"] = pisces(*args, "--jobs", 1, "--out", folder / "one", "--json")
        compared["two"] = pisces(*args, "--jobs", 2, "--out", folder / "two")
    return compared


def test_one_worker_or_two_make_the_same_runs(both: dict[str, Any]) -> None:
    assert (both["one"].code, both["two"].code) == (0, 0)
    for run in RUNS:
        for name in ("config.toml", "events.jsonl", "model.safetensors"):
            one, two = (both["folder"] / jobs / run / name for jobs in ("one", "two"))
            assert one.read_bytes() == two.read_bytes()


def test_protocols_meet_the_same_world(both: dict[str, Any]) -> None:
    for seed in (1, 2):
        mine, theirs = (
            both["folder"] / "one" / f"{protocol}-seed{seed}" for protocol in ("pisces", "fedbuff")
        )
        # Who has how much, what the first weights are worth, and how long a client takes.
        assert of_kind(mine, "joined") == of_kind(theirs, "joined")
        assert of_kind(mine, "evaluated")[0] == of_kind(theirs, "evaluated")[0]
        latencies = [
            {line["client"]: pytest.approx(line["latency_s"]) for line in of_kind(run, "arrived")}
            for run in (mine, theirs)
        ]
        shared = latencies[0].keys() & latencies[1].keys()
        assert len(shared) > 5
        assert all(latencies[0][client] == latencies[1][client].expected for client in shared)


def test_seeds_are_different_worlds(both: dict[str, Any]) -> None:
    one, two = (both["folder"] / "one" / f"pisces-seed{seed}" for seed in (1, 2))
    assert of_kind(one, "evaluated")[0] != of_kind(two, "evaluated")[0]


def test_rows_as_json_and_only_that(both: dict[str, Any]) -> None:
    found = json.loads(both["one"].out)
    lines = [json.loads(line) for line in both["one"].err.splitlines()]
    over = [line["run"] for line in lines if line["kind"] == "finished"]
    assert sorted(over) == [f"{p}-seed{seed}" for p in ("fedbuff", "pisces") for seed in (1, 2)]
    assert [row["protocol"] for row in found["rows"]] == ["pisces", "fedbuff"]
    assert [row["seeds"] for row in found["rows"]] == [[1, 2], [1, 2]]
    reference, other = found["rows"]
    assert (reference["num_pairs"], other["num_pairs"]) == (0, 2)
    times = [
        json.loads((both["folder"] / "one" / run / "summary.json").read_text())["versions"]
        for run in ("pisces-seed1", "pisces-seed2")
    ]
    assert reference["versions"] == sum(times) / 2
    assert all(Path(picture).exists() for picture in found["plots"])


def test_the_table_and_its_plots(both: dict[str, Any]) -> None:
    out = both["two"].out
    lines = both["two"].err.splitlines()  # nobody watches
    assert sum(": finished (" in line for line in lines) == 4
    assert all(line.isprintable() for line in lines)
    *_, picture = out.rstrip().splitlines()
    assert "speed-up" in out
    assert max(map(len, out.partition("plot:")[0].splitlines())) <= 80
    assert picture == f"plot: {both['folder'] / 'two' / 'involvement.png'}"


def test_the_folder_of_a_run_takes_no_others(pisces: Callable[..., Any], small: str) -> None:
    assert pisces("run", small, "--out", "first", "-q").code == 0
    ran = pisces("compare", small, "--target", 0.9, "--out", "first")
    assert ran.code == 2
    assert ran.err == "error: first is a run itself: choose another folder with --out\n"
    assert not [path for path in Path("first").iterdir() if path.is_dir() and "seed" in path.name]


def test_a_worker_that_raises_is_one_line(spawn: Callable[..., Any], small: str) -> None:
    def full_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    args = ("--seeds", 1, "--jobs", 1, "--out", "o", "-q")
    ran = spawn("compare", small, *args, preexec_fn=full_disk)
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("error: cannot write o/pisces-seed1/events.jsonl: File too large; make")
    assert not Path("o/fedbuff-seed1").exists()  # no more runs are begun


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1-3", [1, 2, 3]), ("4", [4]), ("1,2,7-9", [1, 2, 7, 8, 9]), (" 3, 1-4 ", [3, 1, 2, 4])],
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert numbers(text) == seeds


def test_names_lose_blanks_and_doubles() -> None:
    assert names(" pisces, fedbuff,,pisces ") == ["pisces", "fedbuff"]


def test_a_fresh_folder_is_not_there_yet(folder: Path) -> None:
    assert fresh_folder("a") == Path("runs/a")
    (folder / "runs" / "a").mkdir(parents=True)
    (folder / "runs" / "a-2").mkdir()
    assert fresh_folder("a") == Path("runs/a-3")


def test_a_target_of_ones_own_moves_the_runs_own(pisces: Callable[..., Any], small: str) -> None:
    # small.toml stops at its target, too early to tell anything about a higher one.
    args = ("--set", "stop.target=0.05", "--target", 0.999, "--protocols", "fedavg", "--seeds", 1)
    assert pisces("compare", small, *args, "--jobs", 1, "--out", "out", "-q").code == 0
    assert Run.open(Path("out/fedavg-seed1")).summary["target"] == 0.999
    assert Run.open(Path("out/fedavg-seed1")).summary["reason"] != "target"


def test_a_comparison_goes_on(pisces: Callable[..., Any], small: str) -> None:
    args = ("compare", small, "--protocols", "fedbuff,fedavg", "--jobs", 1, "--out", "o")
    args = (*args, "--set", "stop.versions=2", "--seeds")
    assert pisces(*args, "1").code == 0
    whole = Path("o/fedavg-seed1/events.jsonl").read_bytes()
    done = Path("o/fedbuff-seed1/events.jsonl")
    made_at = done.stat().st_mtime_ns
    Path("o/fedavg-seed1/summary.json").unlink()
    Path("o/fedavg-seed1/events.jsonl").write_bytes(whole[: len(whole) // 2])
    ran = pisces(*args, "1,2", "--json")
    assert ran.code == 0
    assert "1 of 4 runs are done; made again, for they were cut short: fedavg-seed1" in ran.err
    rows = json.loads(ran.out)["rows"]
    assert [(row["seeds"], row["num_cut_short"]) for row in rows] == [([1, 2], 0)] * 2
    assert done.stat().st_mtime_ns == made_at
    assert Path("o/fedavg-seed1/events.jsonl").read_bytes() == whole
    again = pisces(*args, "1,2", "--json")  # nothing is left but to show it
    assert json.loads(again.out)["rows"] == rows
    quiet = pisces(*args, "1,2", "-q")
    assert quiet.err == ""
    assert "plot:" not in quiet.out
    refused = pisces(*args, "1", "--set", "train.batch_size=4")
    assert refused.code == 2
    assert "o/fedbuff-seed1 was made with other settings: train.batch_size was 8" in refused.err

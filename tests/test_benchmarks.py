"""The benchmarks run, compare like with like, and never mistake a quick run for a real one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from pisces.errors import RunError
from pisces.models.lenet5 import lenet5

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
ROWS = [{"what": "a", "speed": 1234.5}, {"what": "b", "loss": 0.12345}]
has_mnist = Path(os.environ.get("PISCES_DATA", "."), "mnist", "mnist.npz").is_file()
needs_mnist = pytest.mark.skipif(not has_mnist, reason="PISCES_DATA names no folder with mnist")

pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="not in a source distribution")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """They import each other by their bare names, as scripts do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def run(script: str, *args: str, data: str | None = None) -> subprocess.CompletedProcess[str]:
    """As from a shell; `data` is another folder of datasets than ours."""
    command = [sys.executable, str(BENCHMARKS / script), *args]
    env = os.environ | ({"PISCES_DATA": data} if data else {})
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)


def to(folder: Path, *options: str) -> Namespace:
    """The options of a benchmark that saves there."""
    from results import parser

    return parser("Measures.", quick="less").parse_args(["--results", str(folder), *options])


# --- the same for everybody -----------------------------------------------------------------------


def test_the_peers_train_the_same_model() -> None:
    import task

    theirs, ours = task.lenet5(), lenet5((1, 28, 28), 10)
    assert [repr(layer) for layer in theirs] == [repr(layer) for layer in ours]
    shapes = [[tuple(p.shape) for p in model.parameters()] for model in (theirs, ours)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("epochs", [1, 5])
def test_the_peers_do_the_same_work(epochs: int) -> None:
    import run_pisces
    import task

    args = Namespace(cohort_size=20, epochs=epochs, workers=1, cohorts=3)
    its = run_pisces.settings(args)
    assert (its.data.size, its.train.epochs) == (task.SIZE, epochs)
    assert (its.train.batch_size, its.train.momentum) == (task.BATCH_SIZE, task.MOMENTUM)
    assert its.train.learning_rate == task.LEARNING_RATE
    assert (its.protocol, its.tick_s, its.latency.kind) == ("fedavg", 0.0, "constant")
    # Three cohorts and nothing else end it, also not the target of the paper.
    assert (its.stop.versions, its.stop.time_s, its.stop.target) == (3, float("inf"), None)


# --- results --------------------------------------------------------------------------------------


def test_results_are_for_programs_and_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from results import save

    path = save(to(tmp_path / "new"), "some", ROWS, "Some notes.")
    saved = json.loads(path.read_text("utf-8"))
    assert (saved["name"], saved["rows"], saved["notes"]) == ("some", ROWS, "Some notes.")
    assert saved["machine"]["cores"] >= 1
    assert saved["software"]["torch"] == torch.__version__
    # Columns as they turn up, four digits, a dash for nothing.
    assert (
        path.with_suffix(".md")
        .read_text("utf-8")
        .endswith(
            "Some notes.\n\n"
            "| what | speed | loss |\n| --- | --- | --- |\n| a | 1,234 | - |\n| b | - | 0.1235 |\n"
        )
    )
    assert "1,234" in capsys.readouterr().out


def test_nothing_measured_is_not_saved(tmp_path: Path) -> None:
    from results import save

    with pytest.raises(ValueError, match="nothing to save"):
        save(to(tmp_path), "some", [])
    assert list(tmp_path.iterdir()) == []


def test_rows_of_different_kinds_get_tables_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from results import save

    rows = [{"table": "x", "a": 1}, {"table": "y", "b": 2}, {"table": "x", "a": 3}]
    path = save(to(tmp_path), "some", rows, captions={"x": "What x is.", "y": "What y is."})
    assert json.loads(path.read_text("utf-8"))["rows"] == rows
    assert (
        path.with_suffix(".md")
        .read_text("utf-8")
        .endswith(
            "\n\n## x\n\nWhat x is.\n\n| a |\n| --- |\n| 1 |\n| 3 |\n"
            "\n## y\n\nWhat y is.\n\n| b |\n| --- |\n| 2 |\n"
        )
    )
    shown = capsys.readouterr().out
    assert "What x is." in shown
    assert "What y is." in shown


def test_a_quick_look_says_that_it_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from results import save

    path = save(to(tmp_path, "--quick"), "some", ROWS, "Some notes.")
    notes = "A quick look, not a measurement. Some notes."
    assert json.loads(path.read_text("utf-8"))["notes"] == notes
    assert notes in path.with_suffix(".md").read_text("utf-8")
    assert notes in capsys.readouterr().out


def test_rows_are_told_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    from results import collect

    def measure() -> Iterator[dict[str, Any]]:
        yield {"table": "loop", "num": 10, "seconds": 0.5}
        assert capsys.readouterr().out == "loop: num 10, seconds 0.5\n"
        yield {"what": "a step"}

    assert len(collect(measure())) == 2
    assert capsys.readouterr().out == "what a step\n"


@pytest.mark.parametrize(("load", "warned"), [(2.0, False), (2.1, True)])
def test_a_busy_machine_is_warned_of(
    load: float,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from results import warn_if_busy

    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 9.0, 9.0))
    warn_if_busy()
    assert ("the load average is 2.1 on 4 cores" in capsys.readouterr().err) is warned


@pytest.mark.parametrize(
    "command",
    [["paper_mnist.py"], ["comparison.py"], ["peers/compare.py", "--only", "pisces"]],
)
def test_without_data_it_says_so_in_a_line(command: list[str], tmp_path: Path) -> None:
    done = run(*command, "--quick", "--results", str(tmp_path / "new"), data=str(tmp_path))
    said = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert done.returncode == 1
    assert len(said) == 1, done.stderr
    assert "mnist.npz" in said[0]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_runs_at_a_time_are_a_number_of_them(
    jobs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import comparison

    monkeypatch.setattr(comparison, "measure", lambda *_: pytest.fail("it goes on"))
    monkeypatch.setattr(sys, "argv", ["comparison.py", "--quick", f"--jobs={jobs}"])
    with pytest.raises(SystemExit):
        comparison.main()
    said = capsys.readouterr().err
    assert "--jobs: " in said
    assert jobs in said


# --- peers without an environment -----------------------------------------------------------------


def environments(folder: Path, *names: str) -> None:
    for name in names:
        (folder / ".venvs" / name / "bin").mkdir(parents=True)
        (folder / ".venvs" / name / "bin" / "python").touch()


def test_without_any_peer_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import compare

    monkeypatch.setattr(compare, "HERE", tmp_path)
    monkeypatch.setattr(compare.prepare, "write", lambda _: pytest.fail("it goes on"))
    monkeypatch.setattr(sys, "argv", ["compare.py", "--results", str(tmp_path / "new")])
    with pytest.raises(SystemExit, match="no peer to compare with"):
        compare.main()
    assert capsys.readouterr().err.splitlines() == [
        f"{name} has no environment: run sh benchmarks/peers/make_envs.sh"
        for name in ("pfl", "flower", "appfl")
    ]
    assert not (tmp_path / "new").exists()


def test_a_peer_without_an_environment_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import compare

    monkeypatch.setattr(compare, "HERE", tmp_path)
    environments(tmp_path, "flower", "appfl")
    compare.check_environments(["pisces", "pfl", "flower", "appfl"])
    assert capsys.readouterr().err.count("\n") == 1
    # It is not even started: nothing here could run.
    pfl = compare.Contender("pfl", 2)
    seen = compare.Arena(tmp_path, []).in_turns([pfl], 1, [])
    assert compare.trouble(seen) == " Left out: pfl, 2 workers: has no environment."
    # Who asks for Pisces alone gets it.
    compare.check_environments(["pisces"])


def test_only_those_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import compare

    monkeypatch.setattr(sys, "argv", ["compare.py", "--only", "pisces,plf"])
    with pytest.raises(SystemExit):
        compare.options()
    assert "--only: nobody is called plf" in capsys.readouterr().err


@pytest.mark.parametrize("name", [[], ["--name", "mine"]])
def test_a_quick_run_never_takes_the_name_of_a_real_one(name: list[str]) -> None:
    from results import name_of, parser

    options = parser("Measures.", quick="less")
    real, quick = (options.parse_args([*name, *more]) for more in ([], ["--quick"]))
    assert name_of(real, "usual") == (name[1] if name else "usual")
    assert name_of(quick, "usual") == f"{name_of(real, 'usual')}-quick"


# --- the GPU's, without one -----------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so() -> None:
    done = run("gpu.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gpu.py needs a GPU, and torch finds none here\n"


def test_how_many_tests_passed_is_read_off_the_last_line() -> None:
    import gpu

    said = "....s.\nSKIPPED [1] tests/train/test_kernels.py:33: they run here\n"
    assert gpu.outcome(f"{said}54 passed, 1 skipped in 71.20s (0:01:11)\n") == (
        "54 passed, 1 skipped"
    )
    with pytest.raises(SystemExit, match="no test passed"):
        gpu.outcome(f"{said}1 skipped in 0.20s\n")


def test_failing_tests_are_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu

    monkeypatch.setattr(gpu, "TESTS", ["tests/test_that_is_not_there.py"])
    with pytest.raises(SystemExit, match="the tests fail"):
        gpu.checked()


def test_every_row_has_a_name_and_quick_runs_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu

    def whole_run(name: str, changes: list[str], time_s: float) -> dict[str, Any]:
        return {"what": name, "virtual_s": time_s}

    monkeypatch.setattr(gpu, "whole_run", whole_run)
    monkeypatch.setattr(gpu, "steps", lambda epochs: iter([{"what": f"{epochs} epochs"}]))
    monkeypatch.setattr(gpu, "large_model", lambda *args, **more: {"what": f"{args} {more}"})
    real, quick = list(gpu.measure(False)), list(gpu.measure(True))
    for rows in (real, quick):
        assert len({row["what"] for row in rows}) == len(rows) == 6 + 1 + 5
    assert real[0] == {"what": "LeNet-5, C = 20, 1015 s", "virtual_s": 1015.0}
    assert max(row.get("virtual_s", 0.0) for row in quick) == 400.0
    assert quick[6] != real[6]


def test_the_kernels_can_be_hidden_to_time_a_step_without_them() -> None:
    # In Triton's interpreter they would be used on a CPU too, and take minutes.
    code = "import gpu; print([gpu.step(w, 2, 1, 'cpu')['samples'] for w in ('patches', 'vmap')])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=BENCHMARKS,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout == "[1024, 1024]\n", done.stderr


# --- all of it, quickly ---------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "num_rows"),
    [
        pytest.param(["engine.py"], 2 * 3, id="engine"),
        pytest.param(["control.py"], 3 * 4 * 3 + 2 + 2 + 3 * 4 * 2, id="control"),
        pytest.param(["checkpoints.py"], 2, id="checkpoints"),
        pytest.param(["journal.py"], 1, id="journal"),
        pytest.param(["network.py"], 2 + 3 + 1, id="network"),
        pytest.param(["flower.py"], 2 + 1 + 1, id="flower"),
        pytest.param(["soak.py"], 20 + 1, id="soak"),
        pytest.param(["scale.py"], 3 + 8 + 2 * 2, id="scale"),
        pytest.param(["watching_index.py"], 2 + 15, id="watching"),
        pytest.param(["paper_mnist.py"], 4, id="paper", marks=needs_mnist),
        pytest.param(["comparison.py", "--jobs", "1"], 1, id="comparison", marks=needs_mnist),
        pytest.param(["peers/compare.py", "--only", "pisces"], 2, id="peers", marks=needs_mnist),
    ],
)
def test_a_benchmark_runs(command: list[str], num_rows: int, tmp_path: Path) -> None:
    done = run(*command, "--quick", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*-quick.json")
    assert len(json.loads(path.read_text("utf-8"))["rows"]) == num_rows


@pytest.mark.long
def test_what_a_cluster_costs_is_measured_and_weights_come_to_a_node_once(tmp_path: Path) -> None:
    import cluster

    if find_spec("ray") is None or cluster.sealed() is None:
        pytest.skip("needs ray, and a network of its own")
    done = run("cluster.py", "--quick", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*-quick.json")
    rows = json.loads(path.read_text("utf-8"))["rows"]
    assert Counter(row["table"] for row in rows) == {
        "jobs": 4,
        "trained": 1,
        "scaling": 4,
        "dispatch": 2,
        "bytes": 3,
        "start": 2,
    }
    moved = [row["weights_moved"] for row in rows if row["table"] == "bytes"]
    assert moved == pytest.approx([1.0] * 3, abs=0.1)


def test_ray_is_not_started_where_others_could_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import cluster

    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(RunError, match="no network of its own can be made here"):
        list(cluster.measured("jobs", [1]))


@pytest.mark.long
@needs_mnist
def test_an_idle_client_does_not_train(tmp_path: Path) -> None:
    import prepare

    prepare.write(tmp_path / "task.npz")
    work = ["--workers", "1", "--cohorts", "2", "--epochs", "0", "--clients", "1000"]
    done = run("peers/run_pisces.py", "--data", str(tmp_path / "task.npz"), *work)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["num_trainings"], said["num_samples"], len(said["cohorts_s"])) == (40, 0, 2)

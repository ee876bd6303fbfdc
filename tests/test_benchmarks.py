"""The benchmarks run, compare like with like, and never mistake a quick run for a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

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


def run(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / script), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


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

    path = save(tmp_path / "new", "some", ROWS, "Some notes.")
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
        save(tmp_path, "some", [])
    assert list(tmp_path.iterdir()) == []


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


def test_the_kernels_can_be_hidden_to_time_a_step_without_them() -> None:
    # In Triton's interpreter they would be used on a CPU too, and take minutes.
    code = "import gpu; print([gpu.step(w, 2, 'cpu', 1)['samples'] for w in ('patches', 'vmap')])"
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
        pytest.param(["paper_mnist.py"], 4, id="paper", marks=needs_mnist),
        pytest.param(["peers/compare.py", "--only", "pisces"], 2, id="peers", marks=needs_mnist),
    ],
)
def test_a_benchmark_runs(command: list[str], num_rows: int, tmp_path: Path) -> None:
    done = run(*command, "--quick", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    results = sorted(tmp_path.glob("*.json"), key=lambda path: len(path.name))
    assert all("-quick" in path.name for path in results)
    assert len(json.loads(results[0].read_text("utf-8"))["rows"]) == num_rows

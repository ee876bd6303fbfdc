"""Every example runs as it is, keeps the promise of its first line, and stays short."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
MAX_LINES = 100


def compares_protocols(out: str) -> None:
    rows = [line.split() for line in out.splitlines()]
    assert [row[0] for row in rows] == ["pisces", "fedbuff", "oort", "fedavg"]
    assert all("after" in row and "staleness" in row for row in rows)
    # Synchronous rounds have no stale updates, the others do.
    assert [int(row[-1]) > 0 for row in rows] == [True, True, False, False]


def learns_a_curve(out: str) -> None:
    *curve, end, guess = out.splitlines()
    values = [float(line.split()[-1]) for line in curve]
    assert values[0] < 0.1
    assert values[-1] > 0.7
    assert re.fullmatch(r"target after \d+ s and \d+ versions", end)
    mine, truth = map(float, re.findall(r"-?\d+\.\d+", guess))
    assert mine == pytest.approx(truth, abs=0.3)


def compares_selectors(out: str) -> None:
    first, second = out.splitlines()
    assert first.startswith("guided ")
    assert second.startswith("least picked ")
    assert all(float(line.split("accuracy ")[1].split()[0]) > 0.7 for line in (first, second))


def learns_a_line(out: str) -> None:
    line, ends = out.splitlines()
    slope, offset = map(float, re.findall(r"-?\d+\.\d+", line))
    assert (slope, offset) == pytest.approx((3, -1), abs=0.1)
    assert line.endswith("after 20 versions")
    assert ends == "clients ended with 0 0"


def tells_rings_apart(out: str) -> None:
    reached, ends = out.splitlines()
    assert float(reached.split()[1].rstrip(",")) >= 0.95
    assert reached.endswith("target")
    assert ends == "clients ended with 0 0"


PROMISES: dict[str, Callable[[str], None]] = {
    "01_compare.py": compares_protocols,
    "02_your_own_model_and_data.py": learns_a_curve,
    "03_your_own_selector.py": compares_selectors,
    "04_network_numpy.py": learns_a_line,
    "05_network_torch.py": tells_rings_apart,
}


def test_every_example_has_a_promise() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(PROMISES)


@pytest.mark.parametrize("name", PROMISES)
def test_an_example_keeps_its_promise(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=200,
    )
    assert (done.returncode, done.stderr) == (0, "")
    PROMISES[name](done.stdout)
    assert list(tmp_path.iterdir()) == []  # nothing is written that nobody asked for


@pytest.mark.parametrize("name", PROMISES)
def test_an_example_is_short_and_says_how_to_run_it(name: str) -> None:
    text = (EXAMPLES / name).read_text("utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert text.startswith(f'"""{name[:2]}: ')
    assert f"\npython examples/{name}\n" in text.split('"""')[1]

"""What tests measure is printed, whichever process measured it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TESTS = """
def test_one(record_property):
    record_property("told", "75 % accuracy: 8.1x")
    record_property("other", "nothing of it")

def test_two():
    pass
"""


def test_what_a_worker_measures_is_printed_once(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "telling", "--numprocesses", "1"]
    env = {**os.environ, "PYTHONPATH": str(HERE)}
    told = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.count("75 % accuracy: 8.1x") == 1
    assert "nothing of it" not in told.stdout


def test_here_it_is_asked_for() -> None:
    assert "telling import pytest_terminal_summary" in (HERE / "conftest.py").read_text()

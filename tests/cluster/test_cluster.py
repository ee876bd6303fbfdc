"""A real Ray cluster of several nodes: what happens there is in `inside_*.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from sealed import pytest_sealed

HERE = Path(__file__).parent


def test_training_and_whole_runs_on_a_cluster_of_two_nodes() -> None:
    said = pytest_sealed(HERE / "inside_two_nodes.py", timeout_s=300)
    assert "6 passed" in said, said


@pytest.mark.long
def test_nodes_that_die_and_join() -> None:
    said = pytest_sealed(HERE / "inside_changing_nodes.py", timeout_s=900)
    assert "6 passed" in said, said

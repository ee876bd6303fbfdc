"""Tests of a cluster run in a network of their own, with nothing but loopback: Ray listens on every
address a machine has. All that was started there ends with it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

SEALED = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
AS_ROOT = [*SEALED, "--user", "--map-root-user"]
WITH_LOOPBACK = ["sh", "-c", 'ip link set lo up && exec "$@"', "sealed"]


@cache
def _how() -> list[str] | None:
    """How to get there; as root, or as whoever may be root there."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return None
    for way in (SEALED, AS_ROOT):
        if not subprocess.run([*way, *WITH_LOOPBACK, "true"], capture_output=True).returncode:
            return way
    return None


def pytest_sealed(file: Path, timeout_s: float) -> str:
    """Run a file of tests there; what it printed, if all of it passed."""
    if find_spec("ray") is None:
        pytest.skip("ray is not installed")
    way = _how()
    if way is None:
        pytest.skip("no network of one's own can be made here")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    with tempfile.TemporaryDirectory(prefix="r") as folder:  # sockets want short paths
        places = [f"RAY_TMPDIR={folder}", f"TMPDIR={folder}"]
        at = ["env", "RAY_USAGE_STATS_ENABLED=0", "OMP_NUM_THREADS=1", *places]
        done = subprocess.run(
            [*way, *WITH_LOOPBACK, *at, *command, str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
    assert done.returncode == 0, done.stdout
    return done.stdout

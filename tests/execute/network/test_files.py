"""A crowd of connections leaves files for what else a server writes."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("resource")
SCRIPT = """
import resource, sys
soft, hard = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from pisces.execute.network.server.files import most_lines
print(most_lines(1000), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "found", "warned"),
    [
        (2000, 2000, "1000 2000", False),  # it fits
        (300, 2000, "1000 1256", False),  # and is made to fit: 1000 + 256
        (300, 900, "644 900", True),  # as far as that is allowed: 900 - 256
        (100, 200, "1 200", True),
    ],
)
def test_the_limit_is_raised_as_far_as_it_may_be(
    soft: int, hard: int, found: str, warned: bool
) -> None:
    told = [sys.executable, "-c", SCRIPT, str(soft), str(hard)]
    ran = subprocess.run(told, capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == found, ran.stderr
    assert ("raise the limit" in ran.stderr) is warned

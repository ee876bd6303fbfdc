"""Which hosts are this machine and nobody else."""

from __future__ import annotations

import pytest

from pisces.loopback import is_loopback


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "0:0:0:0:0:0:0:1"),
        *("::ffff:127.0.0.1", "[::FFFF:127.0.0.1]", "::ffff:7f00:1"),
    ],
)
def test_what_stays_on_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", "0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "::ffff:0.0.0.0", "*", "128", "[]"),
        *("localhost.example.org", "127.0.0.1.example.org", "127.0.0.1@example.org", "2130706433"),
    ],
)
def test_what_may_leave_it(host: str) -> None:
    assert not is_loopback(host)

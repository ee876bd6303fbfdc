"""HOST:PORT, as servers and clients are told it."""

from __future__ import annotations

import pytest

from pisces.execute.network.address import parsed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("fl.example.org:8440", ("fl.example.org", 8440)),
        ("[::1]:0", ("::1", 0)),
        ("9090", ("", 9090)),
        (":80", ("", 80)),
        ("a:65536", None),
        ("a:99999", None),
        ("a:http", None),
        ("a:", None),
        ("a:\u0663", None),  # a digit, but not one of ours
        ("", None),
    ],
)
def test_host_and_port(text: str, found: tuple[str, int] | None) -> None:
    assert parsed(text) == found

"""What tests measure is told at the end of a run of them, also by those in other processes.

What a worker of pytest-xdist prints nobody sees, so a test hands it over with its report:
`record_property("told", "so many times as soon")`.
"""

from __future__ import annotations

from typing import Any

TOLD = "told"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print it all."""
    reports = [r for some in terminalreporter.stats.values() for r in some if hasattr(r, "when")]
    words = [
        word
        for report in reports
        if report.when == "call"
        for name, word in report.user_properties
        if name == TOLD
    ]
    if words:
        terminalreporter.section("measured")
        for word in words:
            terminalreporter.line(word)

"""A real browser without a window, and `pisces watch` in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MAKE_NOTES = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
    window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""


@dataclass
class Server:
    """`pisces watch`, running."""

    process: subprocess.Popen[str]
    link: str

    @property
    def port(self) -> int:
        return int(re.findall(r":(\d+)/", self.link)[0])

    def end(self, how: int = signal.SIGINT) -> tuple[int, float]:
        """Its exit code, and how long its end took."""
        began = time.monotonic()
        self.process.send_signal(how)
        code = self.process.wait(timeout=20)
        if self.process.stdout is not None and how == signal.SIGKILL:
            self.process.stdout.close()
        return code, time.monotonic() - began


def start_server(folder: Path | None, *options: str, cwd: Path | None = None) -> Server:
    """Start it, and wait for its address."""
    where = [] if folder is None else [str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "pisces.cli.main", "watch", *where, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://\S+", line):
            return Server(process, found.group())
    raise AssertionError(f"it said nothing of where it is, and ended with {process.wait()}")


@contextmanager
def serving(folder: Path | None, *options: str, cwd: Path | None = None) -> Iterator[Server]:
    """It runs for as long as this."""
    server = start_server(folder, *options, cwd=cwd)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        if server.process.stdout is not None:
            server.process.stdout.close()


# What the browser itself says of a page that goes on asking a server that a test has ended.
GONE = re.compile(
    r"net::ERR_(CONNECTION_\w+|SOCKET_NOT_CONNECTED|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING)"
)


@dataclass
class Tab:
    """A page of the browser, which notes whatever goes wrong in it."""

    page: Any
    shots: Path
    wrongs: list[str] = field(default_factory=list)
    expected: str | None = None  # said again and again, until the tab is closed

    def __post_init__(self) -> None:
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.wrongs.append(f"error: {error}"))
        self.page.on("dialog", self._dismiss)
        self.page.add_init_script(MAKE_NOTES)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning") and not GONE.search(message.text):
            self.wrongs.append(f"{message.type}: {message.text}")

    def _dismiss(self, dialog: Any) -> None:
        self.wrongs.append(f"a script of somebody else ran: {dialog.message}")
        dialog.dismiss()

    def until(self, condition: str, *args: Any, most_s: float = 45.0) -> None:
        """Wait for a condition; the page's policy lets the driver's own way of waiting not run."""
        until = time.monotonic() + most_s
        while not self.page.evaluate(condition, list(args)):
            assert time.monotonic() < until, f"it never came true: {condition}"
            self.page.wait_for_timeout(50)

    def shot(self, name: str) -> None:
        """Keep a picture of it."""
        self.page.wait_for_timeout(150)
        self.page.screenshot(path=self.shots / f"{name}.png", full_page=True)

    def check(self) -> None:
        """Fail if anything went wrong."""
        assert self.page.evaluate("window.violations") == []
        assert [w for w in self.wrongs if not self.expected or self.expected not in w] == []

    def fits(self) -> bool:
        """Is nothing wider than the window?"""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window; where it or its driver is not there, the test is skipped."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    with driver.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield opened
        finally:
            opened.close()


def shots_folder(else_in: Path) -> Path:
    """Where pictures are kept: `PISCES_SHOTS`, or with the test's other things."""
    folder = Path(os.environ.get("PISCES_SHOTS") or else_in)
    folder.mkdir(parents=True, exist_ok=True)
    return folder

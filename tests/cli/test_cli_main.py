"""The command line as a whole: help, version, exit codes, and one line for a mistake."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pisces as package
from pisces.cli import runs
from pisces.cli.commands import app

COMMANDS = (
    "demo",
    "run",
    "resume",
    "serve",
    "compare",
    "report",
    "watch",
    "replay",
    "runs",
    "reproduce",
    "evaluate",
    "join",
    "config",
    "protocols",
)


def test_the_version(pisces: Callable[..., Any]) -> None:
    ran = pisces("--version")
    assert (ran.code, ran.out) == (0, f"pisces {package.__version__}\n")


@pytest.mark.parametrize("args", [["--help"], []], ids=["asked for", "no arguments"])
def test_help_names_every_command(pisces: Callable[..., Any], args: list[str]) -> None:
    ran = pisces(*args)
    assert (ran.code, ran.err) == (0, "")
    for command in COMMANDS:
        assert f"│ {command} " in ran.out
    assert "Start with: pisces demo" in ran.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_fits(pisces: Callable[..., Any], command: str) -> None:
    ran = pisces(command, "--help")
    assert ran.code == 0
    assert f"Usage: pisces {command}" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    # A docstring line that is too long is folded, and leaves a short rest of its own.
    body = ran.out.partition("╭")[0].splitlines()
    assert not [line for line in body if 0 < len(line.split()) < 2 and "Example" not in line]
    (told,) = (c.callback.__doc__ for c in app.registered_commands if c.name == command)
    told = inspect.cleandoc(told)  # only of its first paragraph lines are put together
    assert not [line for line in told.splitlines() if len(line) > 78 and line[0] != " "]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "demo"])
def test_help_teaches_by_example(pisces: Callable[..., Any], command: str) -> None:
    text = pisces(command, "--help").out
    assert "Example" in text
    assert f"  pisces {command}" in text.replace("\n pisces", "\n  pisces")


def test_what_is_not_a_command(pisces: Callable[..., Any]) -> None:
    ran = pisces("xyzzy")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: No such command 'xyzzy'; see pisces --help\n"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run"], "Missing argument"),
        (["run", "a.toml", "--sed", "3"], "--seed"),  # the nearest option
        (["run", "a.toml", "--seed", "x"], "'--seed'"),
        (["compare", "a.toml", "--jobs", "0"], "'--jobs'"),
        (["demo", "--jobs", "-1"], "'--jobs'"),
        (["config", "more"], "more"),
    ],
)
def test_a_wrong_option_is_one_line(pisces: Callable[..., Any], args: list[str], says: str) -> None:
    ran = pisces(*args)
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert line.endswith(f"; see pisces {args[0]} --help")


def test_a_message_with_brackets_is_printed_as_it_is(pisces: Callable[..., Any]) -> None:
    ran = pisces("run", "[bold]x[/bold].toml")
    assert ran.err.startswith("error: [bold]x[/bold].toml: cannot read")


def test_a_bug_shows_its_traceback(
    pisces: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_folder: Path) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(runs, "find_runs", broken)
    with pytest.raises(ZeroDivisionError):
        pisces("runs", folder)


def test_ctrl_c_anywhere_exits_with_130(
    pisces: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "find_runs", interrupted)
    assert pisces("runs", folder).code == 130


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, pisces.cli.commands; print({'torch', 'matplotlib'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    pipe = f"{sys.executable} -m pisces.cli.main config | head -n 1"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True)
    assert done.stdout == "# A Pisces run: every key with its default value.\n"
    assert done.stderr == ""


def test_commands_are_those_of_the_app() -> None:
    assert tuple(command.name for command in app.registered_commands) == COMMANDS


def test_ctrl_c_anywhere_is_no_traceback(
    pisces: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pisces.cli.run.set_up_logging", interrupted)
    ran = pisces("run", "my.toml")
    assert (ran.code, ran.out, ran.err.strip()) == (130, "", "")

"""Where things are printed: results to stdout, all else to stderr."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import typer
from rich.logging import RichHandler
from rich.text import Text

from pisces.progress import screen
from pisces.record.lines import plain

stdout = screen.Screen()
stderr = screen.stderr

Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as JSON; progress as JSON lines on stderr."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Log all that happens, such as every aggregation.")
]


def warn(text: str) -> None:
    """A line, in yellow, of what the user may want to know."""
    stderr.say(text, style="yellow")


def complain(text: str) -> None:
    """A line of what is wrong."""
    stderr.print(Text.assemble(("error:", "bold red"), f" {text}"), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON, and nothing else."""
    print(json.dumps(plain(value), indent=2, allow_nan=False))


def set_up_logging(verbose: bool) -> None:
    """On stderr: for people, or, where it goes to a file, lines that programs can read."""
    if stderr.is_terminal:
        handler = RichHandler(console=stderr, show_path=False, log_time_format="%X")
        logging.basicConfig(level=logging.WARNING, handlers=[handler], format="%(message)s")
    else:
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("pisces").setLevel(logging.INFO if verbose else logging.WARNING)

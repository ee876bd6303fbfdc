"""`pisces`: the commands, and what their exit codes mean.

0    done
1    a bug in Pisces (with a traceback: please report it)
2    bad input: a setting, a file or an option (one line says which)
3    the run could not go on: no client was left
130  interrupted with Ctrl-C; what there was so far is saved and shown
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import pisces
from pisces.cli import compare, config, demo, evaluate, report, run, runs
from pisces.cli.console import stderr
from pisces.errors import PiscesError

app = typer.Typer(
    name="pisces",
    help="Asynchronous federated learning: who trains, when to aggregate, how updates combine.",
    epilog="Start with: pisces demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("runs")(runs.runs)
app.command("evaluate")(evaluate.evaluate)
app.command("config")(config.config)


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if version:
        print(f"pisces {pisces.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; an error the user can mend is one line, not a traceback."""
    try:
        app()
    except PiscesError as error:
        stderr.print(f"[bold red]error:[/] {_plain(str(error))}", soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")

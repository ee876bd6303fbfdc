"""`pisces`: the commands, and what their exit codes mean.

0    done
1    a bug in Pisces (with a traceback: please report it), or `pisces data check` found a fault,
     or some runs of `pisces reproduce` failed
2    bad input: a setting, a file or an option (one line says which)
3    the run could not go on: no client was left; or a server refuses this client
130  interrupted with Ctrl-C; what there was so far is saved and shown
143  told to end by SIGTERM, in `pisces run`, `resume` and `serve`: saved and shown as well

Commands import torch, matplotlib and the like when they are called, so that help comes at once.
"""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

import pisces
from pisces.cli import (
    certs,
    compare,
    config,
    data,
    demo,
    evaluate,
    join,
    protocols,
    replay,
    report,
    reproduce,
    resume,
    run,
    runs,
    serve,
    watch,
)
from pisces.cli.console import stderr
from pisces.errors import PiscesError

app = typer.Typer(
    name="pisces",
    help="Asynchronous federated learning: nobody waits for the slowest client.",
    epilog="Start with: pisces demo",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("resume")(resume.resume)
app.command("serve")(serve.serve)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("watch")(watch.watch)
app.command("replay")(replay.replay)
app.command("runs")(runs.runs)
app.command("reproduce")(reproduce.reproduce)
app.command("evaluate")(evaluate.evaluate)
app.command("join")(join.join)
app.command("config")(config.config)
app.command("protocols")(protocols.protocols)
app.add_typer(data.app)
app.add_typer(certs.app)


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"pisces {pisces.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run the command line; an error the user can mend is one line, not a traceback."""
    try:
        sys.exit(app(prog_name="pisces", standalone_mode=False))
    except PiscesError as error:
        _refuse(str(error))
    except (KeyboardInterrupt, typer.Abort):  # before or after a run, which sees to itself
        sys.exit(130)
    except Exception as error:
        if not hasattr(
            error, "format_message"
        ):  # the mark of a wrong option; Typer hides its class
            raise
        context = getattr(error, "ctx", None)
        command = "pisces" if context is None else context.command_path
        _refuse(f"{error.format_message().rstrip('.')}; see {command} --help")


def _refuse(message: str) -> NoReturn:
    for line in message.splitlines():
        stderr.print(f"[bold red]error:[/] {escape(line)}", soft_wrap=True, highlight=False)
    sys.exit(2)


if __name__ == "__main__":
    main()

"""All commands of `pisces`.

They import torch, matplotlib and the like when they are called, so that help comes at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

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

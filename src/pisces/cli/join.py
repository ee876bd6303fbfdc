"""`pisces join`: take part in a run that somebody serves."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from pisces.cli.codes import INTERRUPTED, TERMINATED
from pisces.cli.console import Json, Quiet, Verbose, print_json, set_up_logging, stderr, stdout
from pisces.cli.joined import StatusLine
from pisces.errors import ConfigError, DataError, PiscesError, RefusedError, Terminated
from pisces.progress.showing import manner_of

if TYPE_CHECKING:
    from pisces.client import Outcome
    from pisces.data.federated import FederatedData

log = logging.getLogger("pisces")

NOTHING_TRAINED, REFUSED = 1, 3


def join(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the server is.")],
    identity: Annotated[
        Path | None, typer.Option(help="Your certificate: what `pisces certs client NAME` made.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION|CONFIG",
            help="A function that gives (inputs, targets) or a torch Dataset; if it takes a "
            "parameter, it is given --shard. Or a config file, with --shard.",
        ),
    ] = None,
    shard: Annotated[
        int | None, typer.Option(min=0, help="Which part of the config's dataset; your number.")
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Training code of your own: see pisces.client; with --examples.",
        ),
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=1, help="How many samples --train learns from.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without certificates; on this machine only.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Your name, with --insecure.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Folder for results until the server has them.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:NUMBER.")] = "auto",
    threads: Annotated[
        int, typer.Option(min=1, help="Of torch; one is best for small models.")
    ] = 1,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train for a server, on data of your own, until its run is over.

    A lost connection is tried again for ever; finished results are kept until
    the server has them. Ctrl-C says goodbye first.

    [bold]Examples[/]

      pisces join fl.example.org:8440 --identity ann.pem --data mydata:load

      pisces join fl.example.org:8440 --identity ann.pem --data fl.toml --shard 3

      pisces join 127.0.0.1:8440 --insecure --name ann --train mycode:train --examples 600

    [bold]Exit codes[/]: 0 the run is over; 1 it is, and every task failed here;
    2 bad input; 3 the server refuses this client;
    130 Ctrl-C; 143 SIGTERM.
    """
    set_up_logging(verbose)
    if (data is None) == (train is None):
        raise ConfigError(
            "give --data (what to learn from) or --train (code of your own), one of both"
        )
    door = {"identity": identity, "insecure": insecure, "name": name, "number": shard, "keep": keep}
    status = StatusLine()
    if train is not None:
        part = _own_code(address, train, examples, door)
    else:
        part = _own_data(address, str(data), shard, door, device=device, threads=threads)
    with status.shown(manner_of(quiet=quiet, as_json=as_json)), _core_unheard():
        outcome = _carried_out(part, status)
    _show(outcome, status, as_json)
    if outcome.num_failed and not outcome.num_tasks:
        raise typer.Exit(NOTHING_TRAINED)


def _core_unheard() -> AbstractContextManager[None]:
    """gRPC's core writes to standard error what is said in plain words already."""
    from pisces.execute.network.trust.core_log import heard

    return heard(lambda _reason: None)


def _own_code(
    address: str, where: str, examples: int | None, door: dict[str, Any]
) -> Callable[[Any], Outcome]:
    from pisces import client

    if examples is None:
        raise ConfigError("--examples: say how many samples --train learns from")
    function = found(where, "--train")
    return lambda on: client.join(address, function, num_examples=examples, on=on, **door)


def _own_data(
    address: str, where: str, shard: int | None, door: dict[str, Any], **machine: Any
) -> Callable[[Any], Outcome]:
    from pisces import local

    samples = _samples(where, shard)
    return lambda on: local.join(address, samples, on=on, **door, **machine)


def _samples(where: str, shard: int | None) -> FederatedData:
    """What to learn from."""
    from pisces import config, local, world

    if where.endswith(".toml") or Path(where).is_file():
        if shard is None:
            raise ConfigError(f"--shard: say which part of {where}'s dataset is yours")
        return local.shard_of(world.federated_data(config.load(Path(where))), shard)
    function = found(where, "--data")
    if not inspect.signature(function).parameters:
        return local.own_data(_loaded(where, function))
    if shard is None:
        raise ConfigError(f"--shard: {where} takes the client's number: give it")
    return local.own_data(_loaded(where, function, shard))


def _loaded(where: str, function: Callable[..., Any], *arguments: int) -> Any:
    """What it gives; what goes wrong in it is its author's to mend, so it says where that is."""
    from pisces.execute.network.client.joining import reason_of

    try:
        return function(*arguments)
    except PiscesError:
        raise
    except Exception as error:
        log.info("--data: %s failed", where, exc_info=True)
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}, line {last.lineno}"
        raise DataError(
            f"--data: {where} failed: {reason_of(error)} ({place}); mend it, or see all of it "
            "with --verbose"
        ) from error


def found(where: str, option: str) -> Callable[..., Any]:
    """The function called "module:function"; modules of the current folder come first."""
    module, _, name = where.partition(":")
    if not (module and name):
        raise ConfigError(f"{option}: must be MODULE:FUNCTION, such as mydata:load, not {where!r}")
    sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise ConfigError(f"{option}: cannot import {where}: {error}") from error
    if not callable(function):
        raise ConfigError(f"{option}: {where} is no function")
    return function  # type: ignore[no-any-return]


def _carried_out(part: Callable[[Any], Outcome], status: StatusLine) -> Outcome:
    try:
        return part(status.update)
    except RefusedError as error:
        _end(str(error), REFUSED)
    except Terminated:
        _end("told to end", TERMINATED)
    except KeyboardInterrupt:
        _end("interrupted", INTERRUPTED)


def _end(reason: str, code: int) -> NoReturn:
    stderr.say(reason)
    raise typer.Exit(code)


def _show(outcome: Outcome, status: StatusLine, as_json: bool) -> None:
    done, held = (0, 0) if status.last is None else (status.last.num_done, status.last.num_held)
    if as_json:
        told = {"reason": outcome.reason, "tasks": outcome.num_tasks, "done": done, "held": held}
        print_json({**told, "failed": outcome.num_failed})
        return
    failed = f", {outcome.num_failed} failed" if outcome.num_failed else ""
    trained = f"{outcome.num_tasks} tasks trained{failed}, {done} handed in, {held} held"
    stdout.say(f"{outcome.reason}: {trained}")

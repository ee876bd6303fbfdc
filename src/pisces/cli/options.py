"""Options and small parsers that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pisces.config import Config
from pisces.errors import ConfigError

ConfigFile = Annotated[
    Path, typer.Argument(help="A config file; `pisces config` prints a full one.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, e.g. clients.count=50 or data.size=none.",
    ),
]
Out = Annotated[
    Path | None, typer.Option(help="Folder to write; without it a new one below ./runs.")
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="NAME",
        help="Tell a tracker too: tensorboard, mlflow, wandb or csv; may be given several times.",
    ),
]
Target = Annotated[
    float | None, typer.Option(help="Value at which runs stop; same as --set stop.target=N.")
]

OnRay = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Make the runs on a Ray cluster: auto, local, HOST:PORT or ray://HOST:PORT.",
    ),
]


def tracked(config: Config, track: list[str] | None) -> Config:
    """The config with these trackers besides its own."""
    from pisces import tracking

    tracking.check(track or [])
    trackers = list(dict.fromkeys([*config.record.trackers, *(track or [])]))
    record = config.record.model_copy(update={"trackers": trackers})
    return config.model_copy(update={"record": record})


MOST_SEEDS = 10_000


def fresh_folder(name: str) -> Path:
    """A folder below ./runs that does not exist yet."""
    folder = Path("runs") / name
    number = 2
    while folder.exists():
        folder = Path("runs") / f"{name}-{number}"
        number += 1
    return folder


def names(text: str) -> list[str]:
    """`a,b,c` as a list without doubles."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def numbers(text: str) -> list[int]:
    """`1-5` or `1,2,7-9` as a list of seeds without doubles."""
    found: list[int] = []
    for part in names(text):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()):
            raise ConfigError(f"--seeds takes numbers such as 1-5 or 1,2,7, not {text!r}")
        if max(len(first), len(last)) > 9 or int(last) - int(first) >= MOST_SEEDS:
            raise ConfigError(f"--seeds takes at most {MOST_SEEDS} numbers, each below 10^9")
        found += range(int(first), int(last) + 1)
    if not found:
        raise ConfigError(f"--seeds needs at least one seed, such as 1-5, not {text!r}")
    return list(dict.fromkeys(found))

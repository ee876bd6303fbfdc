"""What a benchmark measured: a JSON file for programs, a table for people, both in `results/`.

    from results import collect, parser, save
    args = parser("How fast clients train.", quick="one round").parse_args()
    save(args, "engine-2cores", collect(rows), notes="MNIST, ...")

The files are committed: they say what machine and versions they come from, and nothing else of it.
Those of a quick run are called `...-quick`, so that they never take the place of real ones. Rows of
different kinds say in `table` which table they belong to, and `captions` says what each is about.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import pisces
from pisces.errors import PiscesError
from pisces.machine import num_cores

FOLDER = Path(__file__).parent / "results"
WIDE = 140  # columns of text where there is no terminal to ask
QUICK = "A quick look, not a measurement."
Row = Mapping[str, Any]


def parser(description: str, *, quick: str) -> argparse.ArgumentParser:
    """The options that every benchmark has; `quick` says what is left of it."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--quick", action="store_true", help=quick)
    made.add_argument("--name", help="of the results; by default after the machine")
    made.add_argument("--results", type=Path, default=FOLDER, help="folder for the results")
    return made


def on_disk(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """With the option of one that measures a disk."""
    made.add_argument("--folder", type=Path, help="where to write; by default a temporary folder")
    return made


@contextmanager
def scratch(args: argparse.Namespace) -> Iterator[Path]:
    """A folder to write to, on the disk that was named; gone afterwards."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        yield Path(folder)


def name_of(args: argparse.Namespace, usual: str) -> str:
    """What the results are called; a quick run never takes the name of a real one."""
    return f"{args.name or usual}{'-quick' if args.quick else ''}"


def warn_if_busy() -> None:
    """A busy machine spoils ratios too: say so before anything is measured."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1  # the load is that of all cores, too
    if load > cores / 2:
        print(
            f"warning: the load average is {load:.1f} on {cores} cores: what else runs here will "
            "show in the results",
            file=sys.stderr,
        )


def plainly(main: Callable[[], None]) -> None:
    """Run a benchmark; what its user can mend is said in a line, without a traceback."""
    try:
        main()
    except PiscesError as error:
        sys.exit(str(error))


def collect(rows: Iterable[Row]) -> list[Row]:
    """All the rows, each printed as soon as it is measured."""
    done = []
    for row in rows:
        said = [f"{key} {cell(value)}" for key, value in row.items() if key != "table"]
        print(f"{row['table']}: " if "table" in row else "", ", ".join(said), sep="", flush=True)
        done.append(row)
    return done


def save(
    args: argparse.Namespace,
    usual_name: str,
    rows: Sequence[Row],
    notes: str = "",
    captions: Mapping[str, str] | None = None,
) -> Path:
    """Write `<name>.json` and `.md`, show the tables, and return where the JSON is."""
    name = name_of(args, usual_name)
    if not rows:
        raise ValueError(f"{name}: there is nothing to save")
    result = {
        "name": name,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "software": software(),
        "notes": f"{QUICK} {notes}".strip() if args.quick else notes,
        "captions": dict(captions or {}),
        "rows": [dict(row) for row in rows],
    }
    folder: Path = args.results
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(markdown(result), encoding="utf-8")
    show(result)
    return path


# --- where it was measured ------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """The hardware, and how busy it was."""
    return {
        "cpu": _first_line_of("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": num_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def software() -> dict[str, str]:
    """The versions that matter, and the commit; a `+` after it: with changes since."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pisces": pisces.__version__,
        "commit": _commit(),
    }


def _first_line_of(path: str, key: str) -> str | None:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)


def _commit() -> str:
    commit = _git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return "unknown"
    return commit + ("+" if _git("status", "--porcelain", "--", "../src") else "")


def _git(*arguments: str) -> str:
    """What git says of this folder; nothing where there is no git or no repository."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True
        )
    except OSError:
        return ""
    return done.stdout.strip()


# --- for people -----------------------------------------------------------------------------------


def show(result: Mapping[str, Any]) -> None:
    """Print the tables."""
    console = Console(width=None if sys.stdout.isatty() else WIDE)

    def say(words: str | None) -> None:
        if words:
            console.print(words, highlight=False, markup=False)

    for name, rows in tables(result["rows"]).items():
        table = Table(title=name or result["name"])
        keys = columns(rows)
        for key in keys:
            numbers = all(isinstance(row.get(key), (int, float, type(None))) for row in rows)
            shown = key.replace("_", " ")  # words can be broken over lines
            table.add_column(shown, justify="right" if numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(cell(row.get(key)) for key in keys))
        console.print(table)
        say(result["captions"].get(name))
    say(result["notes"])


def markdown(result: Mapping[str, Any]) -> str:
    """The same as a page of its own."""
    lines = [f"# {result['name']}", "", f"Measured on {result['date']}."]
    for part in ("machine", "software"):
        said = [f"{key} {cell(value)}" for key, value in result[part].items() if value is not None]
        lines.append(f"{part.capitalize()}: {', '.join(said)}.")
    lines += ["", result["notes"]] if result["notes"] else []
    for name, rows in tables(result["rows"]).items():
        lines += ["", f"## {name}"] if name else []
        lines += ["", result["captions"][name]] if name in result["captions"] else []
        keys = columns(rows)
        lines += ["", _line(keys), _line(["---"] * len(keys))]
        lines += [_line([cell(row.get(key)) for key in keys]) for row in rows]
    return "\n".join(lines) + "\n"


def tables(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each table; where there is only one, it has no name."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        its = {key: value for key, value in row.items() if key != "table"}
        found.setdefault(row.get("table", ""), []).append(its)
    return found


def columns(rows: Sequence[Row]) -> list[str]:
    """Every key that some row has, in the order in which they turn up."""
    return list(dict.fromkeys(key for row in rows for key in row))


def cell(value: object) -> str:
    """A value as people read it: four digits are enough, and nothing is a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return " ".join(cell(part) for part in value)
    return str(value)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

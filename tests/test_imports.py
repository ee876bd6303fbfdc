"""Who may import whom, who may look at a clock, and who may print."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pisces

SOURCE = Path(pisces.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# room (or file of the top room) -> the pisces rooms and files it may import, besides itself;
# "*" for everything but the command line, which is for people and `__main__`. Everybody may import
# `types`, `errors`, `extras`, `seeds` and `words`.
MAY_IMPORT: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "extras": set(),
    "seeds": set(),
    "words": set(),
    "policy": {"clients.view"},
    "loopback": set(),
    "saving": set(),
    "stop": set(),
    "select": {"policy", "clients.view"},  # never each other
    "pace": {"policy", "clients.view"},
    "aggregate": {"policy", "clients.view", "recent"},
    "judge": {"policy", "recent"},
    "recent": set(),
    "quantities": set(),
    "clients": {"policy", "saving"},
    # How many steps a plan has; where a journal is written, and who of it was let in; what a server
    # tells of its run.
    "execute": {
        *("saving", "train.base", "train.shuffle", "record.journal", "record.segment"),
        *("record.lines", "record.summary"),
        *("clients.checks", "loopback"),
    },
    "train": {"data", "models", "cluster.base"},
    "cluster": set(),
    "data": set(),
    "models": set(),
    "machine": set(),
    "evaluate": {"models", "train.base"},
    "objective": {"evaluate", "train.base"},
    "record": {"policy", "quantities", "stop", "report.card"},  # how a run looks in a notebook
    # Clusters are drawn as the run's judge saw them, which its own makers make.
    "report": {"quantities", "record", "stop", "judge.clusters", "protocols.judges", "settings"},
    "progress": {"quantities", "record.lines", "stop", "tables"},
    "dashboard": {"loopback", "record", "report"},
    "study": {"config", "tables", "explain", "policy", "quantities", "record", "report", "stop"},
    "tables": set(),
    "latencies": {"tables"},
    "config": {"explain", "latencies", "policy", "tables"},
    "explain": set(),
    "world": {
        "config",
        "tables",
        "latencies",
        "explain",
        "data",
        "models",
        "execute",
        "train.hostile",
    },
    "protocols": {
        *("policy", "clients.view", "select", "pace", "aggregate", "judge"),
    },
    "dead_ends": {"clients.view"},
    "decisions": {"clients.view", "policy"},
    "windows": set(),
    "coordinator": {
        *("policy", "saving", "stop", "evaluate", "record.lines", "dead_ends", "decisions"),
        *("clients.manager", "clients.view", "execute.base", "windows"),
    },
    "settings": {"explain", "tables"},
    "mix": {"explain", "settings", "tables"},
    "sense": {"policy"},
    "names": {"aggregate", "policy", "protocols", "select", "settings"},
    "parts": {
        *(
            "tables",
            "explain",
            "federation",
            "machine",
            "policy",
            "stop",
            "evaluate",
            "objective",
            "data",
            "execute",
        ),
        *("sense", "train", "clients.checks", "cluster", "models.flat"),
    },
    "client": {"execute"},
    "local": {"data", "execute", "machine", "models", "objective", "train"},
    "build": {"*"},
    "federation": {"clients.checks", "evaluate", "policy", "sense", "stop"},
    "signals": set(),
    "running": {"*"},
    "journaling": {"clients.checks", "evaluate", "execute", "record.journal"},
    "keeping": {"coordinator", "execute.tape", "federation", "machine", "parts", "record", "stop"},
    "replaying": {
        *("build", "clients", "config", "explain", "mix", "names", "policy", "quantities"),
        *("record", "report.printed.paper", "report.printed.sheets", "report.styles", "sense"),
        *("settings", "stop", "windows"),
    },
    "resuming": {"build", "config", "keeping", "record", "simulation", "tracking"},
    "tracking": {"explain", "record", "tables"},
    "hosting": {"*"},
    "flower": {
        *("clients.checks", "evaluate", "execute.flower.api", "execute.flower.terms", "grid"),
        *("policy", "stop"),
        *("record.checkpoint", "record.trackers.base"),
    },
    "grid": {"*"},
    "server": {"*"},
    "simulation": {"*"},
    "many": {
        *("build", "cluster", "config", "machine", "parts", "progress", "record", "signals"),
        *("report.compare", "report.settings", "simulation", "tracking", "train"),
    },
    "cli": {"*"},
    "__init__": {"*"},
    "__main__": {"cli"},
}
EXTRAS = {"ray", "flwr", "grpc", "mlflow", "transformers", "tensorboard", "datasets"}
EXTRAS |= {"pyarrow", "PIL", "google", "cryptography", "zstandard", "prometheus_client", "wandb"}
EXTRAS |= {"plotly", "starlette", "uvicorn"}
NETWORK = "execute/network/"
EXTRAS_AT_HOME = {  # the one file, or folder, that may import each
    "transformers": "models/albert.py",
    "datasets": "data/hub.py",
    "pyarrow": "data/formats/parquet.py",
    "PIL": "data/formats/pictures.py",
    **dict.fromkeys(("grpc", "google", "cryptography"), NETWORK),
    **dict.fromkeys(("zstandard", "prometheus_client"), NETWORK),
    "flwr": "execute/flower/api.py",
    "ray": "cluster/ray.py",
    "starlette": "dashboard/app.py",
    "uvicorn": "dashboard/serving.py",
    **{name: f"record/trackers/{name}.py" for name in ("tensorboard", "mlflow", "wandb")},
}
CLOCKS = {"time", "datetime", "sched", "asyncio"}
# `running` tells how long a run took on the wall, `progress`, `report` and `dashboard` how long one
# still takes; no decision depends on it.
MAY_LOOK_AT_A_CLOCK = {"execute", "cli", "running", "progress", "report", "dashboard"}
HOW_FAST = Path("train/hands.py")  # a worker of a cluster is: whoever is faster gets more to do


def room(file: Path) -> str:
    return file.relative_to(SOURCE).with_suffix("").parts[0]


def imports(file: Path) -> Iterator[str]:
    """Every module a file imports, wherever in it, dotted."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            module = str(node.module)
            within = module == "pisces"  # `from pisces import build`
            yield from (f"{module}.{alias.name}" for alias in node.names) if within else [module]


def forbidden(file: Path) -> set[str]:
    """The pisces modules it imports against the table."""
    allowed = MAY_IMPORT[room(file)] | {room(file), "types", "errors", "extras", "seeds", "words"}
    own = {name.removeprefix("pisces.") for name in imports(file) if name.startswith("pisces.")}
    return {name for name in own if not allowed & {name, *_rooms(name)}}


def _rooms(name: str) -> set[str]:
    top = name.partition(".")[0]
    return {top} if top == "cli" else {top, "*"}


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_a_room_imports_only_what_it_may(file: Path) -> None:
    assert forbidden(file) == set()


def test_every_room_is_in_the_table() -> None:
    assert {room(file) for file in FILES} == set(MAY_IMPORT)


def test_extras_are_imported_nowhere_but_in_their_own_file() -> None:
    for file in FILES:
        used = EXTRAS & {name.partition(".")[0] for name in imports(file)}
        here = str(file.relative_to(SOURCE))
        homeless = {name for name in used if not here.startswith(EXTRAS_AT_HOME.get(name, "-"))}
        assert homeless == set(), here
    albert = SOURCE / EXTRAS_AT_HOME["transformers"]
    assert "transformers" in set(imports(albert))  # the test can see imports


def test_no_room_that_decides_looks_at_a_clock() -> None:
    looking = {f for f in FILES if CLOCKS & {n.partition(".")[0] for n in imports(f)}}
    assert {room(f) for f in looking - {SOURCE / HOW_FAST}} <= MAY_LOOK_AT_A_CLOCK
    assert SOURCE / HOW_FAST in looking  # the test can see clocks


def names_called(file: Path) -> set[str]:
    calls = (n.func for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call))
    return {ast.unparse(function).rpartition(".")[2] for function in calls}


def test_nobody_prints_but_the_command_line_and_progress_and_nobody_sleeps() -> None:
    printing = {room(file) for file in FILES if "print" in names_called(file)}
    assert printing <= {"cli", "progress"}
    assert not [file for file in FILES if "sleep" in names_called(file) and room(file) != "execute"]

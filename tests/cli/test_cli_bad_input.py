"""Bad input: exit 2, one line with the key, the rule and the value, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# --- settings -------------------------------------------------------------------------------------

SETTINGS = {
    "unknown key": ("clients.cuont=3", "clients.cuont: unknown key; did you mean clients.count?"),
    "key of another table": ("train.count=3", "did you mean clients.count?"),
    "unknown table": ("cleints.count=3", "cleints: unknown key; did you mean clients?"),
    "no table": ("clients=3", "clients: must be a table, not 3"),
    "below a value": ("clients.count.x=3", "--set clients.count.x=3: count is not a table"),
    "no value": ("clients.count", "--set takes key=value, such as clients.count=50, not"),
    "no key": ("=3", "--set takes key=value, such as clients.count=50, not '=3'"),
    "word for a number": (
        "clients.count=many",
        "clients.count: must be a valid integer, not 'many'",
    ),
    "no clients": ("clients.count=0", "clients.count: must be greater than or equal to 1, not 0"),
    "concurrency": (
        "clients.concurrency=13",
        "clients.concurrency must be at most clients.count = 12, not 13",
    ),
    "deadline": ("clients.deadline_s=0", "clients.deadline_s: must be greater than 0, not 0"),
    "buffer": (
        "protocol=fedbuff protocols.fedbuff.buffer_size=13",
        "the pace waits for 13 updates at once, but there are only 12 clients; lower buffer_size",
    ),
    "bound": (
        "protocols.pisces.staleness_bound=0",
        "staleness_bound: must be greater than or equal to 1, not 0",
    ),
    "strict": ("protocols.pisces.pace=strict", "a strict pace needs clients.deadline_s"),
    "protocol": ("protocol=piscse", "protocol: must be one of pisces, fedbuff"),
    "nearest protocol": ("protocol=piscse", "not 'piscse'; did you mean 'pisces'?"),
    "settings of no protocol": ("protocols.piscse.pace=strict", "not 'piscse'; did you mean"),
    "setting of another protocol": (
        "protocols.fedbuff.bufer_size=3",
        "protocols.fedbuff: bufer_size: unknown key; did you mean buffer_size?",
    ),
    "negative latency": ("latency.min_s=-1", "latency.min_s: must be greater than 0, not -1"),
    "latencies upside down": (
        "latency.min_s=21",
        "latency.min_s must be at most latency.max_s = 20.0, not 21.0",
    ),
    "kind of latency": ("latency.kind=slow", "latency.kind: must be one of zipf, constant,"),
    "trace": (
        "latency.kind=trace latency.min_s=1",
        "latency.path: this key is needed",
    ),
    "failures": (
        "failures.crash=0.5 failures.dropout=0.6",
        "failures: crash, dropout and vanish must add up to at most 1, not (0.5, 0.6, 0.0)",
    ),
    "silence": ("failures.vanish=0.5", "failures.vanish needs clients.deadline_s"),
    "endless": ("stop.time_s=inf", "stop: the run would never end: set time_s, versions or"),
    "no number": ("stop.target=nan", "stop.target: must be a finite number, not nan"),
    "reward": (
        "protocol=autofl protocols.autofl.metric=nonsense",
        "metric: the selector learns from what is evaluated, so it must be one of accuracy, loss, "
        "not 'nonsense'",
    ),
    "metric": ("stop.metric=acuracy", "stop.metric: must be one of accuracy, loss, not 'acuracy'"),
    "sizes": ("data.sizes=rich", "data.sizes: must be 'equal', 'lognormal' or 'coupled'"),
    "sizes of others": ("data.sizes=[1,2]", "data.sizes: 2 sizes for 12 clients"),
    "too much data": ("data.size=1000", "sizes ask for 12000 rows, but there are 1438"),
    "dataset": ("data.dataset=cifar", "data.dataset: must be one of digits, mnist"),
    "no dataset": ("data.dataset=mnist", "mnist is not there. Get it: pisces data get mnist"),
    "natural": ("data.partition=natural", "data.partition: digits has no natural clients"),
    "model": ("model.name=resnet", "model.name: must be one of mlp, small_cnn, lenet5"),
    "model too large": ("model.name=lenet5 model.hidden=[64]", "lenet5 takes images of"),
    "layers of mlp": ("model.name=lenet5", "lenet5 has no such setting, mlp has; leave it out, or"),
    "weights": ("model.weights=nowhere", "model.weights: cannot read nowhere: No such file"),
    "no weights": ("model.weights=small.toml", "model.weights: cannot read small.toml: "),
    "device": ("train.device=quantum", "train.device: must be auto, cpu, cuda or"),
    "optimizer": ("train.optimizer=best", "train.optimizer: must be 'sgd', 'adam' or 'adamw'"),
    "seed": ("seed=-1", "seed: must be greater than or equal to 0, not -1"),
}


def refusal(ran: Any) -> str:
    """The one line in which a command was refused."""
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("error: ")
    return str(line.removeprefix("error: "))


@pytest.mark.parametrize("case", SETTINGS)
def test_wrong_settings(pisces: Callable[..., Any], small: str, case: str, folder: Path) -> None:
    changes, says = SETTINGS[case]
    if case == "trace":  # its own file: small.toml has keys of another kind
        (folder / small).write_text("[stop]\ntime_s = 1\n")
        changes = "latency.kind=trace"
    before = sorted(folder.rglob("*"))
    sets = [part for change in changes.split() for part in ("--set", change)]
    assert says in refusal(pisces("run", small, *sets))
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "x.toml: cannot read the config file: No such file or directory"),
        (b"a = = 5", "x.toml: not TOML: "),
        (b"\xff\xfe\x00", "x.toml: not TOML: "),
        (b"\x00\x01", "x.toml: not TOML: "),
        (b"[clients]\ncuont = 5", "x.toml: clients.cuont: unknown key; did you mean"),
        ("folder", "x.toml: cannot read the config file: Is a directory"),
    ],
    ids=["missing", "not TOML", "not text", "binary", "unknown key", "folder"],
)
def test_wrong_files(
    pisces: Callable[..., Any], folder: Path, command: str, content: Any, says: str
) -> None:
    path = folder / "x.toml"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "folder":
        path.mkdir()
    assert refusal(pisces(command, "x.toml")).startswith(says)


def test_each_wrong_key_has_its_line(pisces: Callable[..., Any], folder: Path) -> None:
    (folder / "x.toml").write_text("[clients]\ncount = 0\n[train]\nepoch = 3\n")
    ran = pisces("run", "x.toml")
    assert ran.code == 2
    first, second = ran.err.splitlines()
    assert "x.toml: clients.count: must be greater" in first
    assert second == "error: x.toml: train.epoch: unknown key; did you mean train.epochs?"


def test_a_command_that_is_not_known_says_once_what_was_meant(
    pisces: Callable[..., Any], folder: Path
) -> None:
    assert refusal(pisces("comapre", "small.toml")).count("Did you mean") == 1


@pytest.mark.parametrize("command", ["report {}", "watch {}", "run {}", "replay {}", "runs {}"])
def test_a_name_that_no_system_takes_is_refused(
    pisces: Callable[..., Any], folder: Path, command: str
) -> None:
    assert "File name too long" in refusal(pisces(*command.format("a" * 300).split()))


# --- options --------------------------------------------------------------------------------------

OPTIONS = {
    "seeds": ("compare small.toml --seeds one", "--seeds takes numbers such as 1-5 or 1,2,7"),
    "open seeds": ("compare small.toml --seeds 3-", "--seeds takes numbers"),
    "no seeds": ("compare small.toml --seeds 5-3", "--seeds needs at least one seed"),
    "protocols": ("compare small.toml --protocols pisces,best", "not 'best'"),
    "no protocols": ("compare small.toml --protocols ,", "--protocols needs at least one"),
    "a percentage": (
        "compare small.toml --target 95",
        "accuracy is a share of 1; did you mean 0.95?",
    ),
    "no target": ("compare no_target.toml", "compare needs a target to reach: --target 0.9"),
    "out below a file": ("run small.toml --out small.toml/x", "cannot write small.toml/x: Not a"),
    "out is a file": ("run small.toml --out small.toml", "cannot write small.toml: File exists"),
    "compare below a file": ("compare small.toml --out small.toml/x", "cannot make small.toml/x"),
    "demo below a file": ("demo --out small.toml/x", "cannot make small.toml/x: Not a directory"),
    "report of nothing": ("report .", ". is not a run folder: it has no events.jsonl"),
    "report of nowhere": ("report nowhere", "nowhere is none: check the path"),
    "evaluate nothing": ("evaluate .", ". is not a run folder: it has no events.jsonl"),
    "runs nowhere": ("runs nowhere", "nowhere is not a folder: name one with runs"),
    "runs in a file": ("runs small.toml", "small.toml is not a folder"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_wrong_options(pisces: Callable[..., Any], small: str, case: str, folder: Path) -> None:
    (folder / "no_target.toml").write_text("[stop]\ntime_s = 5\n")
    before = sorted(folder.rglob("*"))
    command, says = OPTIONS[case]
    assert says in refusal(pisces(*command.split()))
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("command", ["compare", "demo"])
def test_folders_in_use_are_refused_and_left_alone(
    pisces: Callable[..., Any], small: str, folder: Path, command: str
) -> None:
    taken = folder / "out" / "fedavg-seed3"
    taken.mkdir(parents=True)
    (taken / "letter.txt").touch()
    args = [command, small] if command == "compare" else [command]
    assert refusal(pisces(*args, "--out", "out")) == (
        "out/fedavg-seed3 exists already and is no run: choose another folder with --out"
    )
    assert list((folder / "out").rglob("*")) == [taken, taken / "letter.txt"]

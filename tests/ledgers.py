"""Run folders to keep ledgers of: one by hand, with every kind of line, and any that one writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pisces.record.lines import Line, encode
from pisces.report.ledger import Ledger

TERMS = ["utility", "discount", "score"]
CONFIG = """
protocol = "pisces"
seed = 3
[clients]
concurrency = 2
credits = 5
[stop]
time_s = 100.0
target = 0.5
metric = "accuracy"
[protocols.pisces]
staleness_bound = 4
"""


def line(kind: str, at: float, **facts: Any) -> Line:
    return {"kind": kind, "at": at, **facts}


def arrived(at: float, task: int, client: int, version: int, loss: float, latency_s: float) -> Line:
    told = {"loss": loss, "loss_rms": 1.1 * loss, "loss_left": loss / 2, "latency_s": latency_s}
    return line("arrived", at, task=task, client=client, version=version, num_examples=10, **told)


def picked(at: float, version: int, clients: Sequence[int], scores: Any, **more: Any) -> Line:
    told = {"version": version, "slots": len(clients), "num_free": 2, "clients": list(clients)}
    return line("picked", at, **told, terms=TERMS, scores=scores, **more)


def aggregated(at: float, version: int, task: int, staleness: int, weight: float) -> Line:
    pace = {"slowest_s": 4.0, "limit_s": 2.0, "bound": 2}
    own = {"tasks": [task], "staleness": [staleness], "weights": [weight]}
    return line("aggregated", at, version=version, **own, pace=pace)


NEW = [None, 1.0, None]
HAND: list[Line] = [
    line("joined", 0.0, client=0, num_examples=10),
    line("joined", 0.0, client=1, num_examples=20),
    line("joined", 0.0, client=7, num_examples=30),
    line("evaluated", 0.0, version=0, accuracy=0.1, loss=2.3),
    picked(0.0, 0, [0, 1], [NEW, NEW]),
    line("started", 0.0, task=0, client=0, version=0),
    line("started", 0.0, task=1, client=1, version=0),
    arrived(4.0, 0, 0, 0, 2.0, 4.0),
    aggregated(4.0, 1, 0, 0, 1.0),
    picked(4.0, 1, [7], [NEW], others=[0], other_scores=[[20.0, 1.0, 20.0]]),
    line("started", 4.0, task=2, client=7, version=1),
    line("evaluated", 4.0, version=1, accuracy=0.4, loss=None),
    arrived(6.0, 1, 1, 0, 3.0, 6.0),
    aggregated(6.0, 2, 1, 1, 0.5),
    picked(6.0, 2, [1], [[60.0, 0.7, 42.0]]),
    line("started", 6.0, task=3, client=1, version=2),
    arrived(9.0, 2, 7, 1, 9.0, 5.0),
    line("outlier", 9.0, client=7, task=2, credits=4),
    line("evaluated", 9.0, version=2, accuracy=0.6),
    line("failed", 10.0, task=3, client=1, reason="crashed"),
    line("left", 11.0, client=0, reason="went <b>home</b>"),
]


def write(folder: Path, lines: Iterable[Mapping[str, Any]], config: str | None = CONFIG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_bytes(b"".join(encode(dict(own)) for own in lines))
    if config is not None:
        (folder / "config.toml").write_text(config)
    return folder


def append(folder: Path, *lines: Line) -> None:
    with (folder / "events.jsonl").open("ab") as file:
        file.write(b"".join(map(encode, lines)))


def ledger_of(folder: Path, lines: Iterable[Line] = HAND, config: str | None = CONFIG) -> Ledger:
    """Written and read."""
    ledger = Ledger(write(folder, lines, config))
    ledger.read()
    assert ledger.problem is None
    return ledger

"""A federation of processes: a server, clients that keep a diary, and what must be true of both."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from forking import Process, Processes, becomes, enter
from journals import fates, in_time
from numpy.typing import NDArray
from runs import assert_lawful, of_kind
from safetensors.torch import load_file

from pisces import client
from pisces.errors import Terminated
from pisces.execute.network.client import bench, joining
from pisces.execute.network.trust.certs import create
from pisces.record.checkpoint import Checkpoints
from pisces.record.lines import Line
from pisces.seeds import derive
from pisces.server import serve
from pisces.stop import Stop

SEED = 1
NUM_EXAMPLES = 10
OURS = {"the run stopped"}  # why a task ends without an update although nothing is wrong
TERMS = {"linger_s": 2.0, "connects_per_minute": 6000.0, "patience_s": 60.0, "beat_s": 1.0}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def authority(folder: Path, num_clients: int, *hosts: str) -> Path:
    """A folder with certificates of a server and of clients c0, c1 ..."""
    ours = create(folder / "certs", "Test authority", 99)
    ours.server(["127.0.0.1", "localhost", *hosts], 99)
    ours.clients([f"c{number}" for number in range(num_clients)], 99)
    return folder / "certs"


# --- the server -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What a server is told."""

    folder: Path
    certs: Path
    num_versions: int
    port: int = field(default_factory=free_port)
    size: int = 4  # numbers in the model; the last is a buffer
    concurrency: int = 4
    buffer_size: int = 3
    host: str = "127.0.0.1"
    inside: str = ""  # a network namespace
    deadline_s: float = 60.0
    terms: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def lines(self) -> list[Line]:
        text = (self.folder / "run" / "events.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    @property
    def num_arrived(self) -> int:
        """So far, as far as it is written."""
        path = self.folder / "run" / "events.jsonl"
        return path.read_bytes().count(b'"arrived"') if path.exists() else 0

    def start(self, processes: Processes) -> Process:
        """Begin, or go on; returns when it listens, or has ended."""
        process = processes.start("server", be_server, self)
        becomes(lambda: "listening" in process.said or process.code is not None)
        return process


def start_of(run: Run) -> dict[str, NDArray[np.float32]]:
    return {"w": np.zeros(run.size - 1, np.float32), "b": np.ones(1, np.float32)}


def be_server(run: Run) -> None:
    """In a process: begin the run, or go on with it."""
    from pisces.execute.network.server.terms import Terms

    torch.set_num_threads(1)
    if run.inside:
        enter(run.inside)
    serve(
        "fedbuff",
        weights=start_of(run),
        buffers=("b",),
        listen=run.address,
        stop=Stop(versions=run.num_versions),
        evaluate=lambda weights: {"mean": float(weights["w"].mean())},
        certs=run.certs,
        concurrency=run.concurrency,
        settings={"buffer_size": run.buffer_size},
        seed=SEED,
        deadline_s=run.deadline_s,
        terms=Terms(**{**TERMS, **run.terms}),
        out=run.folder / "run",
        checkpoints=Checkpoints(0.3),
        resume=(run.folder / "run").exists(),
        ready=lambda address: print("listening on", address, flush=True),  # noqa: T201
    )


# --- clients --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """What a client is told; it keeps its results and its diary in a folder."""

    number: int
    address: str
    certs: Path
    folder: Path
    train_s: tuple[float, float] = (0.01, 0.05)
    inside: str = ""
    longest_retry_s: float = 1.0

    @property
    def diary(self) -> Path:
        return self.folder / f"c{self.number}.diary"

    @property
    def keep(self) -> Path:
        return self.folder / f"c{self.number}"

    @property
    def identity(self) -> Path:
        return self.certs / "clients" / f"c{self.number}.pem"

    @property
    def num_held(self) -> int:
        return len(list(self.keep.glob("*.held")))

    def noted(self, *kinds: str) -> list[dict[str, Any]]:
        """What its diary has of these kinds."""
        text = self.diary.read_text() if self.diary.exists() else ""
        notes = [json.loads(line) for line in text.splitlines()]
        return [note for note in notes if not kinds or note["what"] in kinds]

    def start(self, processes: Processes) -> Process:
        return processes.start(f"c{self.number}", be_client, self)


def step_of(number: int, seed: int) -> np.float32:
    """What training moves every number by."""
    return np.float32((number + 1) / 1000 + seed % 97 / 1e6)


def be_client(part: Part) -> None:
    """In a process: take part until the run is over."""
    if part.inside:
        enter(part.inside)
    diary = os.open(part.diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(what: str, **facts: Any) -> None:
        os.write(diary, json.dumps({"what": what, **facts}).encode() + b"\n")

    keep_diary(note)
    joining.LONGEST_S = part.longest_retry_s
    rng = random.Random(os.getpid())

    def train(weights: dict[str, NDArray[Any]], work: client.Work) -> client.Update:
        note("begun", task=work.task)
        until = time.monotonic() + rng.uniform(*part.train_s)
        while (left := until - time.monotonic()) > 0:
            work.check()
            time.sleep(min(left, 0.02))
        made = {name: array + step_of(part.number, work.seed) for name, array in weights.items()}
        content = b"".join(made[name].tobytes() for name in ("w", "b"))
        note("trained", task=work.task, crc=zlib.crc32(content))
        return client.Update(made, loss=1.0, loss_rms=1.0, num_steps=1)

    try:
        outcome = client.join(
            part.address,
            train,
            num_examples=NUM_EXAMPLES,
            identity=part.identity,
            number=part.number,
            keep=part.keep,
        )
    except Terminated:
        sys.exit(143)
    except KeyboardInterrupt:
        sys.exit(130)
    note("over", reason=outcome.reason)


def keep_diary(note: Any) -> None:
    """Note all that the server says, before anything is done about it."""
    told, ordered, welcomed = bench.Bench.told, bench.Bench.ordered, bench.Bench.welcomed

    def hears(self: Any, said: Any) -> None:
        note(type(said).__name__, task=said.task)
        told(self, said)

    def takes(self: Any, order: Any) -> None:
        note("Order", task=order.task)
        ordered(self, order)

    def enters(self: Any, welcome: Any) -> bool:
        note("Welcome", wanted=welcome.wanted, settled=welcome.settled)
        return welcomed(self, welcome)

    bench.Bench.told = hears  # type: ignore[method-assign]
    bench.Bench.ordered = takes  # type: ignore[method-assign]
    bench.Bench.welcomed = enters  # type: ignore[method-assign]


# --- what must be true ----------------------------------------------------------------------------


def recomputed(run: Run, lines: list[Line]) -> tuple[torch.Tensor, dict[int, int]]:
    """The last version, and the checksum of every task's update, by the plainest loop."""
    start = start_of(run)
    versions = [torch.from_numpy(np.concatenate([start["w"], start["b"]]))]
    turns: dict[int, int] = {}
    updates: dict[int, tuple[int, torch.Tensor]] = {}
    checksums, last = {}, run.size - 1
    for line in lines:
        if line["kind"] == "started":
            number, version = line["client"], line["version"]
            seed = derive(SEED, "train", number, turns.get(number, 0))
            turns[number] = turns.get(number, 0) + 1
            flat = torch.from_numpy(versions[version].numpy() + step_of(number, seed))
            updates[line["task"]] = version, flat
            checksums[line["task"]] = zlib.crc32(flat.numpy().tobytes())
        if line["kind"] == "aggregated":
            now, new = versions[-1], versions[-1].clone()
            for task, coefficient in zip(line["tasks"], line["weights"], strict=True):
                version, flat = updates.pop(task)
                new[:last].add_((flat - versions[version])[:last], alpha=coefficient)
                new[last:].add_(flat[last:] - now[last:], alpha=coefficient)
            versions.append(new)
    return versions[-1], checksums


def assert_sound(run: Run, honest: list[Part], *, reasons: set[str] = OURS) -> list[Line]:
    """Hold the log, the diaries and the model of a run that is over against each other."""
    lines = run.lines
    assert_lawful(in_time(lines), run.concurrency)
    assert lines[-1]["reason"] == "versions"
    became = fates(lines)
    assert all(len(fate) == 1 for fate in became.values())  # none twice
    ended = {line["task"]: line for line in of_kind(lines, "failed", "left") if "task" in line}
    numbers = {part.number for part in honest}
    why = {line["reason"] for line in ended.values() if line["client"] in numbers}
    assert why <= reasons, why - reasons
    weights, checksums = recomputed(run, lines)
    for part in honest:
        assert_kept_faith(part, became.keys() | ended.keys(), checksums)
    saved = load_file(run.folder / "run" / "model.safetensors")
    assert weights.equal(torch.cat([saved["w"], saved["b"]]))  # to the last bit
    return lines


def assert_kept_faith(part: Part, known: set[int], checksums: dict[int, int]) -> None:
    """Of one client: nothing it did was lost, nothing that is safe was asked for again."""
    safe: set[int] = set()
    for note in part.noted():
        match note["what"]:
            case "Acknowledged":
                safe.add(note["task"])
            case "Welcome":
                assert not safe & {*note["wanted"]}, (part.number, note)
                safe |= {*note["settled"]}
            case "Order" | "begun":
                assert note["task"] not in safe, (part.number, note)
            case "trained":
                assert note["crc"] == checksums[note["task"]], (part.number, note)
                assert note["task"] in known, (part.number, note)  # used, dropped, or called off
    assert safe <= known, (part.number, safe - known)

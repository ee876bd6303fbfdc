"""A federation in real time: a server in a process of its own, clients that outlive it.

Clients keep a result in a file until they hear that it is safe, and send it again whenever they
find the server anew. So does the server with tasks: both are delivered at least once.
"""

from __future__ import annotations

import json
import queue
import threading
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import torch
from runs import NUM_EXAMPLES, START, outcome, policies
from torch import nn

from pisces.data.federated import FederatedData
from pisces.execute.base import Capabilities, Executor, Handover
from pisces.execute.latency import PerClient
from pisces.parts import Simulation
from pisces.record.checkpoint import Checkpoints
from pisces.seeds import derive, generator
from pisces.simulation import run
from pisces.stop import Stop
from pisces.types import Arrived, Event, Joined, Left, Plan, Report, Task, Weights

NUM_CLIENTS, CONCURRENCY, SEED = 8, 4, 1
HUNG_UP = (EOFError, OSError)


def send(line: Connection, facts: Mapping[str, Any], flat: torch.Tensor | None = None) -> None:
    content = b"" if flat is None else flat.numpy().tobytes()
    line.send_bytes(json.dumps(facts).encode() + b"\n" + content)


def receive(line: Connection) -> tuple[dict[str, Any], torch.Tensor]:
    return parse(line.recv_bytes())


def parse(message: bytes) -> tuple[dict[str, Any], torch.Tensor]:
    text, _, content = message.partition(b"\n")
    flat = torch.frombuffer(bytearray(content), dtype=torch.float32) if content else torch.empty(0)
    return json.loads(text), flat


# --- the server -----------------------------------------------------------------------------------


class SocketExecutor(Executor):
    """Tasks and results over a socket; time is the machine's, from the first wait on."""

    def __init__(self, address: str) -> None:
        self._lock = threading.Lock()
        self._lines: dict[int, Connection] = {}
        self._running: dict[int, tuple[Task, float]] = {}
        self._unsafe: dict[int, int] = {}  # task -> its client: heard of, not written down yet
        self._handed_out: list[int] = []
        self._present: set[int] = set()
        self._heard: queue.Queue[tuple[dict[str, Any], torch.Tensor]] = queue.Queue()
        self._began: float | None = None
        self._now = 0.0  # when the last wait was over
        self._listener = Listener(address, "AF_UNIX", backlog=16)
        self._is_open = False

    @property
    def now(self) -> float:
        return self._now

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(real_time=True, cancels=True, num_clients=NUM_CLIENTS, takes_over=True)

    @property
    def quiet(self) -> bool:
        return False

    def submit(self, task: Task) -> None:
        with self._lock:
            self._running[task.id] = (task, self.now)
            self._send_task(task)

    def cancel(self, task_id: int) -> None:
        with self._lock:
            if task_id in self._running:
                task, _ = self._running.pop(task_id)
                self._tell(task.client, {"kind": "drop", "task": task_id})

    def acknowledge(self) -> None:
        with self._lock:
            for task_id in self._handed_out:
                self._tell(self._unsafe.pop(task_id), {"kind": "safe", "task": task_id})
            self._handed_out.clear()

    def take_over(self, left: Handover) -> None:
        self._now, self._began = left.now, time.monotonic() - left.now
        self._running = {task.id: (task, at) for task, at in left.running}
        self._present = set(left.present)

    def wait(self, until: float) -> list[Event]:
        if not self._is_open:
            self._is_open = True
            threading.Thread(target=self._welcome, daemon=True).start()
        if self._began is None:
            self._began = time.monotonic()
            return []
        messages = []
        with suppress(queue.Empty):
            wait_s = min(until, self._next_due()) - (time.monotonic() - self._began)
            messages.append(self._heard.get(timeout=max(0.0, wait_s)))
            while True:
                messages.append(self._heard.get_nowait())
        self._now = time.monotonic() - self._began
        return self._events(messages) or self._expired()

    def close(self) -> None:
        time.sleep(0.05)  # let the last words arrive
        self._listener.close()

    def _next_due(self) -> float:
        dues = [at + (task.deadline_s or 1e9) for task, at in self._running.values()]
        return min(dues, default=self.now + 1e6)

    def _expired(self) -> list[Event]:
        now, events = self.now, []
        for task, at in list(self._running.values()):
            if now >= at + (task.deadline_s or 1e9):
                del self._running[task.id]
                self._present.discard(task.client)
                events.append(Left(now, task.client, "deadline passed", task.id))
        return events

    def _events(self, messages: list[tuple[dict[str, Any], torch.Tensor]]) -> list[Event]:
        now, events = self.now, []
        for facts, flat in messages:
            if facts["kind"] == "hello":
                events.append(Joined(now, facts["client"], NUM_EXAMPLES))
            else:
                weights, report = Weights(flat, START.layout), Report(**facts["report"])
                events.append(Arrived(now, facts["task"], facts["client"], weights, report))
                self._handed_out.append(facts["task"])
        return events

    # --- threads ----------------------------------------------------------------------------------

    def _welcome(self) -> None:
        with suppress(*HUNG_UP):
            while True:
                line = self._listener.accept()
                threading.Thread(target=self._listen, args=(line,), daemon=True).start()

    def _listen(self, line: Connection) -> None:
        with suppress(*HUNG_UP):
            while True:
                facts, flat = receive(line)
                with self._lock:
                    self._take(line, facts, flat)

    def _take(self, line: Connection, facts: dict[str, Any], flat: torch.Tensor) -> None:
        client = facts["client"]
        if facts["kind"] == "hello":
            self._lines[client] = line
            if client not in self._present:
                self._present.add(client)
                self._heard.put((facts, flat))
            for task, _ in self._running.values():
                if task.client == client and task.id not in facts["holds"]:
                    self._send_task(task)
            return
        task_id = facts["task"]
        if task_id in self._running:
            del self._running[task_id]
            self._unsafe[task_id] = client
            self._heard.put((facts, flat))
        elif task_id not in self._unsafe:  # it ended, and what became of it is written down
            self._tell(client, {"kind": "safe", "task": task_id})

    def _send_task(self, task: Task) -> None:
        facts = {"kind": "task", "task": task.id, "version": task.version, "seed": task.seed}
        self._tell(task.client, {**facts, "plan": asdict(task.plan)}, task.weights.flat)

    def _tell(
        self, client: int, facts: Mapping[str, Any], flat: torch.Tensor | None = None
    ) -> None:
        if client in self._lines:
            with suppress(*HUNG_UP):
                send(self._lines[client], facts, flat)


class Four(nn.Module):
    """A model of four numbers, those that `START` has; the clients of this file train it."""

    b: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(START.flat[:3].clone())
        self.register_buffer("b", START.flat[3:].clone())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.w + self.b


def federation(num_versions: int) -> Simulation:
    """The run; of its data only the test set is ever looked at."""
    inputs, targets = torch.eye(3).repeat(4, 1)[:NUM_EXAMPLES], torch.arange(NUM_EXAMPLES) % 3
    return Simulation(
        policies=policies("fedbuff", CONCURRENCY, buffer_size=3),
        model=Four(),
        data=FederatedData.from_clients([(inputs, targets)] * NUM_CLIENTS, (inputs, targets)),
        latency=PerClient([1.0] * NUM_CLIENTS),
        stop=Stop(versions=num_versions),
        seed=SEED,
        deadline_s=60.0,
        device="cpu",
    )


def serve(folder: Path, address: str, num_versions: int) -> None:
    """Begin the run in a folder, or go on with it."""
    Path(address).unlink(missing_ok=True)
    run(
        federation(num_versions),
        protocol="fedbuff",
        out=folder / "run",
        checkpoints=Checkpoints(0.3),
        resume=(folder / "run").exists(),
        executor=SocketExecutor(address),
    )


# --- the clients ----------------------------------------------------------------------------------


class Member(threading.Thread):
    """A client: trains what it is given, and keeps the result until it is safe."""

    def __init__(self, number: int, folder: Path, address: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.done: dict[int, list[int]] = {}  # task -> checksums of its results, one per training
        self.safe: list[int] = []
        self.lost: list[int] = []  # it was told that they are safe, and then asked for them again
        self.num_sent_again = 0
        self.leaves = threading.Event()
        self._number, self._address = number, address
        self._folder = folder / f"client-{number}"
        self._folder.mkdir()
        self._rng = generator(seed, "member", number)

    @property
    def held(self) -> list[int]:
        """Tasks whose results it keeps."""
        return sorted(int(path.stem) for path in self._folder.glob("*.result"))

    def run(self) -> None:
        while not self.leaves.is_set():
            with suppress(*HUNG_UP), Client(self._address, "AF_UNIX") as line:
                self._talk(line)
            time.sleep(0.01)

    def _talk(self, line: Connection) -> None:
        send(line, {"kind": "hello", "client": self._number, "holds": self.held})
        for task_id in self.held:
            self.num_sent_again += 1
            line.send_bytes(self._path(task_id).read_bytes())
        while not self.leaves.is_set():
            if not line.poll(0.1):
                continue
            facts, flat = receive(line)
            if facts["kind"] == "task":
                self.lost += [facts["task"]] if facts["task"] in self.safe else []
                self._train(facts, flat)
                line.send_bytes(self._path(facts["task"]).read_bytes())
            else:
                self._path(facts["task"]).unlink(missing_ok=True)
                if facts["kind"] == "safe":
                    self.safe.append(facts["task"])

    def _train(self, facts: dict[str, Any], flat: torch.Tensor) -> None:
        if self._path(facts["task"]).exists():
            return
        time.sleep(self._rng.uniform(0.005, 0.05))
        plan, weights = Plan(**facts["plan"]), Weights(flat, START.layout)
        task = Task(facts["task"], self._number, facts["version"], weights, plan, facts["seed"])
        made = outcome(task)
        told = {"kind": "result", "task": task.id, "client": self._number}
        text = json.dumps({**told, "report": asdict(made.report)}).encode()
        content = made.weights.flat.numpy().tobytes()
        self.done.setdefault(task.id, []).append(zlib.crc32(content))
        beside = self._path(task.id).with_suffix(".part")
        beside.write_bytes(text + b"\n" + content)
        beside.replace(self._path(task.id))

    def _path(self, task_id: int) -> Path:
        return self._folder / f"{task_id}.result"


# --- by hand --------------------------------------------------------------------------------------


def recomputed(lines: list[dict[str, Any]]) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
    """The last version, and every task's update, by the plainest loop over the log."""
    versions, turns, updates = [START.flat], [0] * NUM_CLIENTS, {}
    for line in lines:
        if line["kind"] == "started":
            client, version = line["client"], line["version"]
            seed = derive(SEED, "train", client, turns[client])
            turns[client] += 1
            base = Weights(versions[version], START.layout)
            task = Task(line["task"], client, version, base, Plan(), seed)
            updates[task.id] = (versions[version], outcome(task).weights.flat)
        if line["kind"] == "aggregated":
            now, new = versions[-1], versions[-1].clone()
            for number, coefficient in zip(line["tasks"], line["weights"], strict=True):
                base_flat, flat = updates[number]
                new[:3].add_((flat - base_flat)[:3], alpha=coefficient)
                new[3:].add_(flat[3:] - now[3:], alpha=coefficient)
            versions.append(new)
    return versions[-1], {number: flat for number, (_, flat) in updates.items()}

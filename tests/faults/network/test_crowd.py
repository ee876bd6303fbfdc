"""Twenty clients as processes, of which some are slow, killed, cut off, or hostile."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from federation_processes import Part, Run, assert_sound
from forking import Process, Processes, becomes, go_home
from hostile_processes import KINDS, be_hostile, be_stranger
from proxy import Proxy, Way
from runs import of_kind

SEED = int(os.environ.get("PISCES_KILL_SEED", "20261116"))
SIZE = 270_000  # numbers: a little more than one chunk
GOOD, SLOW, KILLED, CUT, COMES_AND_GOES = range(5), (5, 6), (7, 8, 9), (10, 11, 12), (13,)
HOSTILE = dict(zip(range(14, 20), ("garbage", "flood", "sizes", "others", "nan"), strict=False))
MORE_HOSTILE = dict(zip(range(14, 23), KINDS, strict=True))
WAYS: tuple[Way, ...] = ("cut", "reset", "swallow")
TERMS = {"at_least": 14, "beat_s": 0.5, "patience_s": 4.0}
REASONS = {"the run stopped", "did not come back", "said goodbye", "deadline passed"}
REFUSED = "update refused"


class Crowd:
    """Plays what happens to the clients until the server has enough."""

    def __init__(
        self, processes: Processes, run: Run, proxies: list[Proxy], hostile: dict[int, str]
    ) -> None:
        self._processes, self._run, self._proxies = processes, run, proxies
        self._rng = random.Random(SEED)
        self.num_kills = self.num_leaves = 0
        through = dict(zip(CUT, proxies, strict=True))
        self.parts = {
            number: self._part(number, through[number].address if number in CUT else run.address)
            for number in (*GOOD, *SLOW, *KILLED, *CUT, *COMES_AND_GOES, *hostile)
        }
        self._hostile = hostile
        self.honest: dict[int, Process] = {}
        self.bad: list[Process] = []

    def _part(self, number: int, address: str) -> Part:
        within = dict.fromkeys(SLOW, (0.4, 0.8)) | dict.fromkeys(KILLED, (0.1, 0.4))
        train_s = within.get(number, (0.01, 0.05))
        return Part(number, address, self._run.certs, self._processes.folder, train_s)

    def start(self) -> None:
        for number, part in self.parts.items():
            if number in self._hostile:
                args = (part, self._hostile[number], self._run.size)
                self.bad.append(self._processes.start("bad", be_hostile, *args))
            else:
                self.honest[number] = part.start(self._processes)
        self._processes.start("stranger", be_stranger, self._run.address)

    def play(self, server: Process) -> None:
        """Something happens to somebody, until the run is over."""
        for number in (*KILLED, *CUT):  # to each at least once, as soon as it is there
            self._strike(number)
        while server.code is None:
            time.sleep(self._rng.uniform(0.05, 0.25))
            self._strike(self._rng.choice((*KILLED, *CUT, *COMES_AND_GOES)))

    def _strike(self, number: int) -> None:
        if number in CUT:
            proxy = self._proxies[CUT.index(number)]
            num_bytes = self._rng.randrange(1, 4 * SIZE * 2)  # in the midst of a result
            if not proxy.will_break:
                proxy.break_after(num_bytes, WAYS[CUT.index(number)])
        elif number in COMES_AND_GOES:
            self._again(number, signal.SIGTERM)
            self.num_leaves += 1
        else:
            self._again(number, signal.SIGKILL)
            self.num_kills += 1

    def _again(self, number: int, end: int) -> None:
        """End a client, and start it anew."""
        process = self.honest[number]
        if end == signal.SIGKILL and self._rng.random() < 0.7:  # in the middle of training
            num = len(self.parts[number].noted("begun"))
            becomes(
                lambda: (
                    len(self.parts[number].noted("begun")) > num
                    or self._run_is_over
                    or bool(process.code)
                )
            )
        process.signal(end)
        process.ended()
        self.honest[number] = self.parts[number].start(self._processes)

    @property
    def _run_is_over(self) -> bool:
        return (self._run.folder / "run" / "summary.json").exists()


def crowd(processes: Processes, certs: Path, num_versions: int, hostile: dict[int, str]) -> str:
    """A run with everybody; what happened, in words."""
    run = Run(
        processes.folder,
        certs,
        num_versions,
        size=SIZE,
        concurrency=12,
        buffer_size=4,
        deadline_s=10.0,
        terms=TERMS,
    )
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(run.address)) for _ in CUT]
        it = Crowd(processes, run, proxies, hostile)
        server = run.start(processes)
        it.start()
        it.play(server)
        assert server.ended() == 0, server.said
        go_home([*it.honest.values()], 2.0)
        num_broken = sum(proxy.num_broken for proxy in proxies)
    lines = assert_sound(run, [it.parts[number] for number in it.honest], reasons=REASONS)
    assert all("tried" in process.said for process in it.bad)
    assert {line["client"] for line in of_kind(lines, "arrived")}.isdisjoint(hostile)
    assert {line["client"] for line in of_kind(lines, "arrived")} >= {*GOOD, *SLOW}
    assert not of_kind(lines, "dropped")
    refused = [line["client"] for line in of_kind(lines, "failed") if REFUSED in line["reason"]]
    by_kind = {kind: number for number, kind in hostile.items()}
    assert by_kind["nan"] in refused
    assert {*refused} <= {by_kind["nan"], by_kind.get("twice", -1)}
    assert it.num_kills > 0 < num_broken
    return (
        f"{len(it.parts)} clients, {it.num_kills} killed and {num_broken} lines broken, "
        f"{it.num_leaves} left and came back; {len(of_kind(lines, 'arrived'))} updates, "
        f"{len(refused)} of the hostile refused, {num_versions} versions"
    )


def test_twenty_clients_of_all_sorts(processes: Processes, certs: Path) -> None:
    crowd(processes, certs, 20, HOSTILE)


@pytest.mark.long
def test_many_clients_of_all_sorts(
    processes: Processes, certs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    came = crowd(processes, certs, 500, MORE_HOSTILE)
    with capsys.disabled():
        print(f"\n{datetime.now(UTC):%Y-%m-%d}, seed {SEED}: {came}")  # noqa: T201

"""Results between memory and disk: nothing waits for the disk, and nothing is mixed up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pisces.execute.network.client.holding import Held, Holding
from pisces.execute.network.client.stock import Stock
from pisces.execute.network.messages import Result
from pisces.execute.network.packing import pack
from pisces.types import Report


def held(task: int = 1, run: str = "run", value: float = 1.5) -> Held:
    content, data = pack(np.full(5, value, np.float32))
    return Held(run, Result(task, Report(10), content, 0), data)


class Slow(Holding):
    """A disk that writes when it may, as often as it may, and may refuse."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.may, self.refuses = threading.Semaphore(0), False

    def keep(self, held: Held, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        assert self.may.acquire(timeout=5)
        return not self.refuses and super().keep(held, is_wanted)


@pytest.fixture
def disk(tmp_path: Path) -> Slow:
    return Slow(tmp_path)


def test_a_result_is_there_before_it_is_on_the_disk(disk: Slow) -> None:
    async def scene() -> None:
        stock, mine = Stock(disk), held()
        stock.keep(mine)
        assert (stock.tasks("run"), disk.tasks("run")) == ({1}, [])
        assert await stock.find("run", 1) is mine
        disk.may.release(9)
        await stock.settled()
        assert (stock.tasks("run"), disk.tasks("run")) == ({1}, [1])
        found = await stock.find("run", 1)
        assert found is not None
        assert found is not mine

    asyncio.run(scene())


def test_forgotten_while_it_is_written_it_does_not_come_back(disk: Slow) -> None:
    async def scene() -> None:
        stock = Stock(disk)
        stock.keep(held())
        stock.forget("run", 1)
        assert not stock.has("run", 1)
        disk.may.release(9)
        await stock.settled()
        assert (stock.tasks("run"), disk.tasks("run")) == (set(), [])

    asyncio.run(scene())


def test_a_task_that_is_done_again_while_its_first_result_is_written(disk: Slow) -> None:
    async def scene() -> None:
        stock, second = Stock(disk), held(value=2.5)
        stock.keep(held())
        stock.forget("run", 1)
        stock.keep(second)
        disk.may.release()
        await asyncio.sleep(0.05)  # the disk is done with the first
        assert await stock.find("run", 1) is second
        disk.may.release()
        await stock.settled()
        found = disk.read("run", 1)
        assert found is not None
        assert bytes(found.data) == bytes(second.data)

    asyncio.run(scene())


def test_a_result_of_another_run_is_not_taken_for_one_of_this(disk: Slow) -> None:
    async def scene() -> None:
        stock, mine = Stock(disk), held(run="new")
        stock.keep(held(run="old"))
        stock.keep(mine)
        disk.may.release()
        while not disk.tasks("old"):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)  # it has heard of that
        assert await stock.find("new", 1) is mine
        disk.may.release()
        await stock.settled()
        assert (disk.tasks("old"), disk.tasks("new")) == ([1], [1])

    asyncio.run(scene())


def test_what_follows_a_result_the_disk_refused_is_kept(disk: Slow) -> None:
    """The first is forgotten when it is in memory only; the task comes again, and is done."""

    async def scene() -> None:
        stock = Stock(disk)
        disk.may.release(9)
        disk.refuses = True
        stock.keep(held())
        await stock.settled()
        assert stock.has("run", 1)
        stock.forget("run", 1)
        disk.refuses = False
        stock.keep(held(value=2.5))
        await stock.settled()
        found = disk.read("run", 1)
        assert found is not None
        assert bytes(found.data) == bytes(held(value=2.5).data)

    asyncio.run(scene())


def test_a_file_that_is_gone_is_not_there_any_more(disk: Slow, tmp_path: Path) -> None:
    async def scene() -> None:
        stock = Stock(disk)
        disk.may.release(9)
        stock.keep(held())
        await stock.settled()
        assert stock.has("run", 1)
        next(tmp_path.glob("*.held")).unlink()
        assert await stock.find("run", 1) is None
        assert not stock.has("run", 1)

    asyncio.run(scene())


def test_the_disk_is_not_touched_in_the_networks_thread(
    disk: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.may.release(9)
    here: list[str] = []

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                here.append(name)
            return real(*arguments)

        return call

    async def scene(stock: Stock) -> None:
        for task in range(3):
            stock.keep(held(task))
        await stock.settled()
        assert stock.tasks("run") == {0, 1, 2}
        await stock.find("run", 1)
        stock.forget("run", 1)
        stock.tidy("run")
        await stock.settled()
        assert stock.tasks("run") == {0, 2}
        assert here == ["tasks"]  # of a run it did not know of, once
        assert disk.tasks("run") == [0, 2]

    stock = Stock(disk)
    for name in ("keep", "read", "forget", "tidy", "tasks", "has", "latest_run"):
        if hasattr(disk, name):
            monkeypatch.setattr(disk, name, watched(name, getattr(disk, name)))
    asyncio.run(scene(stock))

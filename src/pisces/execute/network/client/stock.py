"""Finished results, in memory until they are on the disk, and forgotten when nobody needs them.

All of it is called in the network's thread, and nothing waits for the disk. That has a thread of
its own, which does one thing after the other: what is forgotten while it is written goes after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pisces.execute.network.client.holding import Held, Holding


class Stock:
    """What a client has done and the server may not have, of whatever run."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._fresh: dict[tuple[str, int], Held] = {}  # by run and task; not on the disk (yet)
        self._written: dict[str, set[int]] = {}  # by run, once asked for
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="pisces-disk")
        self._doing: set[asyncio.Future[Any]] = set()
        self.tasks(self.latest_run())  # as long as nobody waits

    def latest_run(self) -> str:
        """The run of the newest result on the disk; empty: there is none."""
        return self._holding.latest_run()

    def tasks(self, run: str) -> set[int]:
        """Whose results of a run are there; looks at the disk the first time only."""
        if run not in self._written:
            self._written[run] = set(self._holding.tasks(run))
        return self._written[run] | {task for its, task in self._fresh if its == run}

    def has(self, run: str, task: int) -> bool:
        """Is the result of a task there?"""
        return task in self.tasks(run)

    def keep(self, held: Held) -> None:
        """Have a result; on the disk soon, unless it is forgotten before."""
        self._fresh[held.run, held.task] = held
        keeping = self._soon(self._holding.keep, held, partial(self._is_fresh, held))
        keeping.add_done_callback(partial(self._kept, held))

    def _is_fresh(self, held: Held) -> bool:
        return self._fresh.get((held.run, held.task)) is held

    def _kept(self, held: Held, keeping: asyncio.Future[bool]) -> None:
        """What the disk refuses stays in memory."""
        if not keeping.cancelled() and keeping.result() and self._is_fresh(held):
            del self._fresh[held.run, held.task]
            if held.run in self._written:
                self._written[held.run].add(held.task)

    async def find(self, run: str, task: int) -> Held | None:
        """One result, whole; None: it is not there, or damaged."""
        held = self._fresh.get((run, task)) or await self._soon(self._holding.read, run, task)
        if held is None:
            self._written.get(run, set()).discard(task)
        return held

    def forget(self, run: str, task: int) -> None:
        """Nobody needs this one any more."""
        if self.has(run, task):
            self._fresh.pop((run, task), None)
            self._written[run].discard(task)
            self._soon(self._holding.forget, run, task)

    def tidy(self, run: str) -> None:
        """Remove what is damaged or of other runs than this, if nobody came for it for long."""
        self._soon(self._holding.tidy, run)

    async def settled(self) -> None:
        """The disk has done all there was to do."""
        await asyncio.gather(*self._doing, return_exceptions=True)

    def _soon(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        doing = asyncio.get_running_loop().run_in_executor(self._disk, function, *arguments)
        self._doing.add(doing)
        doing.add_done_callback(self._doing.discard)
        return doing

"""Versions ready to be sent: packed once, however many clients are sent them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from pisces.execute.network.coding import to_client
from pisces.execute.network.messages import Chunk, Content
from pisces.execute.network.packing import Flat, pack, parts
from pisces.types import Task

Packed = tuple[Content, list[bytes]]
LARGE_BYTES = 1 << 20  # weights whose packing is worth a thread
MOST_KEPT = 3  # of the versions sent last; slower clients' tasks are packed again


class Shelf:
    """Keeps the last versions as the messages that carry them."""

    def __init__(self, *, zstd: bool = False) -> None:
        self._zstd = zstd
        self._kept: OrderedDict[tuple[int, bool], asyncio.Future[Packed]] = OrderedDict()

    async def packed(self, task: Task, *, zstd: bool = False) -> Packed:
        """The weights of a task's version; compressed, if that is wanted and its client can."""
        key = task.version, zstd and self._zstd
        if key not in self._kept:
            self._kept[key] = _packing(task, zstd=key[1])
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        try:
            return await asyncio.shield(self._kept[key])
        except Exception:
            self._kept.pop(key, None)  # whoever asks next, packs anew
            raise


def _packing(task: Task, *, zstd: bool) -> asyncio.Future[Packed]:
    """In a thread, unless that would take longer than the packing."""
    loop = asyncio.get_running_loop()
    if task.weights.layout.size * 8 > LARGE_BYTES or zstd:
        return loop.run_in_executor(None, _pack, task, zstd)
    done: asyncio.Future[Packed] = loop.create_future()
    done.set_result(_pack(task, zstd))
    return done


def _pack(task: Task, zstd: bool) -> Packed:
    content, rest = parts(*pack(flat_of(task), zstd=zstd))
    return content, [to_client(Chunk(chunk)) for chunk in rest]


def flat_of(task: Task) -> Flat:
    """The weights a task begins from, as numpy has them."""
    flat: Flat = task.weights.flat.numpy(force=True)
    return flat

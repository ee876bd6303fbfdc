"""Versions ready to be sent: packed once, however many clients are sent them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from pisces.execute.network.messages import Chunk, Content, Encoding, to_client
from pisces.execute.network.packing import Flat, chunks, pack
from pisces.types import Layout, Task

Packed = tuple[Content, list[bytes]]
MOST_KEPT = 3  # of the versions sent last; slower clients' tasks are packed again


class Shelf:
    """Keeps the last versions as the messages that carry them."""

    def __init__(self, layout: Layout, *, zstd: bool = False) -> None:
        double = any(s.dtype == "float64" for s in layout.slices)
        self.encoding: Encoding = "float64" if double else "float32"
        self._zstd = zstd
        self._kept: OrderedDict[tuple[int, bool], asyncio.Future[Packed]] = OrderedDict()

    async def packed(self, task: Task, *, zstd: bool = False) -> Packed:
        """The weights of a task's version; compressed, if that is wanted and its client can."""
        key = task.version, zstd and self._zstd
        if key not in self._kept:
            loop = asyncio.get_running_loop()
            self._kept[key] = loop.run_in_executor(None, _pack, task, key[1])
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        try:
            return await asyncio.shield(self._kept[key])
        except Exception:
            self._kept.pop(key, None)  # the next may have better luck
            raise


def _pack(task: Task, zstd: bool) -> Packed:
    content, data = pack(flat_of(task), zstd=zstd)
    return content, [to_client(Chunk(chunk)) for chunk in chunks(data)]


def flat_of(task: Task) -> Flat:
    """The weights a task begins from, as numpy has them."""
    flat: Flat = task.weights.flat.numpy(force=True)
    return flat

"""Weights as bytes, in chunks, and back; numpy only, so that a client needs no torch.

Numbers are little-endian. Weights travel as they are. A result may be rounded: `float16` sends what
training added, each number divided by one `scale` so that the largest is far from both ends of its
range, which costs a relative error of 2^-11 of the step, not of the weights.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pisces.errors import MissingPackageError
from pisces.execute.network.extra import needed
from pisces.execute.network.messages import (
    Content,
    Encoding,
    WireError,
)
from pisces.types import Layout

Flat: TypeAlias = NDArray[Any]  # of float32 or float64
CHUNK_BYTES = 1 << 20
MOST_MESSAGE_BYTES = CHUNK_BYTES + 4096  # a chunk, and what is around it
SLACK_BYTES = 4096  # by which zstd may make something longer, besides 1/256 of it
DTYPES: dict[Encoding, str] = {"float32": "<f4", "float64": "<f8", "float16": "<f2"}
LARGEST_HALF = 2.0**14  # of float16's 65504


def digest(layout: Layout) -> int:
    """What tells layouts of one size apart: names, shapes, types, roles; see `wire.proto`."""
    lines = (f"{s.role} {s.dtype} {','.join(map(str, s.shape))} {s.name}\n" for s in layout.slices)
    return zlib.crc32("".join(lines).encode(errors="replace"))


def exact(flat: Flat) -> Encoding:
    """The encoding that keeps every bit."""
    return "float64" if flat.dtype == np.float64 else "float32"


def pack(flat: Flat, *, zstd: bool = False) -> tuple[Content, memoryview]:
    """Weights as they are."""
    encoding = exact(flat)
    return _announced(encoding, flat.astype(DTYPES[encoding], copy=False), zstd, 0.0)


def pack_step(flat: Flat, began: Flat, *, zstd: bool = False) -> tuple[Content, memoryview]:
    """What was added to the weights one began from, in half the bytes; below 2^-135, nothing."""
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite stays so
        step = flat - began
        scale = float(np.float32(np.max(np.abs(step), initial=0.0) / LARGEST_HALF))
        scale = scale if np.isfinite(scale) else 1.0
        scaled = step / scale if scale > 0 else step
        return _announced("float16", scaled.astype(DTYPES["float16"]), zstd, scale)


def _announced(
    encoding: Encoding, values: NDArray[Any], zstd: bool, scale: float
) -> tuple[Content, memoryview]:
    data = np.ascontiguousarray(values).data.cast("B")
    if zstd:
        data = memoryview(_zstandard().ZstdCompressor(level=1).compress(data))
    return Content(encoding, len(data), zstd, scale), data


def parts(content: Content, data: memoryview) -> tuple[Content, Iterator[bytes]]:
    """As it is sent: all of it at once where that fits a message, else announced and in chunks."""
    if len(data) <= CHUNK_BYTES:
        return replace(content, data=bytes(data)), iter(())
    return content, chunks(data)


def chunks(data: memoryview) -> Iterator[bytes]:
    """In pieces that fit a message."""
    for start in range(0, len(data), CHUNK_BYTES):
        yield bytes(data[start : start + CHUNK_BYTES])


def check_chunk(data: bytes, num_left: int) -> None:
    """Is this the next chunk, where so many bytes are to come?"""
    expected = min(CHUNK_BYTES, num_left)
    if not data or len(data) != expected:
        raise WireError(f"a chunk of {len(data)} bytes, not of {expected}")


def check_length(num_bytes: int, size: int) -> None:
    """May weights of a size be that long, however they are encoded?"""
    if num_bytes > _most_packed(size * 8):
        raise WireError(f"{num_bytes} bytes of weights, more than any weights here take")


def _most_packed(num_raw: int) -> int:
    return num_raw + num_raw // 256 + SLACK_BYTES


class Intake:
    """Takes in what was announced; never more than that, nor more than weights of a size take."""

    def __init__(self, content: Content, size: int, *, wanted: Encoding = "float32") -> None:
        self._content, self._size, self._wanted = content, size, wanted
        if content.encoding not in ("float16", wanted):
            raise WireError(f"weights of {content.encoding}, not {wanted}")
        self._num_raw = size * np.dtype(DTYPES[content.encoding]).itemsize
        self._check_length(content)
        self._data = bytearray(content.num_bytes)
        self._filled = 0
        if content.data:
            self.add(content.data)

    def _check_length(self, content: Content) -> None:
        num, most = content.num_bytes, _most_packed(self._num_raw)
        if not 0 < num <= most if content.zstd else num != self._num_raw:
            raise WireError(f"{content.num_bytes} bytes of weights, not {self._num_raw}")

    def add(self, data: bytes) -> None:
        """The next chunk; all are of one size but the last, so nobody can send byte by byte."""
        check_chunk(data, len(self._data) - self._filled)
        stop = self._filled + len(data)
        self._data[self._filled : stop] = data
        self._filled = stop

    @property
    def is_rounded(self) -> bool:
        """Is it what was added, so that one has to know to what?"""
        return self._content.encoding == "float16"

    @property
    def is_whole(self) -> bool:
        """Is all of it there?"""
        return self._filled == len(self._data)

    def weights(self, began: Flat | None = None) -> Flat:
        """The weights; what was rounded is added to those that training began from."""
        # No checksum: TLS has one for every record, and one of ours took as long as the rest.
        raw = self._decompressed() if self._content.zstd else self._data
        values = np.frombuffer(raw, DTYPES[self._content.encoding])
        dtype: Any = np.float64 if self._wanted == "float64" else np.float32
        if not self.is_rounded:
            # In native byte order, and never what torch may not write to.
            return values.astype(dtype, copy=not values.flags.writeable)
        if began is None:
            raise WireError("rounded weights, which only a result may have")
        with np.errstate(over="ignore", invalid="ignore"):
            added: Flat = values.astype(dtype) * dtype(self._content.scale)
            return began + added

    def _decompressed(self) -> bytes:
        zstandard = _zstandard()
        data = bytes(self._data)
        try:
            # What a frame says of itself is where a small one asks for gigabytes.
            if zstandard.frame_content_size(data) != self._num_raw:
                raise WireError("compressed weights of another size")
            return bytes(zstandard.ZstdDecompressor().decompress(data))
        except zstandard.ZstdError as error:
            raise WireError("compressed weights that cannot be read") from error


def _zstandard() -> Any:
    with needed():
        import zstandard
    return zstandard


def can_decompress() -> bool:
    """Is the package for it there?"""
    try:
        _zstandard()
    except MissingPackageError:
        return False
    return True

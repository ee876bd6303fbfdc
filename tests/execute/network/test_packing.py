"""Weights as bytes: every bit, or as near as was promised, and nothing but what was announced."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pisces.execute.network.messages import (
    Content,
    WireError,
)
from pisces.execute.network.packing import (
    CHUNK_BYTES,
    Flat,
    Intake,
    chunks,
    digest,
    exact,
    pack,
    pack_step,
    parts,
)
from pisces.types import Layout, Role, Slice

anything = st.one_of(arrays(np.float32, st.integers(1, 40)), arrays(np.float64, st.integers(1, 40)))


def taken_in(content: Content, data: Any, size: int, **more: Any) -> Intake:
    intake = Intake(content, size, **more)
    for chunk in chunks(memoryview(data)):
        assert not intake.is_whole
        intake.add(chunk)
    assert intake.is_whole
    return intake


@given(anything, st.booleans())
def test_weights_keep_every_bit(flat: Flat, zstd: bool) -> None:
    content, data = pack(flat, zstd=zstd)
    back = taken_in(content, data, len(flat), wanted=exact(flat)).weights()
    assert back.dtype == flat.dtype
    assert back.tobytes() == flat.tobytes()
    assert back.flags.writeable  # as torch wants it


def test_chunks_are_whole_but_for_the_last() -> None:
    data = np.arange(CHUNK_BYTES // 4 * 2 + 3, dtype=np.float32)
    content, packed = pack(data)
    lengths = [len(chunk) for chunk in chunks(packed)]
    assert lengths == [CHUNK_BYTES, CHUNK_BYTES, 12]
    assert taken_in(content, packed, len(data)).weights().tobytes() == data.tobytes()


def test_numbers_are_little_endian() -> None:
    content, data = pack(np.array([1.0], ">f4"))
    assert bytes(data) == b"\x00\x00\x80\x3f"
    assert content == Content("float32", 4)


finite = st.floats(-(2.0**50), 2.0**50, width=32)


@given(arrays(np.float32, 30, elements=finite), arrays(np.float32, 30, elements=finite))
def test_a_rounded_step_is_as_near_as_promised(began: Flat, flat: Flat) -> None:
    content, data = pack_step(flat, began)
    assert content.num_bytes == 60
    back = taken_in(content, data, 30).weights(began)
    step = (flat - began).astype(np.float64)
    # Half an ulp of float16, and what float32 rounds when steps are taken and added; a step all of
    # which is below 2^-135 has no scale and is lost.
    largest = np.abs(step).max()
    promised = 2.0**-11 * np.abs(step) + 2.0**-39 * largest + 2.0**-135
    rounded = 2.0**-23 * (np.abs(began).astype(np.float64) + 2 * np.abs(step))
    assert (np.abs((back.astype(np.float64) - began) - step) <= 1.01 * promised + rounded).all()


@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-30, 1.0, 1e30, 3e38])
def test_a_rounded_step_of_any_size(size: float) -> None:
    flat, began = np.array([size, -size / 2, 0.0], np.float32), np.zeros(3, np.float32)
    content, data = pack_step(flat, began, zstd=True)
    back = taken_in(content, data, 3).weights(began)
    np.testing.assert_allclose(back, flat, rtol=2.0**-11, atol=2.0**-135)


def test_a_step_that_is_not_finite_stays_so() -> None:
    for flat in (np.array([np.nan, 1.0], np.float32), np.array([np.inf, 1.0], np.float32)):
        began = np.zeros(2, np.float32)
        content, data = pack_step(flat, began)
        assert not np.isfinite(taken_in(content, data, 2).weights(began)).all()
    huge = np.array([1e300, 1.0])
    content, data = pack_step(huge, np.zeros(2))
    back = taken_in(content, data, 2, wanted="float64").weights(np.zeros(2))
    assert not np.isfinite(back).all()
    few = taken_in(replace(content, scale=3e38), data, 2, wanted="float32")
    assert not np.isfinite(few.weights(np.full(2, 3e38, np.float32))).all()


def content_of(data: bytes, **more: Any) -> Content:
    return Content("float32", len(data), **more)


def test_another_size_is_refused_before_anything_is_kept() -> None:
    for num in (0, 15, 17, 2**62):
        with pytest.raises(WireError, match="bytes of weights, not 16"):
            Intake(Content("float32", num), 4)
    for num in (0, 2**62):
        with pytest.raises(WireError, match="bytes of weights, not 16"):
            Intake(Content("float32", num, zstd=True), 4)


def test_another_type_is_refused() -> None:
    with pytest.raises(WireError, match="weights of float64, not float32"):
        Intake(Content("float64", 32), 4)
    with pytest.raises(WireError, match="weights of float32, not float64"):
        Intake(Content("float32", 16), 4, wanted="float64")
    halves = taken_in(Content("float16", 8), bytes(8), 4)
    with pytest.raises(WireError, match="only a result"):
        halves.weights()


def test_chunks_of_another_length_are_refused() -> None:
    for wrong in (b"", bytes(15), bytes(17)):
        with pytest.raises(WireError, match=f"a chunk of {len(wrong)} bytes, not of 16"):
            Intake(content_of(bytes(16)), 4).add(wrong)
    whole = taken_in(content_of(bytes(16)), bytes(16), 4)
    with pytest.raises(WireError, match="a chunk of 1 bytes, not of 0"):
        whole.add(b"x")


def bomb(num_raw: int, *, tell: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=tell).compress(bytes(num_raw))


@pytest.mark.parametrize(
    "data",
    [
        bomb(1 << 30),  # a gigabyte in 32 kB, where 4 kB more than 16 bytes may come
        bomb(1 << 24),
        bomb(17),
        bomb(15),
        bomb(16, tell=False),
        b"no frame at all",
        bomb(16)[:-1],
        b"\x28\xb5\x2f\xfd",
        # It says 16 bytes of itself, and has 64 kB.
        bomb(16)[:6] + bomb(1 << 16)[9:],
    ],
)
def test_compressed_weights_of_another_size_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        taken_in(content_of(data, zstd=True), data, 4).weights()


@given(st.binary(min_size=1, max_size=100))
def test_any_bytes_are_weights_or_an_error_of_the_wire(data: bytes) -> None:
    try:
        flat = taken_in(content_of(data, zstd=True), data, 4).weights()
        assert flat.shape == (4,)
    except WireError:
        pass


def test_what_fits_a_message_is_sent_in_one() -> None:
    content, rest = parts(*pack(np.ones(4, np.float32)))
    assert list(rest) == []
    intake = Intake(content, 4)
    assert intake.is_whole
    assert intake.weights().tolist() == [1.0] * 4
    flat = np.ones(CHUNK_BYTES // 4 + 1, np.float32)  # four bytes too many
    content, rest = parts(*pack(flat))
    assert (content.data, [len(chunk) for chunk in rest]) == (b"", [CHUNK_BYTES, 4])


def test_layouts_of_one_size_have_digests_of_their_own() -> None:
    def of(name: str, shape: tuple[int, ...], dtype: str, role: Role) -> int:
        one = Slice("one", (), "float32", "parameter", 6, 7)
        return digest(Layout((Slice(name, shape, dtype, role, 0, 6), one)))

    made = of("w", (2, 3), "float32", "parameter")
    assert made == zlib.crc32(b"parameter float32 2,3 w\nparameter float32  one\n")
    assert made != of("v", (2, 3), "float32", "parameter")
    assert made != of("w", (3, 2), "float32", "parameter")
    assert made != of("w", (2, 3), "float64", "parameter")
    assert made != of("w", (2, 3), "float32", "buffer")

"""A Flower app's arrays as one vector of weights, and back.

Numbers that are averaged are float16, float32 or float64. Others (BatchNorm's counters) stay as
they were at first, and go along with every task. What comes back is read without numpy's own
loader: it must say that it is what is expected, in numpy's own words, before it is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pisces.errors import ConfigError
from pisces.execute.flower.api import Array, ArrayRecord
from pisces.types import Layout, Slice, Weights

AVERAGED = ("float16", "float32", "float64")
FLOATS = {np.dtype(name).str: np.dtype(name) for name in AVERAGED}
KEPT = "biu"  # kinds of numpy: truth values, integers
STATISTICS = ("running_mean", "running_var")  # how BatchNorm's are called
MAGIC = b"\x93NUMPY\x01\x00"  # of numpy's format 1.0; two bytes tell how long the header is
START = len(MAGIC) + 2
HEADER = re.compile(
    rb"\{'descr': '(?P<dtype>[<>=|]?[a-zA-Z]\d+)', 'fortran_order': (?P<order>False|True), "
    rb"'shape': \((?P<shape>[\d, ]*)\), \} *\n"
)


class RecordError(Exception):
    """A reply is not what it should be."""


@dataclass(frozen=True, slots=True, eq=False)
class Arrays:
    """How the arrays of one app lie in a vector, and those that do not."""

    layout: Layout
    names: tuple[str, ...]  # in the app's own order, which some ClientApps rely upon
    kept: Mapping[str, Array]

    @classmethod
    def of(cls, initial: ArrayRecord, buffers: Collection[str] | None) -> tuple[Arrays, Weights]:
        """Those to begin from. Without `buffers`, they are what BatchNorm's are called."""
        if not isinstance(initial, ArrayRecord):
            raise ConfigError(
                "initial_arrays: must be an ArrayRecord, such as ArrayRecord(model.state_dict()), "
                f"not {type(initial).__name__}"
            )
        if not initial:
            raise ConfigError("initial_arrays: must hold at least one array, not none")
        values = {name: array.numpy() for name, array in initial.items()}
        averaged = {name: v for name, v in values.items() if v.dtype.name in AVERAGED}
        kept = {name: initial[name] for name in values if name not in averaged}
        _check(averaged, {name: values[name] for name in kept})
        layout = _layout(averaged, _buffers(averaged, buffers))
        flat = np.empty(layout.size, layout.dtype)
        for s in layout.slices:
            flat[s.start : s.stop] = averaged[s.name].reshape(-1)
        return cls(layout, tuple(values), kept), Weights(torch.from_numpy(flat), layout)

    def record(self, weights: Weights) -> ArrayRecord:
        """The weights as the app knows them, and what is kept beside."""
        flat = weights.flat.numpy(force=True)
        made = {s.name: _array(flat[s.start : s.stop], s) for s in self.layout.slices}
        made |= self.kept
        return ArrayRecord({name: made[name] for name in self.names})

    def flat(self, record: ArrayRecord) -> NDArray[Any]:
        """A reply's arrays as one vector; refused unless they are those that were sent."""
        odd = set(record) ^ set(self.names)
        if odd:
            name = min(odd)
            raise RecordError(
                f"an array {shortened(name)} that was not sent"
                if name in record
                else f"no array {shortened(name)}"
            )
        flat = np.empty(self.layout.size, self.layout.dtype)
        with np.errstate(over="ignore"):  # what becomes infinite is refused, as all that is
            for s in self.layout.slices:
                flat[s.start : s.stop] = _read(record[s.name], s)
        return flat


def _array(flat: NDArray[Any], like: Slice) -> Array:
    return Array(flat.reshape(like.shape).astype(like.dtype, copy=False))


def _check(averaged: Mapping[str, NDArray[Any]], kept: Mapping[str, NDArray[Any]]) -> None:
    for name, value in kept.items():
        if value.dtype.kind not in KEPT:
            raise ConfigError(
                f"initial_arrays: {name} is of {value.dtype}: can be {', '.join(AVERAGED)} to be "
                "averaged, or integers to be kept; convert it"
            )
    if not any(value.size for value in averaged.values()):
        raise ConfigError(
            f"initial_arrays: none of {', '.join([*averaged, *kept])} holds numbers of "
            f"{', '.join(AVERAGED)}: there is nothing to average; convert them"
        )
    for name, value in averaged.items():
        if not np.isfinite(value).all():
            raise ConfigError(f"initial_arrays: {name} must be finite; mend it")


def _buffers(averaged: Collection[str], given: Collection[str] | None) -> set[str]:
    if given is None:
        return {name for name in averaged if name.rpartition(".")[2] in STATISTICS}
    unknown = sorted(set(given) - set(averaged))
    if unknown:
        raise ConfigError(
            f"buffers: {unknown[0]!r} is none of what is averaged: {', '.join(averaged)}"
        )
    return set(given)


def _layout(averaged: Mapping[str, NDArray[Any]], buffers: set[str]) -> Layout:
    """Parameters first, then buffers."""
    slices, start = list[Slice](), 0
    for name in sorted(averaged, key=lambda name: name in buffers):
        value = averaged[name]
        stop = start + value.size
        role: Any = "buffer" if name in buffers else "parameter"
        slices.append(Slice(name, value.shape, value.dtype.name, role, start, stop))
        start = stop
    return Layout(tuple(slices))


def _read(array: Array, like: Slice) -> NDArray[Any]:
    if array.stype != "numpy.ndarray":
        raise RecordError(f"{like.name}: written as {shortened(array.stype)}, not numpy.ndarray")
    dtype, shape, is_fortran, start = _header(array.data, like)
    if shape != like.shape:
        raise RecordError(f"{like.name}: of shape {shortened(shape)}, not {like.shape}")
    num_bytes = len(array.data) - start
    if num_bytes != (like.stop - like.start) * dtype.itemsize:
        raise RecordError(f"{like.name}: {num_bytes} bytes, which are not of {shape}")
    flat = np.frombuffer(array.data, dtype, offset=start)
    return flat.reshape(shape, order="F").reshape(-1) if is_fortran else flat


def _header(data: bytes, like: Slice) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """Type, shape, whether it lies as Fortran's do, and where the numbers begin.

    A ClientApp may well answer float32 by float64, as numpy does when nobody looks.
    """
    start = START + int.from_bytes(data[len(MAGIC) : START], "little")
    told = HEADER.fullmatch(data[START:start]) if data.startswith(MAGIC) else None
    if told is None:
        raise RecordError(f"{like.name}: no array as numpy writes it")
    dtype = FLOATS.get(told["dtype"].decode())
    if dtype is None:
        raise RecordError(f"{like.name}: of {told['dtype'].decode()[:20]}, not {like.dtype}")
    numbers = [number.strip() for number in told["shape"].split(b",") if number.strip()]
    if not all(number.isdigit() and len(number) < 20 for number in numbers):
        raise RecordError(f"{like.name}: of no shape")
    return dtype, tuple(map(int, numbers)), told["order"] == b"True", start

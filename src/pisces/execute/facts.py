"""Events as a journal has them: JSON for facts, raw bytes for weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from reprlib import repr as shortened  # a client may send anything, of any length
from typing import Any

import numpy as np
import torch

from pisces.types import Arrived, Event, Failed, Joined, Layout, Left, Report, Weights

KINDS: Mapping[str, type[Event]] = {
    "joined": Joined,
    "arrived": Arrived,
    "failed": Failed,
    "left": Left,
}
_NAMES = {kind: name for name, kind in KINDS.items()}
_OWN = ("weights", "report")  # are written in their own way
LARGEST = 1 << 63
# Of weights that can be written as they lie in memory.
DTYPES: Mapping[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
        *(torch.complex128, torch.complex64),
    )
}


def facts_of(event: Event, flat: torch.Tensor | None) -> dict[str, Any]:
    """What is to be written of an event; a client may have sent anything."""
    facts: dict[str, Any] = {"kind": _NAMES[type(event)]}
    facts |= {f.name: _plain(getattr(event, f.name)) for f in fields(event) if f.name not in _OWN}
    if isinstance(event, Arrived) and flat is not None:
        told = {f.name: _plain(getattr(event.report, f.name, None)) for f in fields(Report)}
        weights = {"dtype": str(flat.dtype).removeprefix("torch."), "shape": list(flat.shape)}
        facts |= {"report": told, "weights": weights}
    return facts


def _plain(value: Any) -> Any:
    """The value if it is JSON's own; in place of any other a text, which no check lets pass."""
    if isinstance(value, int):
        return value if -LARGEST <= value < LARGEST else "an integer beyond 64 bits"
    if value is None or isinstance(value, float | str):
        return value
    return shortened(value)


def event_of(facts: Mapping[str, Any], flat: torch.Tensor | None, layout: Layout) -> Event:
    """The event, the same whether it is heard or played: what is odd in it has become text."""
    own = {key: value for key, value in facts.items() if key != "kind"}
    if flat is not None:
        own["weights"] = Weights(flat, layout)
        own["report"] = Report(**facts["report"])
    return KINDS[facts["kind"]](**own)


def tensor_of(flat: Any) -> torch.Tensor:
    """A client's weights; an empty tensor, which no check lets pass, if they are none."""
    plain = isinstance(flat, torch.Tensor) and flat.layout is torch.strided
    return flat.detach() if plain and flat.dtype in DTYPES.values() else torch.empty(0)


def bytes_of(flat: torch.Tensor) -> memoryview:
    """A tensor as it lies in memory."""
    plain = flat.detach().cpu().contiguous().reshape(-1)
    if not len(plain):
        return memoryview(b"")
    octets: Any = plain.view(torch.uint8).numpy()
    return memoryview(octets)


def read(facts: Mapping[str, Any], content: memoryview) -> tuple[torch.Tensor, memoryview]:
    """A tensor, and what comes behind it."""
    flat = torch.empty(facts["shape"], dtype=DTYPES[facts["dtype"]])
    num = flat.nbytes
    if num:
        flat.reshape(-1).view(torch.uint8).numpy()[:] = np.frombuffer(content[:num], np.uint8)
    return flat, content[num:]

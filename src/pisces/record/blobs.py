"""Arrays on disk, each written once: safetensors files named by a hash of what they hold.

A large tensor has a file of its own, which all checkpoints that need it share. The small ones of a
checkpoint lie together in one file: a file each would cost more than to write them again.
"""

from __future__ import annotations

import hashlib
import re
import weakref
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from pisces.errors import RunError
from pisces.record.writer import read_file, replace_file, sync_folder

LARGE_BYTES = 1 << 16
SUFFIX = ".safetensors"
_NAME = re.compile(r"[0-9a-f]{32}" + re.escape(SUFFIX))


class Place(NamedTuple):
    """Where an array lies, and what it was: `numpy`, or a tensor on the `cpu` or a `device`."""

    file: str
    key: str
    kind: str


@dataclass(frozen=True, slots=True)
class Index:
    """Where arrays lie. Two names of one object have one place, and become one object again."""

    places: list[Place]
    names: dict[str, int]  # of an array -> its place

    @property
    def files(self) -> set[str]:
        """All that are needed."""
        return {place.file for place in self.places}


def digest(content: bytes) -> str:
    """A name for some bytes that no others have."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class Blobs:
    """A folder of arrays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sound: set[str] = set()  # files that were written, or read whole, by this process
        self._new: set[str] = set()  # of these, those written last
        # A large tensor by its identity -> itself, how often it was changed in place, its place.
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], int, Place]] = {}

    def write(self, arrays: Mapping[str, Any]) -> Index:
        """Write what is not there yet, to the disk itself; says where everything is."""
        self._new.clear()
        objects = {id(array): array for array in arrays.values()}
        small = {key: array for key, array in objects.items() if _num_bytes(array) < LARGE_BYTES}
        places = {key: self._place(objects[key]) for key in objects.keys() - small.keys()}
        places |= self._together(small)
        if self._new:
            sync_folder(self._folder)
        number = {key: n for n, key in enumerate(objects)}
        names = {name: number[id(array)] for name, array in arrays.items()}
        return Index([places[key] for key in objects], names)

    def take_back(self) -> None:
        """Remove what was written last: it came to nothing, and the disk may be full."""
        for file in self._new:
            (self._folder / file).unlink(missing_ok=True)
        self._sound -= self._new
        self._new.clear()

    def read(self, index: Index, device: torch.device) -> dict[str, Any]:
        """The arrays; a missing or damaged file is an error that names it."""
        found: dict[int, Any] = {}
        for file in index.files:
            tensors = self._tensors(file)
            for number, place in enumerate(index.places):
                if place.file == file:
                    found[number] = self._array(tensors, place, device)
        return {name: found[number] for name, number in index.names.items()}

    def remove_all_but(self, needed: Collection[str]) -> None:
        """Remove the files nobody needs any more, and what a crash has left."""
        for path in self._folder.iterdir():
            if path.name not in needed:
                path.unlink(missing_ok=True)
        self._sound &= set(needed)
        self._known = {key: known for key, known in self._known.items() if known[0]() is not None}

    # --- writing ----------------------------------------------------------------------------------

    def _place(self, array: Any) -> Place:
        """A large array in a file of its own, unless it is known to be there already."""
        tensor, num_changes, place = self._known.get(id(array), (lambda: None, 0, None))
        is_same = tensor() is array and num_changes == _num_changes(array)
        if place is not None and is_same and place.file in self._sound:
            return place
        place = Place(self._write({"0": _tensor(array)}), "0", _kind(array))
        self._remember(array, place)
        return place

    def _remember(self, array: Any, place: Place) -> None:
        if isinstance(array, torch.Tensor) and not array.is_inference():
            self._known[id(array)] = (weakref.ref(array), _num_changes(array), place)

    def _together(self, arrays: Mapping[int, Any]) -> dict[int, Place]:
        if not arrays:
            return {}
        # Sorted by the library, not by us: how many there are decides how long a key is.
        keys = {key: f"{n:06d}" for n, key in enumerate(arrays)}
        file = self._write({keys[key]: _tensor(array) for key, array in arrays.items()})
        return {key: Place(file, keys[key], _kind(array)) for key, array in arrays.items()}

    def _write(self, tensors: Mapping[str, torch.Tensor]) -> str:
        content = save(dict(tensors))
        file = digest(content) + SUFFIX
        if file not in self._sound:  # one that a crash has left may be anything
            is_new = not (self._folder / file).exists()  # a checkpoint not read may need it
            replace_file(self._folder / file, content)
            self._sound.add(file)
            if is_new:
                self._new.add(file)
        return file

    # --- reading ----------------------------------------------------------------------------------

    def _tensors(self, file: str) -> dict[str, torch.Tensor]:
        path = self._folder / file
        if not _NAME.fullmatch(file):  # nothing else is opened: it may be of any size, or elsewhere
            raise RunError(f"it names {file[:80]!r}, which is no file of arrays")
        try:
            content = read_file(path)
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror or error}") from error
        if digest(content) + SUFFIX != file:
            raise RunError(f"{path} is damaged")
        self._sound.add(file)
        try:
            tensors: dict[str, torch.Tensor] = load(content)
        except SafetensorError as error:
            raise RunError(f"{path} is not what it should be: {error}") from error
        return tensors

    def _array(
        self, tensors: Mapping[str, torch.Tensor], place: Place, device: torch.device
    ) -> Any:
        if place.key not in tensors:
            raise RunError(f"{self._folder / place.file} has no array {shortened(place.key)}")
        tensor = tensors[place.key].clone()  # its own memory: two objects may lie in one place
        if place.kind == "numpy":
            return tensor.numpy()
        tensor = tensor.to(device) if place.kind == "device" else tensor
        if tensor.nbytes >= LARGE_BYTES:
            self._remember(tensor, place)
        return tensor


def _num_bytes(array: Any) -> int:
    return int(array.nbytes)


def _num_changes(array: Any) -> int:
    """How often a tensor was changed in place; nobody counts that of numpy's arrays."""
    counts = isinstance(array, torch.Tensor) and not array.is_inference()
    return int(array._version) if counts else -1


def _kind(array: Any) -> str:
    if not isinstance(array, torch.Tensor):
        return "numpy"
    return "cpu" if array.device.type == "cpu" else "device"


def _tensor(array: Any) -> torch.Tensor:
    """The array as safetensors takes it: on the CPU, in one piece, sharing memory with no other."""
    if isinstance(array, torch.Tensor):
        return array.detach().cpu().contiguous().clone()
    return torch.from_numpy(np.array(array, order="C"))


def as_json(index: Index) -> dict[str, Any]:
    """The index as it stands in a checkpoint."""
    return {"places": [list(place) for place in index.places], "names": index.names}


def from_json(values: Mapping[str, Any]) -> Index:
    """The index that was written as these values."""
    return Index([Place(*place) for place in values["places"]], dict(values["names"]))


def files_of(indices: Collection[Index]) -> Iterator[str]:
    """The files that any of them needs."""
    for index in indices:
        yield from index.files

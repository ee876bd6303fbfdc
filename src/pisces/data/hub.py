"""Datasets by name from the Hugging Face hub, through its package `datasets`.

Its downloads show how far they are, go on where they were broken off, and are checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pisces.data.formats.columns import Table, TableReader
from pisces.data.raw import Raw, Tell, reading
from pisces.errors import DataError, MissingPackageError

_BATCH = 1000  # rows in memory at once


@dataclass(frozen=True, slots=True)
class Hub:
    """A dataset on the hub: its name, how to read its tables, and which parts of it."""

    name: str
    reader: TableReader
    splits: tuple[str, ...] = ("train", "test")

    def fetch(self, tell: Tell) -> Raw:
        """Download it, unless the hub's own cache has it, and read it."""
        datasets = _package(self.name)
        try:
            parts = datasets.load_dataset(self.name)
        except (OSError, ValueError, RuntimeError) as error:  # no network, no such name, no space
            reason = str(error).strip().partition("\n")[0]
            raise DataError(
                f"{self.name} could not be had from the Hugging Face hub ({reason}); try again, "
                "which goes on where it stopped, or read files: pisces data get NAME --from FOLDER"
            ) from error
        with reading(Path(self.name)):
            return self.reader.read([self._table(parts, split) for split in self.splits], tell)

    def _table(self, parts: Any, split: str) -> Table:
        if split not in parts:
            raise DataError(f"{self.name} has no part {split!r}, only {', '.join(parts)}")
        part = parts[split]
        batches = part.with_format("arrow").iter(batch_size=_BATCH)
        return Table(Path(self.name), len(part), batches)


def _package(name: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingPackageError(
            f"{name} is on the Hugging Face hub, which needs the package datasets: "
            "pip install 'pisces-fl[data]'"
        ) from error
    return datasets

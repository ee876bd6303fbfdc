"""Parquet files, such as those of Hugging Face. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pisces.data.formats.columns import Table, TableReader
from pisces.data.raw import Found, Raw, Tell, damaged, reading
from pisces.errors import MissingPackageError

_BATCH = 1000  # rows in memory at once
_MOST_ROWS = 1 << 28


@dataclass(frozen=True, slots=True)
class Parquet:
    """Files whose tables `read` understands: to train on, then perhaps to test on."""

    reader: TableReader

    def __call__(self, found: Found, tell: Tell) -> Raw:
        """What they hold."""
        return self.reader.read([_table(paths, self.reader.columns.names) for paths in found], tell)


def _table(paths: Sequence[Path], columns: list[str]) -> Table:
    files = [(path, _opened(path)) for path in paths]
    num_rows = sum(file.metadata.num_rows for _, file in files)
    if num_rows > _MOST_ROWS:
        raise damaged(paths[0], f"it claims {num_rows} rows")
    return Table(paths[0], num_rows, _batches(files, columns))


def _batches(files: Sequence[tuple[Path, Any]], columns: list[str]) -> Iterator[Any]:
    for path, file in files:
        there = [name for name in columns if name in file.schema_arrow.names]
        wanted = there if there == columns else None  # so that an error can say what there is
        with reading(path):
            yield from file.iter_batches(batch_size=_BATCH, columns=wanted)


def _opened(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackageError(
            f"{path} needs pyarrow, which is not installed: pip install 'pisces-fl[data]'"
        ) from error
    with reading(path):
        return pyarrow.parquet.ParquetFile(path)

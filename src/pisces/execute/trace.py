"""Trace files: what was measured of clients, as CSV or JSON, one row per line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from pisces.errors import DataError


def read_trace(
    path: str | PathLike[str], columns: Sequence[str]
) -> Iterator[tuple[str, int, list[Any]]]:
    """Rows of a trace: where each stands in the file, its client, and its unchecked values.

    `columns` starts with `client`. A JSON file (by its suffix) is a list by client or an object
    from client; each client has one value, or a list of rows of values.
    """
    header = ",".join(columns)
    try:
        text = Path(path).read_text("utf-8-sig")
        rows = _json_rows(text) if Path(path).suffix == ".json" else _csv_rows(text, header)
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read as a trace ({str(error)[:200]}); give the path of a CSV file "
            f"with the header {header} or of a .json file"
        ) from error
    for place, cells in rows:
        where = f"{path}, {place}"
        if len(cells) != len(columns):
            raise DataError(
                f"{where}: there must be {len(columns)} values ({header}), not {len(cells)}"
            )
        yield where, _client_id(where, cells[0]), cells[1:]


def trace_number(where: str, column: str, value: object) -> float:
    """A trace's value as a number."""
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise DataError(f"{where}: {column} must be a number, not {shortened(value)}; mend it")


def _csv_rows(text: str, header: str) -> list[tuple[str, list[Any]]]:
    lines = csv.reader(text.splitlines(), skipinitialspace=True)
    rows = [(f"line {lines.line_num}", [c.strip() for c in cells]) for cells in lines if cells]
    if not rows or ",".join(rows[0][1]) != header:
        raise ValueError(f"its header is not {header}")
    return rows[1:]


def _json_rows(text: str) -> list[tuple[str, list[Any]]]:
    clients = json.loads(text)
    if not isinstance(clients, list | dict):
        raise ValueError("it is neither a list nor an object")
    rows = []
    for client, value in clients.items() if isinstance(clients, dict) else enumerate(clients):
        for values in value if isinstance(value, list) else [value]:
            cells = values if isinstance(values, list) else [values]
            rows.append((f"client {client}", [client, *cells]))
    return rows


def _client_id(where: str, value: object) -> int:
    try:
        client = int(str(value))
    except ValueError:
        client = -1
    if client < 0:
        raise DataError(f"{where}: a client is a number from 0 on, not {shortened(value)}; mend it")
    return client

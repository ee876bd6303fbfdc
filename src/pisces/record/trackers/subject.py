"""Which run it is that trackers hear of: what they know it by when it goes on."""

from __future__ import annotations

import json
import logging
import re
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pisces.errors import RunError
from pisces.quantities import discreet
from pisces.record.trackers.base import Scalar, Subject, flat
from pisces.record.writer import read_file, replace_file

log = logging.getLogger("pisces")

TRACKERS = "trackers.json"
_ID = re.compile(r"[0-9a-f]{12}")


def subject_of(
    name: str, folder: Path | None, config_text: str, made: Mapping[str, Any], now_s: float
) -> Subject:
    """The run in this folder; its id and beginning are kept there, for when it is resumed."""
    known = None if folder is None else _known(folder / TRACKERS)
    key, began_at = known or (secrets.token_hex(6), now_s)
    if folder is not None and known is None:
        _keep(folder / TRACKERS, key, began_at)
    return Subject(
        name if folder is None else folder.resolve().name,
        key,
        began_at,
        folder if folder is None else folder.resolve(),
        _parameters(config_text, made),
        is_resumed=known is not None,
    )


def _parameters(config_text: str, made: Mapping[str, Any]) -> dict[str, Scalar]:
    """The settings; of a run that was made in Python, what is known of it."""
    settings = tomllib.loads(config_text)
    if "made_in" in settings:
        settings = {**made, **settings}
    return {
        name: discreet(value) if isinstance(value, str) else value
        for name, value in flat(settings).items()
    }


def _known(path: Path) -> tuple[str, float] | None:
    try:
        told = json.loads(read_file(path))
        key, began_at = told["id"], told["began_at"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not (isinstance(key, str) and _ID.fullmatch(key) and isinstance(began_at, int | float)):
        return None
    return key, float(began_at)


def _keep(path: Path, key: str, began_at: float) -> None:
    try:
        text = json.dumps({"id": key, "began_at": began_at})
        replace_file(path, text.encode() + b"\n")
    except RunError as error:  # trackers are no reason to end a run
        log.warning("trackers will not know the run again when it is resumed: %s", error)

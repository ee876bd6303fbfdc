"""What a client may be called: its name is that of a file, and stands in logs."""

from __future__ import annotations

import re

NAME_RULE = (
    "1 to 64 letters (a to z), digits, dots, hyphens or underscores, and is neither . nor .."
)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_name(name: str) -> bool:
    """May a client be called that?"""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")

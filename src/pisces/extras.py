"""Packages that only some rooms need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pisces.errors import MissingPackageError


@contextmanager
def installed(who: str, extra: str) -> Iterator[None]:
    """Around imports of them: one that fails says what to install."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f"{who} needs packages that are not all here ({error}): "
            f"pip install 'pisces-fl[{extra}]'"
        ) from error

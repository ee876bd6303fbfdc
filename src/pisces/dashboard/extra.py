"""The packages that only the page needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pisces.errors import MissingPackageError


@contextmanager
def needed() -> Iterator[None]:
    """Around imports of them: one that fails says what to install."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f"pisces watch needs packages that are not all here ({error}): "
            "pip install 'pisces-fl[watch]'"
        ) from error

"""What a selector's settings may be: what their annotations say, from a config file or not."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from pisces.errors import ConfigError


def check(selector: Any) -> None:
    """Raise unless every setting is as annotated."""
    for name, adapter in _annotated(selector.__class__).items():
        value = getattr(selector, name)
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            rule = error.errors()[0]["msg"].replace("Input should be", "must be")
            raise ConfigError(f"{name}: {rule}, not {value!r}") from None


@cache
def _annotated(selector: Any) -> dict[str, TypeAdapter[Any]]:
    hints = get_type_hints(selector, include_extras=True)
    return {name: TypeAdapter(hint) for name, hint in hints.items()}


def check_order(selector: object, *names: str) -> None:
    """Raise unless the settings of these names come in order, the smallest first."""
    for low, high in pairwise(names):
        least, most = getattr(selector, low), getattr(selector, high)
        if least is not None and most is not None and least > most:
            raise ConfigError(f"{low}: must be at most {high} = {most}, not {least}")

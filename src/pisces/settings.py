"""Settings by signature: what a function may be told by name is what a config file may set.

A function's keyword parameters, with their types, bounds, descriptions and defaults, are its
settings; nothing is said twice (docs/decisions/004).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import ValidationError, create_model

from pisces.config import Section
from pisces.errors import ConfigError
from pisces.explain import explain


def defaults_of(maker: Callable[..., Any]) -> dict[str, Any]:
    """Its settings with their defaults."""
    parameters = inspect.signature(maker).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def checked(
    maker: Callable[..., Any],
    given: Mapping[str, Any],
    table: str,
    owners: Mapping[str, str] | None = None,
) -> Section:
    """The settings of `[table]`; `owners` tell where else a key that is wrong here belongs."""
    hints = get_type_hints(maker, include_extras=True)
    fields: dict[str, Any] = {k: (hints[k], default) for k, default in defaults_of(maker).items()}
    model = create_model(table.rpartition(".")[2], __base__=Section, **fields)
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError(explain(error, table, list(fields), owners=owners or {})) from None

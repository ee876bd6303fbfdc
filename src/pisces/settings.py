"""Settings by signature: what a function may be told by name is what a config file may set.

The parameters of a function or a class, with their types, bounds, descriptions and defaults, are
its settings, but for those that whoever puts a protocol together hands over; nothing is said twice
(docs/decisions/004).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias, get_type_hints

from pydantic import Field, ValidationError, create_model

from pisces.errors import ConfigError
from pisces.explain import explain
from pisces.tables import Section

Makers: TypeAlias = Mapping[str, Callable[..., Any]]  # by name
HANDED_OVER = ("concurrency", "inner")  # not for the user to say


def defaults_of(maker: Callable[..., Any]) -> dict[str, Any]:
    """Its settings with their defaults; `...` where there is none."""
    return {
        p.name: ... if p.default is p.empty else p.default
        for p in inspect.signature(maker).parameters.values()
        if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name not in HANDED_OVER
    }


def is_told(maker: Callable[..., Any], name: str) -> bool:
    """Does it ask for this, which is handed over?"""
    return name in inspect.signature(maker).parameters


@cache  # a model takes milliseconds to make
def schema_of(maker: Callable[..., Any], name: str) -> type[Section]:
    """Its settings as a table of that name."""
    told_by: Any = maker.__init__ if isinstance(maker, type) else maker  # type: ignore[misc]
    hints = get_type_hints(told_by, include_extras=True)
    fields: dict[str, Any] = {
        key: (hints[key], _described(hints[key], default))
        for key, default in defaults_of(maker).items()
    }
    return create_model(name, __base__=Section, **fields)


def _described(hint: Any, default: Any) -> Any:
    """The default, with the words a type was annotated with, if that was done in plain words."""
    words = [about for about in getattr(hint, "__metadata__", ()) if isinstance(about, str)]
    return Field(default, description=words[0]) if words else default


def checked(
    maker: Callable[..., Any],
    given: Mapping[str, Any],
    table: str,
    among: Makers | None = None,
) -> Section:
    """The settings of `[table]`; `among` others a key that is wrong here may belong."""
    model = schema_of(maker, table.rpartition(".")[2])
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        keys, owners = list(model.model_fields), _owners(among or {})
        raise ConfigError(explain(error, table, keys, owners=owners)) from None


def _owners(makers: Makers) -> dict[str, str]:
    """Who has a setting, by the setting's name; variants count for what is their own only."""
    owners: dict[str, list[str]] = {}
    for name, maker in makers.items():
        original = makers.get(getattr(maker, "variant_of", ""))
        inherited = {} if original is None else defaults_of(original)
        for key in defaults_of(maker).keys() - inherited.keys():
            owners.setdefault(key, []).append(name)
    return {key: ", ".join(names) for key, names in owners.items()}

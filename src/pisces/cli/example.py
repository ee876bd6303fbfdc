"""A full config file, written from the settings' own descriptions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import tomlkit
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pisces.build import PROTOCOLS, settings_of
from pisces.config import Config, Section, Zipf, sections

WIDTH = 34  # column of the comments


def example() -> str:
    """Every key at its default, with a comment on each."""
    return "\n".join([*_head(), *_tables(), *_protocols()]) + "\n"


def _head() -> Iterator[str]:
    yield "# A Pisces run: every key with its default value."
    yield "# A key behind '#' has no value unless you give it one."
    yield ""
    yield from _keys(Config)


def _tables() -> Iterator[str]:
    for name, section in sections():
        if not name:
            continue
        yield ""
        yield f"# {_first_line(section)}"
        if name == "latency" and section is not Zipf:
            yield from (f"# {line}" for line in (f"[{name}]", *_keys(section)))
        else:
            yield f"[{name}]"
            yield from _keys(section)


def _protocols() -> Iterator[str]:
    for name, protocol in PROTOCOLS.items():
        yield ""
        yield f"# {(inspect.getdoc(protocol) or '').splitlines()[0]}"
        yield f"[protocols.{name}]"
        yield from _keys(type(settings_of(name, {})))


def _keys(section: type[BaseModel]) -> Iterator[str]:
    for name, field in section.model_fields.items():
        if not _is_table(field):
            yield _key(name, field)


def _key(name: str, field: FieldInfo) -> str:
    if field.is_required() or field.default is None:
        line = f"# {name} ="
    else:
        line = f"{name} = {tomlkit.item(field.default).as_string()}"
    return f"{line:<{WIDTH}}# {field.description}" if field.description else line


def _is_table(field: FieldInfo) -> bool:
    return isinstance(field.default, (Section, dict))


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").splitlines()[0]

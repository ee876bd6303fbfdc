"""A full config file, written from the settings' own descriptions."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from typing import Any

import tomlkit
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pisces.build import settings_of
from pisces.config import Config, sections
from pisces.latencies import Zipf
from pisces.names import PARTS, PROTOCOLS
from pisces.policy import ANSWERS
from pisces.settings import schema_of
from pisces.tables import Section

WIDTH = 34  # column of the comments


def example() -> str:
    """Every key at its default, with a comment on each."""
    return "\n".join([*_head(), *_tables(), *_protocols(), *_parts()]) + "\n"


def _head() -> Iterator[str]:
    yield "# A Pisces run: every key with its default value."
    yield "# A key behind '#' has no value unless you give it one; --set KEY=none takes it away."
    yield ""
    yield from _keys(Config, ANSWERS)


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
        original = getattr(protocol, "variant_of", None)
        if original is not None:  # spelled out, they would hide what is set in the other table
            yield f"# (besides these, it takes the settings of [protocols.{original}])"
        yield f"[protocols.{name}]"
        yield from _keys(type(settings_of(name, {})), _settings(original))


def _parts() -> Iterator[str]:
    yield ""
    yield "# Mixing by hand: each of these tables, one of a kind, replaces its part of the"
    yield "# protocol. An aggregator that goes around another may have that one as its table"
    yield "# [aggregate.inner]; without such a table it goes around the protocol's own."
    for table, makers in PARTS.items():
        for name, maker in makers.items():
            policy = f'policy = "{name}"'
            yield ""
            yield f"# [{table}]"
            yield f"# {policy:<{WIDTH}}# {_first_line(maker)}"
            yield from (f"# {line}" for line in _keys(schema_of(maker, name)))


def _settings(name: str | None) -> Collection[str]:
    return () if name is None else type(settings_of(name, {})).model_fields


def _keys(section: type[BaseModel], without: Collection[str] = ()) -> Iterator[str]:
    for name, field in section.model_fields.items():
        if not _is_table(field) and name not in without:
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

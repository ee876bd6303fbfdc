"""Mixing by hand: policies by name, each in place of a protocol's own.

A table such as `[select]` has the name of a policy and its settings. An aggregator that goes around
another (a server optimiser, clipping, an average) may have that one as a table `inner`; without it
goes around the protocol's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pisces.errors import ConfigError
from pisces.explain import known
from pisces.settings import Makers, checked, is_told
from pisces.tables import Section

MOST_INNER = 10  # more is a mistake


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A policy as a table tells it, checked."""

    table: str
    policy: str
    maker: Callable[..., Any]
    settings: Section
    inner: Part | None

    @classmethod
    def read(cls, table: str, given: Mapping[str, Any], makers: Makers) -> Part:
        """What the table says, or an error that says what is wrong with it."""
        if given.get("policy") is None:
            raise ConfigError(f"{table}: policy: this key is needed: one of {', '.join(makers)}")
        policy = _named(table, given["policy"], makers)
        maker, inner = makers[policy], given.get("inner")
        if inner is not None:
            _check_inner(table, policy, inner, makers)
        told = {key: value for key, value in given.items() if key not in ("policy", "inner")}
        return cls(
            table,
            policy,
            maker,
            checked(maker, told, table, makers),
            None if inner is None else cls.read(f"{table}.inner", inner, makers),
        )

    def spelled_out(self) -> dict[str, Any]:
        """The table with every setting."""
        inner = {} if self.inner is None else {"inner": self.inner.spelled_out()}
        return {"policy": self.policy, **self.settings.model_dump(exclude_none=True), **inner}

    def made(self, concurrency: int, own: Any) -> Any:
        """The policy; `own` is the protocol's."""
        inner = own if self.inner is None else self.inner.made(concurrency, own)
        offered = {"concurrency": concurrency, "inner": inner}
        handed_over = {name: offered[name] for name in offered if is_told(self.maker, name)}
        with whose(self.table):
            return self.maker(**handed_over, **self.settings.model_dump())


def _named(table: str, policy: Any, makers: Makers) -> str:
    if not isinstance(policy, str):
        raise ConfigError(
            f"{table}.policy: must be one of {', '.join(makers)}, in quotes, not {policy!r}"
        )
    return known(policy, makers, f"{table}.policy")


def _check_inner(table: str, policy: str, inner: Any, makers: Makers) -> None:
    if not is_told(makers[policy], "inner"):
        around = ", ".join(name for name, maker in makers.items() if is_told(maker, "inner"))
        hint = f"; {around} do" if around else ""
        raise ConfigError(
            f"{table}.inner: {policy} goes around no other policy: leave it out{hint}"
        )
    if table.count(".inner") >= MOST_INNER:
        where = table.partition(".")[0]
        raise ConfigError(
            f"{where}: at most {MOST_INNER} policies inside each other: leave some out"
        )
    if not isinstance(inner, Mapping):
        raise ConfigError(f"{table}.inner: must be a table, not {inner!r}")


@contextmanager
def whose(table: str) -> Iterator[None]:
    """Say of settings that do not go together whose they are."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{table}: {error}") from None

"""What a browser asks, checked: every value has its bounds, and nothing else is taken."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import parse_qs

MAX_QUERY = 16_000  # characters
MAX_TEXT = 1000  # of one value: a path may be long
T = TypeVar("T", bound=Hashable)
S = TypeVar("S", bound=str)


class BadQuestion(Exception):  # noqa: N818
    """A question that the page never asks; the message says what is wrong with it."""


class Asked:
    """The query of one request; `understood` is what was read of it, and as what."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = values
        self.understood: dict[str, Hashable] = {}

    @classmethod
    def read(cls, query: str) -> Asked:
        """Take a query apart; too long a one is refused."""
        if len(query) > MAX_QUERY:
            raise BadQuestion(f"a query has at most {MAX_QUERY} characters")
        try:
            return cls(parse_qs(query, max_num_fields=200, errors="strict"))
        except (ValueError, UnicodeError) as error:
            raise BadQuestion("the query is not well-formed, or has more than 200 parts") from error

    def refuse_unread(self) -> None:
        """Refuse what nobody has read."""
        for name in self._values:
            if name not in self.understood:
                raise BadQuestion(f"nothing is called {name[:40]!r} here")

    def texts(self, name: str, most: int) -> list[str]:
        """All values of that name, each once."""
        values = list(self._values.get(name, ()))
        if len(values) > most:
            raise BadQuestion(f"{name}: at most {most}, not {len(values)}")
        for value in values:
            if len(value) > MAX_TEXT:
                raise BadQuestion(f"{name}: at most {MAX_TEXT} characters")
        return list(self._noted(name, tuple(dict.fromkeys(values))))

    def text(self, name: str, default: str = "") -> str:
        """The one value of that name."""
        values = self.texts(name, 1)
        return self._noted(name, values[0] if values else default)

    def one_of(self, name: str, options: Iterable[S], *, are_all: bool = True) -> S | None:
        """One of these, if any is named; of another nothing is made while there may be more."""
        value, known = self.text(name), {str(option): option for option in options}
        if value and are_all and value not in known:
            raise BadQuestion(f"{name}: one of {', '.join(sorted(known))}")
        return self._noted(name, known.get(value))

    def choice(self, name: str, options: Iterable[S], default: S, *, are_all: bool = True) -> S:
        """The same, or else the default."""
        return self._noted(name, self.one_of(name, options, are_all=are_all) or default)

    def flag(self, name: str) -> bool:
        """Yes (`1`) or no (`0`, or not said)."""
        return self.choice(name, ("0", "1"), "0") == "1"

    def whole(self, name: str, default: int | None, least: int, most: int) -> int:
        """A whole number within bounds; one without a default is needed."""
        value = self.text(name, "" if default is None else str(default))
        if not (value.isascii() and value.removeprefix("-").isdigit() and len(value) < 20):
            raise BadQuestion(f"{name}: a whole number")
        if not least <= int(value) <= most:
            raise BadQuestion(f"{name}: from {least} to {most}")
        return self._noted(name, int(value))

    def number(self, name: str) -> float | None:
        """A finite number, if one is given."""
        value = self.text(name)
        try:
            number = float(value) if value else None
        except ValueError as error:
            raise BadQuestion(f"{name}: a number") from error
        if number is not None and not math.isfinite(number):
            raise BadQuestion(f"{name}: a finite number")
        return self._noted(name, number)

    def _noted(self, name: str, value: T) -> T:
        self.understood[name] = value
        return value

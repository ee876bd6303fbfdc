"""How many examples nodes have: nobody knows before a node's first reply.

Until then a node is guessed to have as many as the usual one: the median of those that told, or one
as long as nobody did. Policies compare sizes, so the guess matters only beside others.
"""

from __future__ import annotations

from statistics import median_low

from pisces.types import Entry, Update

NOBODY_KNOWS = 1


class Sizes:
    """What clients told, and what is guessed of the others; more than `most` nobody has."""

    def __init__(self, most: int = 100_000_000) -> None:
        self._most = most
        self._told: dict[int, int] = {}
        self._guessed: dict[int, int] = {}
        self._usual: int | None = None  # of what was told so far, once somebody asked

    @property
    def is_anything_told(self) -> bool:
        """Did anybody ever tell what could be?"""
        return bool(self._told)

    def record(self, entry: Entry) -> None:
        """What a ServerApp before this one heard, as its journal has it; of others it is known."""
        if isinstance(entry, Update) and entry.client not in self._told:
            self.hear(entry.client, entry.report.num_examples)

    def close(self) -> None:
        """Nothing is held."""

    def of(self, client: int) -> int:
        """What a client that appears has, as far as is known."""
        if client in self._told:
            return self._told[client]
        self._guessed[client] = guess = self._guess()
        return guess

    def hear(self, client: int, num_examples: int) -> dict[int, int]:
        """What a client tells; gives the sizes that are others now, by client.

        With the first that tells, the guesses about all others get better, too. What cannot be is
        as if it was not told: the result it came with will be refused, and nobody else suffers.
        """
        if not 1 <= num_examples <= self._most:
            return {}
        is_first = not self._told
        news = {} if self._told.get(client) == num_examples else {client: num_examples}
        self._told[client] = num_examples
        self._usual = None
        self._guessed.pop(client, None)
        if is_first:
            self._guessed = dict.fromkeys(self._guessed, num_examples)
            news |= self._guessed
        return news

    def _guess(self) -> int:
        if self._usual is None:
            self._usual = median_low(self._told.values()) if self._told else NOBODY_KNOWS
        return self._usual

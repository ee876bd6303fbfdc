"""How many examples nodes have: nobody knows before a node's first reply.

Until then a node is guessed to have as many as the usual one: the median of those that told, or one
as long as nobody did. Policies compare sizes, so the guess matters only beside others.
"""

from __future__ import annotations

from statistics import median_low

NOBODY_KNOWS = 1


class Sizes:
    """What clients told, and what is guessed of the others."""

    def __init__(self) -> None:
        self._told: dict[int, int] = {}
        self._guessed: dict[int, int] = {}

    def of(self, client: int) -> int:
        """What a client that appears has, as far as is known."""
        if client in self._told:
            return self._told[client]
        self._guessed[client] = guess = self._usual()
        return guess

    def hear(self, client: int, num_examples: int) -> dict[int, int]:
        """What a client tells; gives the sizes that are others now, by client.

        With the first that tells, the guesses about all others get better, too.
        """
        is_first = not self._told
        news = {} if self._told.get(client) == num_examples else {client: num_examples}
        self._told[client] = num_examples
        self._guessed.pop(client, None)
        if is_first:
            self._guessed = dict.fromkeys(self._guessed, num_examples)
            news |= self._guessed
        return news

    def _usual(self) -> int:
        return median_low(self._told.values()) if self._told else NOBODY_KNOWS

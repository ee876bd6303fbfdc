"""What goes wrong with a simulated client's task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pisces.errors import ConfigError
from pisces.seeds import generator

Kind: TypeAlias = Literal["crash", "dropout", "vanish"]


@dataclass(frozen=True, slots=True)
class Fate:
    """How a task ends early, and after which part of its latency, in (0, 1)."""

    kind: Kind
    fraction: float


@dataclass(frozen=True, slots=True)
class Failures:
    """How likely each trouble is, per task.

    `crash`: the task fails and the client stays. `dropout`: the client is seen leaving, and comes
    back after `return_after_s` (never if `None`). `vanish`: it falls silent without a word.
    """

    crash: float = 0.0
    dropout: float = 0.0
    vanish: float = 0.0
    return_after_s: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        chances = (self.crash, self.dropout, self.vanish)
        # fsum: 0.1 + 0.2 + 0.7 must not count as more than 1
        if not all(0 <= chance <= 1 for chance in chances) or math.fsum(chances) > 1:
            raise ConfigError(
                "crash, dropout and vanish are probabilities that add up to at most 1, "
                f"not {self.crash}, {self.dropout} and {self.vanish}; lower them"
            )
        if self.return_after_s is not None and not 0 < self.return_after_s < math.inf:
            raise ConfigError(
                f"return_after_s must be positive and finite, not {self.return_after_s}; "
                "leave it out for clients that never return"
            )

    def draw(self, client: int, turn: int) -> Fate | None:
        """The fate of the client's turn-th task, counted from 0; `None`: all goes well."""
        if self.crash + self.dropout + self.vanish == 0:
            return None
        luck, part = generator(self.seed, "failure", client, turn).random(2)
        kinds: tuple[tuple[Kind, float], ...] = (
            ("crash", self.crash),
            ("dropout", self.dropout),
            ("vanish", self.vanish),
        )
        for kind, chance in kinds:
            if luck < chance:
                # a draw may be 0, but nothing goes wrong before it begins
                return Fate(kind, max(float(part), 2.0**-53))
            luck -= chance
        return None

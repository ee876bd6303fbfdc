"""What a server asks of its clients, and how long it puts up with what."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from pisces.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Terms:
    """Of one run, for all clients."""

    at_least: int = 1  # clients with which the run, and its clock, begin
    patience_s: float = 60.0  # without a connection before a client counts as gone
    beat_s: float = 30.0  # a client says something this often; three missed: it is silent
    handshake_s: float = 10.0  # from a connection to a Hello
    linger_s: float = 5.0  # at the end: how long everybody may take to hear of it
    max_connections: int = 10_000  # at once
    messages_per_s: float = 50.0  # of one client, on average; results are not counted
    connects_per_minute: float = 30.0  # of one name
    encoding: Literal["float32", "float16"] = "float32"  # of results
    zstd: bool = False  # compress weights, both ways

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                self._check(field.name, value)
        if self.encoding not in ("float32", "float16"):
            raise ConfigError(
                f"network.encoding: must be float32 or float16, not {self.encoding!r}"
            )

    def _check(self, name: str, value: float) -> None:
        if not (0 < value < math.inf or (value == 0 and name == "linger_s")):
            raise ConfigError(f"network.{name}: must be greater than 0 and finite, not {value}")

    @property
    def silent_after_s(self) -> float:
        """When a client that says nothing is taken for gone."""
        return 3 * self.beat_s

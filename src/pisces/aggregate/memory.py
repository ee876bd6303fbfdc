"""One vector per client, for aggregators that remember what each of them said last.

That is a model for every client who ever reports, so there is a limit, and whoever would go beyond
it once everybody has reported is told so before the run, where it is known how many there will be,
else as soon as too many have joined: not when memory runs out.
"""

from __future__ import annotations

import torch

from pisces.errors import ConfigError
from pisces.types import State

MAX_CACHE_BYTES = 4 * 2**30
PREFIX = "client/"


class ClientVectors:
    """Vectors by client, in `max_bytes` at most; they are replaced, never changed."""

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._vectors: dict[str, torch.Tensor] = {}  # as its state has them: that is asked often

    def require_room(self, num_clients: int, vector: torch.Tensor) -> None:
        """Refuse so many clients, if there is no room for a vector like this of each."""
        check_memory(num_clients, vector.numel() * vector.element_size(), self._max_bytes)

    @property
    def clients(self) -> list[int]:
        """Who has a vector."""
        return [int(name.removeprefix(PREFIX)) for name in self._vectors]

    def get(self, client: int) -> torch.Tensor | None:
        """Its last vector; none: it has not reported yet."""
        return self._vectors.get(f"{PREFIX}{client}")

    def put(self, client: int, vector: torch.Tensor) -> None:
        """Its vector from now on. It is kept: hand over one that nobody else needs."""
        self._vectors[f"{PREFIX}{client}"] = vector

    def state(self) -> State:
        """Every vector, by client."""
        return State({}, dict(self._vectors))

    def restore(self, state: State) -> None:
        """Take them up."""
        self._vectors = {n: v for n, v in state.arrays.items() if n.startswith(PREFIX)}


def check_memory(num_clients: int, vector_bytes: int, max_bytes: int) -> None:
    """Refuse to remember a vector of each client, if that takes more than is allowed."""
    needed = num_clients * vector_bytes
    if needed > max_bytes:
        raise ConfigError(
            f"max_cache_bytes: a model for each of {num_clients} clients takes {needed} bytes "
            f"({num_clients} x {vector_bytes}), more than {max_bytes}; raise it if there is "
            "memory, or use fewer clients, a smaller model or a protocol that remembers no clients"
        )

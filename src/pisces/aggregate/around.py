"""What aggregators that go around another one have in common: for the rest they are as it is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from pisces.clients.view import View
from pisces.policy import Aggregator, Combination
from pisces.types import State, Update, Weights


class Around(Aggregator):
    """Changes what an inner aggregator is given, or what it makes of it."""

    def __init__(self, inner: Aggregator) -> None:
        self._inner = inner

    @abstractmethod
    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The next version's weights, with the inner aggregator's help."""

    def require_room(self, num_clients: int, weights: Weights) -> None:
        """If the inner one does."""
        self._inner.require_room(num_clients, weights)

    @property
    def mixes_in_turn(self) -> bool:
        """If the inner one does."""
        return self._inner.mixes_in_turn

    @property
    def needs_several(self) -> bool:
        """If the inner one does."""
        return self._inner.needs_several

    @property
    def averages(self) -> bool:
        """If the inner one does."""
        return self._inner.averages

    def state(self) -> State:
        """The inner aggregator's."""
        return self._inner.state()

    def restore(self, state: State) -> None:
        """Take it up."""
        self._inner.restore(state)

"""What aggregators that go around another one have in common: for the rest they are as it is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from pisces.clients.view import View
from pisces.policy import Aggregator, Combination, Traits
from pisces.types import State, Update, Weights


class Around(Aggregator):
    """Changes what an inner aggregator is given, or what it makes of it."""

    def __init__(self, inner: Aggregator) -> None:
        self.inner = inner

    @abstractmethod
    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The next version's weights, with the inner aggregator's help."""

    def require_room(self, num_clients: int, weights: Weights) -> None:
        """If the inner one does."""
        self.inner.require_room(num_clients, weights)

    @property
    def needs(self) -> Traits:
        """As the inner one."""
        return self.inner.needs

    @property
    def alike(self) -> Mapping[str, float]:
        """As the inner one."""
        return self.inner.alike

    @property
    def publishes_other(self) -> bool:
        """As the inner one."""
        return self.inner.publishes_other

    def state(self) -> State:
        """The inner aggregator's."""
        return self.inner.state()

    def restore(self, state: State) -> None:
        """Take it up."""
        self.inner.restore(state)

"""03: a selector of your own in 20 lines, between a pacer and an aggregator of the house.

python examples/03_your_own_selector.py
"""

from dataclasses import replace

import numpy as np
import torch

import pisces
from pisces.data.datasets import digits
from pisces.data.partition import dirichlet
from pisces.models.mlp import mlp
from pisces.seeds import generator


class LeastPicked(pisces.Selector):
    """Whoever was picked least so far; among equals whoever has most data."""

    def pick(
        self, view: pisces.View, slots: int, rng: np.random.Generator
    ) -> list[pisces.Assignment]:
        clients = view.selectable  # there, trusted, and not busy
        picks = view.clients.num_picks[clients]
        sizes = view.clients.num_examples[clients]
        order = np.lexsort((-sizes, picks))[:slots]
        return [pisces.Assignment(int(client)) for client in clients[order]]


if __name__ == "__main__":
    data = digits()
    rows = dirichlet(data.targets, sizes=[20, 50] * 20, alpha=0.3, rng=generator(1, "shards"))
    shards = [(data.inputs[r], data.targets[r]) for r in rows]
    theirs = pisces.protocol("pisces", concurrency=10)
    mine = replace(theirs, selector=LeastPicked())
    for name, policies in (("guided", theirs), ("least picked", mine)):
        torch.manual_seed(0)
        result = pisces.simulate(
            policies,
            model=mlp((1, 8, 8), 10),
            clients=shards,
            test=(data.test_inputs, data.test_targets),
            plan=pisces.Plan(epochs=2, batch_size=16, learning_rate=0.05),
            evaluate=pisces.Schedule(every_s=20),
            stop=pisces.Stop(time_s=400),
        )
        accuracy = result.summary["final"]["accuracy"]
        print(f"{name:12}  accuracy {accuracy:.3f} after {result.summary['num_updates']} updates")

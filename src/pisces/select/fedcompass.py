"""As many local steps for each as let it arrive together with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pisces.clients.view import View
from pisces.policy import Assignment, Selector, Trait, Traits
from pisces.select.settings import check, check_order
from pisces.select.top import Floats, Ids, choose
from pisces.words import MaxSteps, MinSteps

ROUNDING = 1e-9  # of a step: whoever is as fast as another gets as many


@dataclass(eq=False, kw_only=True)
class Compass(Selector):
    """Anybody who is free, with a number of steps that fits its speed.

    Li et al., "FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices
    using a Computing Power Aware Scheduler", ICLR 2024, Algorithms 1 and 2. Of the instants at
    which running clients are expected, a client joins the one that leaves it the most steps between
    `min_steps` (Q_min) and `max_steps` (Q_max). Where there is none it opens a group of its own,
    with `max_steps`. Those who start together are given their steps one after the other, the
    fastest first, so the slower may join the faster.

    Nobody does more steps than the run's own plan has for it, which is also what `max_steps` None
    means; `min_steps` None is a fifth of that.

    Differs from the paper:

    * everybody takes part there; here clients are drawn uniformly out of those that are free;
    * groups are not written down: a running client stands for its group, and is expected when its
      steps take as long as its last ones did, sending included (no average over earlier tasks);
    * a new group always has `max_steps` to go. The paper tries to meet another group's next round;
    * a newcomer does `min_steps` and belongs to no group; in the authors' code it does `max_steps`.
    """

    min_steps: MinSteps = None
    max_steps: MaxSteps = None

    def __post_init__(self) -> None:
        check(self)
        check_order(self, "min_steps", "max_steps")

    @property
    def gives(self) -> Traits:
        """Clients that arrive together, by their steps ..."""
        return frozenset({Trait.STEPS})

    @property
    def needs(self) -> Traits:
        """... which is for nothing where nobody waits for them."""
        return frozenset({Trait.GROUPS})

    def pick(self, view: View, slots: int, rng: np.random.Generator) -> Sequence[Assignment]:
        """Draw without replacement, then share out the steps."""
        num = max(0, min(slots, len(view.free)))
        clients = view.free.nth(choose(num, len(view.free), rng))
        seconds = view.seconds_per_step(clients)
        fastest_first = np.argsort(seconds, kind="stable")  # who is not known comes last
        clients, seconds = clients[fastest_first], seconds[fastest_first]
        steps = self._steps(seconds, _own_steps(view, clients), view.expected_at - view.now)
        return [
            Assignment(client, replace(view.plan, max_steps=num_steps))
            for client, num_steps in zip(clients.tolist(), steps, strict=True)
        ]

    def _steps(self, seconds: Floats, own: Ids, due_in: Floats) -> list[int]:
        """How many for each, in this order; `due_in` are the seconds until others are expected."""
        steps: list[int] = []
        for s, own_steps in zip(seconds.tolist(), own.tolist(), strict=True):
            most = min(own_steps, self.max_steps or own_steps)
            least = min(most, self.min_steps or max(1, most // 5))
            steps.append(least if np.isnan(s) else _joined(due_in, s, least, most))
            due_in = np.append(due_in, steps[-1] * s)
        return steps


def _joined(due_in: Floats, seconds_per_step: float, least: int, most: int) -> int:
    """The most steps, within these bounds, that end when somebody else does; `most` if none do."""
    possible = np.floor(due_in / max(seconds_per_step, 1e-300) + ROUNDING)
    fitting = possible[(possible >= least) & (possible <= most)]  # NaN does not
    return int(fitting.max()) if len(fitting) else most


def _own_steps(view: View, clients: Ids) -> Ids:
    """The steps the plan has for each; a last batch of one sample joins the one before it."""
    plan = view.plan
    num, size = view.clients.num_examples[clients], plan.batch_size
    per_epoch = -(-num // size) - ((num % size == 1) & (num > size) & (size > 1))
    steps = np.maximum(per_epoch, 1) * plan.epochs
    return np.asarray(steps if plan.max_steps is None else np.minimum(steps, plan.max_steps))

"""The three questions of federated learning as contracts: who trains, when to aggregate, how.

A protocol is one answer to each (`Policies`). Policies see the world through a read-only `View` and
never call each other, look at a clock or sleep. A pacer's verbs are pure; `pick`, `combine` and
`judge` may remember, and the first two draw only from the generator they are given. Subclassing a
contract brings defaults for its rare verbs, so a simple policy stays a few lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pisces.types import Plan, Stateful, Update, Weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pisces.clients.view import View


@dataclass(frozen=True, slots=True)
class Assignment:
    """A client to start, with its plan if its local work differs from the run's default."""

    client: int
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """A running task that nobody waits for any more.

    `pull`: it is not called off, but asked for what there is.
    """

    task_id: int
    reason: str
    pull: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Combination:
    """New weights, and the coefficient each update was given in them.

    Clients train from `weights`. What is evaluated and handed out is `published`, if that is not
    the same.
    """

    weights: Weights
    coefficients: tuple[float, ...]
    published: Weights | None = None


class Trait(Enum):
    """What one policy may count on another for: what is wrong where none gives it, and what helps.

    Where that is another policy nothing is said: those are found by what they give.
    """

    ROUNDS = (
        "chooses whole cohorts, but {pacer} starts clients as slots come free (Oort alone may be "
        "told exploration_draw = 'binomial')"
    )
    GROUPS = (
        "cuts steps so that clients arrive together, but {pacer} does not wait for those who do"
    )
    STEPS = "waits for clients that are made to arrive together, but {selector} sets nobody's steps"
    ONE_AT_A_TIME = (
        "mixes updates in one after the other, so that the last covers those before it, but "
        "{pacer} hands over several at once",
        "set pace.buffer_size = 1 (of hysync: or threshold = 1), or use aggregate.policy "
        "'tea-fed', which mixes in their mean",
    )
    SEVERAL = (
        "holds updates against each other, but {pacer} hands them over one by one",
        "raise buffer_size, or use another pace",
    )

    def __init__(self, without: str, helps: str = "") -> None:
        self.without = without
        self.helps = helps


Traits: TypeAlias = frozenset[Trait]


class Policy(Stateful, Protocol):
    """What each of them says of itself, so that those which do not go together are found."""

    @property
    def needs(self) -> Traits:
        """What it counts on another policy for."""
        return frozenset()

    @property
    def gives(self) -> Traits:
        """What others may count on it for."""
        return frozenset()

    @property
    def alike(self) -> Mapping[str, float]:
        """Settings that must be the same in every policy that has them."""
        return {}


class Selector(Policy, Protocol):
    """Who trains next?"""

    def pick(self, view: View, slots: int, rng: np.random.Generator) -> Sequence[Assignment]:
        """At most `slots` different clients out of `view.selectable`."""
        ...

    def terms(self, view: View, clients: NDArray[np.int64]) -> Mapping[str, NDArray[np.float64]]:
        """What the scores of `clients` are made of, by name, each in their order; `score` last.

        As `pick` just saw them, so that people can be told why; NaN where it had none. The higher
        a score the better, and nothing where clients are drawn by lot. Pure.
        """
        return {}

    @property
    def learns_from(self) -> str | None:
        """Which of the metrics evaluated does it learn from, if any?"""
        return None


class Pacer(Policy, Protocol):
    """When do we aggregate, and how many may run?"""

    def slots(self, view: View) -> int:
        """How many clients to start now."""
        ...

    def ready(self, view: View) -> bool:
        """Aggregate what is in the buffer now? Asked only while something is in it."""
        ...

    def next_check(self, view: View) -> float:
        """The instant to ask again if nothing happens before; infinity: at the next event."""
        return math.inf

    def accepts(self, view: View, update: Update) -> bool:
        """Is this update still wanted?"""
        return True

    def release(self, view: View) -> Sequence[Release]:
        """Whose running task is not wanted any more, or wanted as far as it is?"""
        return ()

    def next_release(self, view: View) -> float:
        """The instant to ask for releases again if nothing happens before; infinity: none."""
        return math.inf

    def terms(self, view: View) -> Mapping[str, float]:
        """What `ready` goes by, by name, so that people can be told why.

        `limit_s` is how long after the last aggregation the next is due, `bound` the most versions
        an update may be behind: a pacer that knows them calls them so.
        """
        return {}

    @property
    def gives(self) -> Traits:
        """Several updates at once, unless it says otherwise."""
        return frozenset({Trait.SEVERAL})

    @property
    def min_clients(self) -> int:
        """Fewest clients with which `ready` can ever say yes; fewer is a configuration error."""
        return 1

    @property
    def num_buffered(self) -> int:
        """How many updates it means to let wait at once, where it knows; they must fit in memory.

        Where there come to be more than fit, they are aggregated without `ready` being asked.
        """
        return self.min_clients

    @property
    def needs_deadline(self) -> bool:
        """Would one silent client stop it for ever, unless its task expires?"""
        return False

    @property
    def needs_pull(self) -> bool:
        """Does it count on running tasks being handed in as far as they are?"""
        return False


class Aggregator(Policy, Protocol):
    """How are updates combined?

    Should the new weights not be finite, nobody takes them, and what `combine` remembered is undone
    (`remember`) by restoring the state of before: so it makes new tensors and changes none that its
    state holds.
    """

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The next version's weights out of the current ones and at least one update."""
        ...

    def remember(self) -> Callable[[], None]:
        """Before `combine`: how to undo it. To be overridden where the state is long to write."""
        state = self.state()
        return lambda: self.restore(state)

    def require_room(self, num_clients: int, weights: Weights) -> None:
        """Refuse so many clients, if what it remembers of each would take too much memory."""
        return

    @property
    def publishes_other(self) -> bool:
        """Does it publish other weights than clients train from?"""
        return False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge makes of an update."""

    is_outlier: bool = False  # it costs its client a credit
    keep: bool = True  # for the model
    forgives: bool = False  # it gives its client a credit back
    loss: float | None = None  # what its loss counts as when clients are selected; none: as told


class Judge(Policy, Protocol):
    """Whom to trust? Looks at every accepted update."""

    def judge(self, update: Update) -> Verdict:
        """What to make of this update, among those before it; it is remembered."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Policies:
    """One protocol: who, when, how, and optionally whom to trust."""

    selector: Selector
    pacer: Pacer
    aggregator: Aggregator
    judge: Judge | None = None


# The tables of a config that replace an answer each, and which.
ANSWERS = {"select": "selector", "pace": "pacer", "aggregate": "aggregator", "judge": "judge"}

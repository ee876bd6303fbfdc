"""Which answers go together, and with their surroundings: what makes no sense is refused.

What a policy says of itself decides (what it `needs` and `gives`, and what must be `alike`: see
`policy.py`), not which one it is: that holds of policies to come, and of one's own, as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from pisces.errors import ConfigError
from pisces.policy import ANSWERS, Policies, Policy, Trait

WhoGives = Callable[[Trait], Sequence[str]]  # names of policies that would help


def check_sense(policies: Policies, who_gives: WhoGives = lambda _trait: ()) -> None:
    """Refuse policies that would work against each other."""
    parts = {table: getattr(policies, answer) for table, answer in ANSWERS.items()}
    parts = {table: part for table, part in parts.items() if part is not None}
    reasons = [*_missing(parts, policies, who_gives), *_unlike(parts)]
    if reasons:
        raise ConfigError("; ".join(reasons))


def _missing(parts: Mapping[str, Policy], policies: Policies, who_gives: WhoGives) -> Iterator[str]:
    """What is needed and not given, by whom."""
    given = frozenset[Trait]().union(*(part.gives for part in parts.values()))
    names = {answer: _name(getattr(policies, answer)) for answer in ANSWERS.values()}
    for table, part in parts.items():
        for trait in sorted(part.needs - given, key=lambda trait: trait.name):
            wrong = f"{table}: {_name(part)} {trait.without.format(**names)}"
            yield f"{wrong}: {trait.helps or _others(who_gives(trait), trait)}"


def _others(names: Sequence[str], trait: Trait) -> str:
    return f"use {' or '.join(names) or f'one that gives {trait}'}"


def _unlike(parts: Mapping[str, Policy]) -> Iterator[str]:
    """What two have and is not the same in both."""
    for (one, first), (other, second) in combinations(parts.items(), 2):
        for key in first.alike.keys() & second.alike.keys():
            mine, theirs = first.alike[key], second.alike[key]
            if mine != theirs:
                yield (
                    f"{one}: {key} is {mine:g} to {_name(first)}, but {theirs:g} to "
                    f"{_name(second)} ({other}): give both the same"
                )


def _name(policy: object) -> str:
    return type(policy).__name__


def check_latency(policies: Policies, latency: object) -> None:
    """Refuse latencies that the policies cannot do with."""
    grows = getattr(latency, "grows_with_steps", True)  # of one's own: it is said to
    if Trait.STEPS in policies.selector.gives and not grows:
        raise ConfigError(
            "latency: the protocol gives clients as many steps as they have time for, but "
            "these latencies do not grow with steps: use latency.kind = 'compute'"
        )


def check_num_clients(policies: Policies, num_clients: int | None) -> None:
    """Refuse fewer clients than the pace waits for; None: nobody knows how many there will be."""
    needed = policies.pacer.min_clients
    if num_clients is not None and needed > num_clients:
        raise ConfigError(
            f"the pace waits for {needed} updates at once, but there are only "
            f"{num_clients} clients; lower buffer_size (or over-select less)"
        )


def check_deadline(policies: Policies, deadline_s: float | None) -> None:
    """Refuse a pace that one silent client would stop for ever."""
    if policies.pacer.needs_deadline and deadline_s is None:
        raise ConfigError(
            "a strict pace needs clients.deadline_s (say three times the slowest latency): it "
            "waits for the slowest, and one silent client would stop it for ever"
        )

"""Which answers go together: a triple that makes no sense is refused, with the reason.

What a policy says of itself (the properties in `policy.py`) decides, not which one it is: that
holds of policies to come as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from pisces.errors import ConfigError
from pisces.policy import Aggregator, Pacer, Policies, Selector


def check_sense(policies: Policies) -> None:
    """Refuse policies that would work against each other."""
    who, when, how = policies.selector, policies.pacer, policies.aggregator
    for reason in (*_who_and_when(who, when), *_when_and_how(when, how)):
        raise ConfigError(reason)


def _who_and_when(who: Selector, when: Pacer) -> Iterator[str]:
    if who.needs_rounds and not when.in_rounds:
        yield (
            "select: this selector chooses whole cohorts, but the pace starts clients as seats "
            "come free: use pace.policy 'rounds' or 'timed' (oort alone may be told "
            "exploration_draw = 'binomial' instead)"
        )
    if who.sets_steps and not (when.needs_steps or when.in_rounds):
        yield (
            "select: this selector cuts steps so that clients arrive together, but the pace does "
            "not wait for those who do: use pace.policy 'fedcompass', 'rounds' or 'timed'"
        )
    if when.needs_steps and not who.sets_steps:
        yield (
            "pace: this pace waits for clients that are made to arrive together, but the selector "
            "sets nobody's steps: use select.policy 'fedcompass'"
        )
    if _differ(who.late_after_s, when.late_after_s):
        yield (
            f"select: an update is late after {who.late_after_s:g} s to the selector, but the pace "
            f"waits {when.late_after_s:g} s: give both the same timeout_s"
        )


def _differ(one_s: float, other_s: float) -> bool:
    """Are there two timeouts?"""
    return max(one_s, other_s) < float("inf") and one_s != other_s


def _when_and_how(when: Pacer, how: Aggregator) -> Iterator[str]:
    if how.mixes_in_turn and not when.one_at_a_time:
        yield (
            "aggregate: of several updates the last covers those before it, and the pace hands "
            "over several at once: use pace.policy 'buffered' with buffer_size = 1, or "
            "aggregate.policy 'tea-fed' or 'hysync', which mix in a mean"
        )
    if how.needs_several and when.one_at_a_time:
        yield (
            "aggregate: it holds updates against each other, but the pace hands them over one by "
            "one: raise buffer_size, or use another pace"
        )

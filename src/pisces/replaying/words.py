"""What a replay cannot know, and why one may not come out as recorded, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pisces.quantities import counted

if TYPE_CHECKING:
    from pisces.replaying.loop import Rules
    from pisces.replaying.turns import Ends
    from pisces.replaying.values import Check, Unknown
    from pisces.replaying.walk import Compared, Recorded

# Of a first difference: what was decided otherwise.
DIFFERS = {
    "aggregated": "when to make a version",
    "dropped": "which update to refuse",
    "called off": "whom to call off",
    "started": "how many to start",
}
EXCEEDED = (
    "A bound holds as far as a pace knows how long clients take: those it has not heard from, or "
    "that took longer than before, may be staler."
)
MOST_IMPOSSIBLE = 0.2  # of the starts after the first difference; beyond it is but a tendency
_LIMITS = {"target": "its target", "patience": "its patience"}


def verdict(check: Check) -> str:
    """How the run's own pace came out, in one line."""
    same = f"{check.num_same} of {check.num_recorded} aggregations the same"
    apart = f", instants up to {check.most_apart_s:.3g} s apart" if check.most_apart_s else ""
    if check.is_same:
        return f"replayed as recorded: {same}{apart}"
    return f"NOT replayed as recorded: {same}{apart}; it differs from t = {check.differs_at:.6g} s"


def exactness(differs_at: float | None, version: int | None, what: str | None) -> str:
    """How far a replay is exact, in one line."""
    if differs_at is None:
        return "exact to the end: nothing would have been decided otherwise"
    return (
        f"exact up to t = {differs_at:.6g} s, version {version}, where it first differs in {what}; "
        "from there an estimate"
    )


def caveats(
    recorded: Recorded, other: Compared, ends: Ends, rules: Rules, refused: Sequence[str]
) -> tuple[str, ...]:
    """All that is to be said of this replay, the weightiest first."""
    return (
        *(f"a run with this pace would be refused: {reason}" for reason in refused),
        *_of_the_impossible(recorded, other),
        *_after_the_difference(recorded, other),
        *_of_starts(other.loop.unknown),
        *_of_tasks(other.loop.unknown),
        *_of_the_end(other, ends, rules),
    )


def _after_the_difference(recorded: Recorded, other: Compared) -> Iterator[str]:
    if other.differs_at is None:
        return
    num = recorded.num_starts - other.num_starts
    yield (
        f"who was started when ({num} of {recorded.num_starts} starts come after the first "
        "difference), and every latency, loss and failure, is as recorded: with other versions "
        "others may have been picked, and would have trained from other models"
    )
    if num_other := other.loop.unknown.num_other_versions:
        yield (
            f"{counted(num_other, 'start')} from another version than recorded: what the model "
            "would have come to is not known"
        )


def _of_the_impossible(recorded: Recorded, other: Compared) -> Iterator[str]:
    num, after = other.loop.unknown.num_impossible, recorded.num_starts - other.num_starts
    if not num:
        return
    told = (
        f"{counted(num, 'start')} could not have been: the client's update was still waiting; "
        "another would have been picked"
    )
    is_much = num > MOST_IMPOSSIBLE * after
    share = f" ({num / after:.0%} of those after the first difference)" if after else ""
    yield f"a tendency only: {told}{share}" if is_much else told


def _of_starts(unknown: Unknown) -> Iterator[str]:
    if unknown.num_unwanted:
        starts = counted(unknown.num_unwanted, "start")
        yield f"{starts} would not have been made: this pace had no slot then"
    if unknown.num_unfilled:
        yield (
            f"at {counted(unknown.num_unfilled, 'instant')} this pace would have started more; "
            "whom, and what came of it, is not known"
        )


def _of_tasks(unknown: Unknown) -> Iterator[str]:
    if unknown.num_wasted:
        yield f"{counted(unknown.num_wasted, 'update')} left out: this pace had called the task off"
    if unknown.num_given_up:
        yield (
            f"{counted(unknown.num_given_up, 'task')} called off in the run, and not by this pace: "
            "what would have come of that is not known, and it ends as recorded"
        )
    if unknown.num_unanswered:
        yield (
            f"{counted(unknown.num_unanswered, 'client')} would have been asked for what there "
            "was, and arrived as recorded instead, later and with all of it"
        )


def _of_the_end(other: Compared, ends: Ends, rules: Rules) -> Iterator[str]:
    wanted, num = rules.stop.versions, len(other.loop.aggregations)
    if other.loop.over is not None and other.differs_at is not None:
        at, reason = other.loop.over
        yield f"this pace would have ended the run at t = {at:.6g} s: stop.{reason} was reached"
    elif ends.reason == "versions" and wanted is not None and num < wanted:
        yield (
            f"the run ended with its {wanted} versions; this pace had made {num} by then, and "
            "would have gone on"
        )
    elif ends.reason in _LIMITS and other.differs_at is not None:
        yield (
            f"the run ended by {_LIMITS[ends.reason]}; when that would have been with this pace is "
            "not known"
        )
    if ends.reason is None:
        yield f"the run is not over, or was killed: all this is about its log up to {ends.at:.6g} s"


def why(mine: Compared, rules: Rules) -> tuple[str, ...]:
    """What may keep a run's own pace from deciding as it did."""
    return tuple(_reasons(mine, rules))


def _reasons(mine: Compared, rules: Rules) -> Iterator[str]:
    unknown = mine.loop.unknown
    if rules.real_time:
        yield (
            "it ran in real time: when its loop was busy for a second or more, it decided later "
            "than it meant to, of more than it knew by then"
        )
    if mine.loop.lacks_steps:
        yield "its pace goes by steps, and the log of this older run does not tell them"
    if unknown.num_unanswered or unknown.num_given_up:
        yield "its pace calls off or asks running clients, who may have answered otherwise"
    if not (rules.real_time or mine.loop.lacks_steps):
        yield (
            "the log was made by another version of Pisces, by a pace that its config does not "
            "name, or was changed since"
        )

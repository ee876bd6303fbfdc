"""One walk through a log, for the run's own pace and for others at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pisces.errors import ConfigError, RunError
from pisces.policy import Pacer
from pisces.record.lines import Line
from pisces.record.reader import Run
from pisces.replaying import words
from pisces.replaying.loop import Loop, Rules
from pisces.replaying.paces import Source, pacer_of, problems, rules_of, source_of
from pisces.replaying.turns import Ends, Log, Turn, turns_of
from pisces.replaying.values import Act, Aggregation, Check, Numbers, Replayed


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A pace that is asked of a log: by changes to the run's own, or one that was given."""

    pacer: Pacer
    changes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()  # why a run with it would be


def replay(
    run: Run | str | Path,
    changes: Sequence[str] = (),
    *,
    pacer: Pacer | None = None,
    own: Pacer | None = None,
    tick_s: float | None = None,
) -> Replayed:
    """What a run's pace would have decided with `changes` to it, such as `["pace.bound=10"]`.

    For a run whose folder does not say its pace, made in Python with policies of one's own, give
    another `pacer` and the run's `own` instead; and its `tick_s`, where the folder is of an older
    Pisces that did not say that either.
    """
    run = Run.open(run) if not isinstance(run, Run) else run
    if pacer is None and own is None and tick_s is None:
        return replay_all(run, [changes])[0]
    _check_given(changes, pacer, own, tick_s)
    assert pacer is not None
    assert own is not None
    return _replayed(run, own, rules_of(run, tick_s), [Asked(pacer)])[0]


def _check_given(
    changes: Sequence[str], pacer: Pacer | None, own: Pacer | None, tick_s: float | None
) -> None:
    """Refuse what does not go together."""
    if pacer is None and own is None:
        raise ConfigError(
            f"tick_s: must be left out where no pacers are given, not {tick_s!r}: the folder that "
            "says the pace says it, too"
        )
    if changes:
        raise ConfigError(
            f"changes: must be left out where pacers are given, not {list(changes)!r}: change the "
            "pacer itself"
        )
    for name, given in (("pacer", pacer), ("own", own)):
        if given is None:
            raise ConfigError(
                f"{name}: must be a pacer, not None: give both, pacer=another and own=the run's, "
                "or neither"
            )


def replay_all(run: Run, variants: Sequence[Sequence[str]]) -> list[Replayed]:
    """The same for several sets of changes, reading the log once."""
    source = source_of(run)
    asked = [_asked(source, changes) for changes in variants]
    return _replayed(run, source.policies.pacer, source.rules, asked)


def _asked(source: Source, changes: Sequence[str]) -> Asked:
    pacer = pacer_of(source, changes)
    return Asked(pacer, tuple(changes), tuple(problems(source, pacer)) if changes else ())


@dataclass(slots=True, eq=False)
class Recorded:
    """What the run itself decided."""

    aggregations: list[Aggregation] = field(default_factory=list)
    num_dropped: int = 0
    num_starts: int = 0
    _arrived_at: dict[int, float] = field(default_factory=dict)

    def take_in(self, turn: Turn) -> list[Act]:
        """The same turn; returns what was decided."""
        acts = [Act("dropped", turn.at, (task,)) for task in turn.too_late]
        for line in turn.events:
            if line["kind"] == "arrived":
                self._arrived_at[line["task"]] = line["at"]
        for task in (*turn.too_late, *turn.doubted, *turn.not_finite):
            self._arrived_at.pop(task, None)
            self.num_dropped += 1
        if turn.aggregated is not None:
            self.aggregations.append(self._aggregation(turn.aggregated))
            acts.append(Act("aggregated", turn.at, self.aggregations[-1].tasks))
        self.num_starts += len(turn.starts) + len(turn.starts_after)
        return [*acts, *(Act("called off", turn.at, (line["task"],)) for line in turn.called_off)]

    def numbers(self, bound: float | None) -> Numbers:
        """In numbers; the log of an older run does not tell the bound."""
        return Numbers.of(self.aggregations, self.num_dropped, bound)

    def _aggregation(self, line: Line) -> Aggregation:
        at, tasks = line["at"], tuple(line["tasks"])
        waits_s = tuple(at - self._arrived_at.pop(task, at) for task in tasks)
        stale, reason = tuple(line["staleness"]), line.get("reason")
        return Aggregation(
            at, line["version"], tasks, stale, waits_s, reason, line.get("pace") or {}
        )


@dataclass(slots=True, eq=False)
class Compared:
    """A pace over the log, and where it first differs from the run."""

    loop: Loop
    differs_at: float | None = None
    version: int | None = None
    what: str | None = None
    num_starts: int = 0  # before

    def hold(self, acts: Sequence[Act], recorded: Sequence[Act], at: float, *, timed: bool) -> None:
        """Note the first difference between what was decided."""
        if self.differs_at is None and _shown(acts, timed) != _shown(recorded, timed):
            first = min((act.at for act in acts), default=at)
            other = {act.kind for act in {*acts} ^ {*recorded} if act.at <= first}
            self._differ(min(first, at), words.DIFFERS[min(other, default="aggregated")])

    def hold_slots(self, own: Loop, at: float) -> None:
        """Note the same of how many were to be started."""
        if self.loop.slots != own.slots:
            self.loop.unknown.num_unfilled += sum(self.loop.slots) > sum(own.slots)
            if self.differs_at is None:
                self._differ(at, words.DIFFERS["started"])

    def numbers(self) -> Numbers:
        """In numbers."""
        loop = self.loop
        return Numbers.of(loop.aggregations, loop.num_dropped, _bound(loop.aggregations))

    def _differ(self, at: float, what: str) -> None:
        self.differs_at, self.what = at, what
        self.version = sum(aggregation.at < at for aggregation in self.loop.aggregations)


def _shown(acts: Iterable[Act], timed: bool) -> list[tuple[object, ...]]:
    """In real time a decision is the same if it is about the same, be it a little late.

    A dead end is found when others have been called off, so their order is of no interest.
    """
    return sorted((act.kind, act.at if timed else 0.0, act.tasks) for act in acts)


def _replayed(run: Run, own: Pacer, rules: Rules, paces: Sequence[Asked]) -> list[Replayed]:
    log = run.events
    ends = Ends.of(log)
    recorded, mine, others = walk(log, ends, own, rules, [pace.pacer for pace in paces])
    if not recorded.num_starts:
        raise RunError(f"{run.path}: nobody was started in it yet: there is nothing to replay")
    check = _check(recorded, mine, rules)
    return [
        Replayed(
            path=run.path,
            name=run.name,
            changes=pace.changes,
            check=check,
            recorded=recorded.numbers(_bound(mine.loop.aggregations)),
            replayed=other.numbers(),
            aggregations=tuple(other.loop.aggregations),
            aggregations_recorded=tuple(recorded.aggregations),
            refusals=other.loop.refusals,
            differs_at=other.differs_at,
            differs_version=other.version,
            differs_in=other.what,
            ended=other.loop.over if pace.changes else None,
            ends_at=ends.at,
            unknown=other.loop.unknown,
            caveats=words.caveats(recorded, other, ends, rules, pace.refused),
        )
        for pace, other in zip(paces, others, strict=True)
    ]


def walk(
    log: Log, ends: Ends, own: Pacer, rules: Rules, pacers: Sequence[Pacer]
) -> tuple[Recorded, Compared, list[Compared]]:
    """All paces through the log side by side: what was recorded, the run's own, the others."""
    recorded, mine = Recorded(), Compared(Loop(own, rules, ends))
    others = [Compared(Loop(pacer, rules, ends)) for pacer in pacers]
    timed = not rules.real_time
    for turn in turns_of(log, ends):
        decided = recorded.take_in(turn)
        for pace in (mine, *others):
            acts = pace.loop.take_in(turn, as_recorded=pace.differs_at is None)
            pace.hold(acts, decided, turn.at, timed=timed)
            if pace is not mine:
                pace.hold_slots(mine.loop, turn.at)
            pace.num_starts = recorded.num_starts if pace.differs_at is None else pace.num_starts
    for pace in (mine, *others):
        pace.hold(pace.loop.finish(), [], ends.at, timed=timed)
    return recorded, mine, others


def _bound(aggregations: Sequence[Aggregation]) -> float | None:
    """The most versions an update may be behind, where the pace says so."""
    told = (aggregation.terms.get("bound") for aggregation in aggregations)
    return next((bound for bound in told if bound is not None), None)


def _check(recorded: Recorded, mine: Compared, rules: Rules) -> Check:
    pairs = list(zip(recorded.aggregations, mine.loop.aggregations, strict=False))
    same = [(a, b) for a, b in pairs if (a.tasks, a.staleness) == (b.tasks, b.staleness)]
    if not rules.real_time:
        same = [(a, b) for a, b in same if a.at == b.at]
    return Check(
        num_recorded=len(recorded.aggregations),
        num_replayed=len(mine.loop.aggregations),
        num_same=len(same),
        most_apart_s=max((abs(a.at - b.at) for a, b in same), default=0.0),
        differs_at=mine.differs_at,
        why=() if mine.differs_at is None else words.why(mine, rules),
    )

"""One walk through a log, for the run's own pace and for others at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pisces.errors import RunError
from pisces.policy import Pacer
from pisces.record.lines import Line
from pisces.record.reader import Run
from pisces.replaying import words
from pisces.replaying.loop import Loop, Rules
from pisces.replaying.paces import Source, pacer_of, problems, source_of
from pisces.replaying.turns import Ends, Log, Turn, turns_of
from pisces.replaying.values import Act, Check, Decision, Numbers, Replayed


def replay(
    run: Run | str | Path,
    changes: Sequence[str] = (),
    *,
    pacer: Pacer | None = None,
    own: Pacer | None = None,
    tick_s: float = 0.0,
) -> Replayed:
    """What a run's pace would have decided with `changes` to it, such as `["pace.bound=10"]`.

    For a run made in Python, whose folder does not say its pace, give another `pacer`, the run's
    `own` and its `tick_s` instead.
    """
    run = Run.open(run) if not isinstance(run, Run) else run
    if pacer is None and own is None:
        return replay_all(run, [changes])[0]
    if pacer is None or own is None or changes:
        raise TypeError("give changes, or both pacer and own")
    # In Flower nobody can be called off.
    rules = Rules(tick_s=tick_s, can_release=not run.is_of_flower, real_time=run.in_real_time)
    return _replayed(run, own, rules, [(("pacer",), pacer, [])])[0]


def replay_all(run: Run, variants: Sequence[Sequence[str]]) -> list[Replayed]:
    """The same for several sets of changes, reading the log once."""
    source = source_of(run)
    asked = [(tuple(changes), pacer_of(source, changes)) for changes in variants]
    paces = [(changes, pacer, _problems(source, changes, pacer)) for changes, pacer in asked]
    return _replayed(run, source.policies.pacer, source.rules, paces)


def _problems(source: Source, changes: Sequence[str], pacer: Pacer) -> list[str]:
    return problems(source, pacer) if changes else []


@dataclass(slots=True, eq=False)
class Recorded:
    """What the run itself decided."""

    decisions: list[Decision] = field(default_factory=list)
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
            self.decisions.append(self._decision(turn.aggregated))
            acts.append(Act("aggregated", turn.at, self.decisions[-1].tasks))
        self.num_starts += len(turn.starts) + len(turn.starts_after)
        return [*acts, *(Act("called off", turn.at, (line["task"],)) for line in turn.called_off)]

    def numbers(self, bound: float | None) -> Numbers:
        """In numbers; the log of an older run does not tell the bound."""
        return Numbers.of(self.decisions, self.num_dropped, bound)

    def _decision(self, line: Line) -> Decision:
        at, tasks = line["at"], tuple(line["tasks"])
        waits_s = tuple(at - self._arrived_at.pop(task, at) for task in tasks)
        stale, reason = tuple(line["staleness"]), line.get("reason")
        return Decision(at, line["version"], tasks, stale, waits_s, reason, line.get("pace") or {})


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
        return Numbers.of(loop.decisions, loop.num_dropped, _bound(loop.decisions))

    def _differ(self, at: float, what: str) -> None:
        self.differs_at, self.what = at, what
        self.version = sum(decision.at < at for decision in self.loop.decisions)


def _shown(acts: Iterable[Act], timed: bool) -> list[tuple[object, ...]]:
    """In real time a decision is the same if it is about the same, be it a little late.

    A dead end is found when others have been called off, so their order is of no interest.
    """
    return sorted((act.kind, act.at if timed else 0.0, act.tasks) for act in acts)


Pace = tuple[tuple[str, ...], Pacer, list[str]]


def _replayed(run: Run, own: Pacer, rules: Rules, paces: Sequence[Pace]) -> list[Replayed]:
    log = run.events
    ends = Ends.of(log)
    recorded, mine, others = walk(log, ends, own, rules, [pacer for _, pacer, _ in paces])
    if not recorded.num_starts:
        raise RunError(f"{run.path}: nobody was started in it yet: there is nothing to replay")
    check = _check(recorded, mine, rules)
    return [
        Replayed(
            path=run.path,
            name=run.name,
            changes=changes,
            check=check,
            recorded=recorded.numbers(_bound(mine.loop.decisions)),
            replayed=other.numbers(),
            decisions=tuple(other.loop.decisions),
            decisions_recorded=tuple(recorded.decisions),
            refusals=other.loop.refusals,
            differs_at=other.differs_at,
            differs_version=other.version,
            differs_in=other.what,
            ended=other.loop.over if changes else None,
            ends_at=ends.at,
            unknown=other.loop.unknown,
            caveats=words.caveats(recorded, other, ends, rules, refused),
        )
        for (changes, _, refused), other in zip(paces, others, strict=True)
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


def _bound(decisions: Sequence[Decision]) -> float | None:
    """The most versions an update may be behind, where the pace says so."""
    told = (decision.terms.get("bound") for decision in decisions)
    return next((bound for bound in told if bound is not None), None)


def _check(recorded: Recorded, mine: Compared, rules: Rules) -> Check:
    pairs = list(zip(recorded.decisions, mine.loop.decisions, strict=False))
    same = [(a, b) for a, b in pairs if (a.tasks, a.staleness) == (b.tasks, b.staleness)]
    if not rules.real_time:
        same = [(a, b) for a, b in same if a.at == b.at]
    return Check(
        num_recorded=len(recorded.decisions),
        num_replayed=len(mine.loop.decisions),
        num_same=len(same),
        most_apart_s=max((abs(a.at - b.at) for a, b in same), default=0.0),
        differs_at=mine.differs_at,
        why=() if mine.differs_at is None else words.why(mine, rules),
    )

"""What runs came to, in sentences: made from numbers, and saying what does not count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pisces.quantities import begun, duration, how_many, listed, told
from pisces.record.reader import Run
from pisces.record.summary import Counts
from pisces.report.compare import Row
from pisces.report.estimate import Estimate, ends_in_words, median_in_words
from pisces.report.goal import Goal
from pisces.report.worlds import harm_in, manners, what_was_learnt

REASONS: Mapping[str, str] = {
    "time": "its time was over",
    "versions": "it had made as many versions as it was to make",
    "updates": "it had as many updates as it was to have",
    "target": "it had reached its target",
    "patience": "it had got no better for as long as it was to wait",
    "no clients left": "no clients were left",
    "nobody may be selected": "nobody could be selected any more",
    "no trusted clients left": "no client was trusted any more",
    "silent clients": "no client was heard of any more",
}


def about_run(
    run: Run, goal: Goal, *, bound: float | None = None, clock: str = "virtual"
) -> Iterator[str]:
    """One run: what it was, how it ended, how good it got, what became of the updates."""
    counts = run.counts
    yield _what(run)
    yield _ending(counts, clock)
    if goal.metric in counts.final:
        yield from _quality(run, goal)
    elif not counts.final:
        yield "Nothing was evaluated, so nobody knows how good the model is."
    yield _updates(counts)
    if counts.mean_staleness is not None and counts.max_staleness is not None:
        yield _staleness(counts.mean_staleness, counts.max_staleness, bound)
    yield _trust(counts)
    yield from harm_in(run)
    yield from _trouble(counts)


def about_comparison(
    rows: Sequence[Row], runs: Sequence[Run], goal: Goal, bounds: Mapping[str, float] | None = None
) -> Iterator[str]:
    """Protocols side by side: the first row is the one whose speed-ups are told.

    `bounds` are those on staleness, by protocol.
    """
    seeds = dict.fromkeys(seed for row in rows for seed in row.seeds)
    num_runs = sum(len(row.seeds) for row in rows)
    if not num_runs:
        yield "No run came to its end, so there is nothing to compare yet."
    else:
        yield (
            f"{how_many(num_runs, 'run')} of {how_many(len(rows), 'protocol')} "
            f"({listed([row.protocol for row in rows])}), {_seeds(list(seeds))}"
            f"{what_was_learnt(runs)}."
        )
        yield from (_reached(row, goal) for row in rows if row.seeds)
        yield from (
            manners(row, runs, (bounds or {}).get(row.protocol)) for row in rows if row.seeds
        )
    first, known = rows[0].protocol, [(row, row.known_speedup) for row in rows[1:]]
    yield from (_speedup(first, row.protocol, found) for row, found in known if found is not None)
    yield from (_unknown(first, row) for row, found in known if found is None)
    cut = [(row.protocol, row.num_cut_short) for row in rows if row.num_cut_short]
    if cut:
        of = listed([f"{num} of {name}" for name, num in cut])
        total = sum(num for _, num in cut)
        yield (
            f"{how_many(total, 'run')} ({of}) {'was' if total == 1 else 'were'} interrupted or "
            f"{'is' if total == 1 else 'are'} not over, and {_do(total)} not count."
        )


# --- one run --------------------------------------------------------------------------------------


def _what(run: Run) -> str:
    model, dataset = run.setting("model", "name"), run.setting("data", "dataset")
    num, at_once = run.counts.num_clients, run.setting("clients", "concurrency")
    seed = "" if run.seed is None else f" (seed {run.seed})"
    trained = f" trained the model {model}" if isinstance(model, str) else " trained a model"
    on = f" on {dataset}" if isinstance(dataset, str) and not run.is_served else ""
    slots = f", at most {at_once} at a time" if isinstance(at_once, int) else ""
    return f"{run.protocol}{seed}{trained}{on} over {how_many(num, 'client')}{slots}."


def _ending(counts: Counts, clock: str) -> str:
    at = f"{duration(counts.at)}{' of virtual time' if clock == 'virtual' else ''}"
    if counts.reason is None:
        return f"It is not over, or was killed: the log ends after {at}."
    if counts.reason == "interrupted":
        return f"It was interrupted after {at}: where it stands is not what it would have come to."
    return f"It ended after {at}: {REASONS.get(counts.reason, counts.reason)}."


def _quality(run: Run, goal: Goal) -> Iterator[str]:
    metric, target = goal.metric, goal.target
    counts, name = run.counts, told(metric)
    final, best = counts.final.get(metric), counts.best.get(metric)
    values = f"Its last {name} was {_number(final)}, its best {_number(best)}"
    if target is None:
        yield f"{values}."
        return
    time = run.time_to_target(target, metric)
    if time is not None:
        yield f"It reached {name} {target:g} after {duration(time)}. {values}."
    elif counts.is_cut_short:
        yield f"It had not reached {name} {target:g} by then. {values}."
    else:
        yield f"It did not reach {name} {target:g}. {values}."


def _updates(counts: Counts) -> str:
    if not counts.num_updates:
        started = how_many(counts.num_started, "task").capitalize()
        return f"{started} started, and no update arrived."
    waiting = counts.num_updates - counts.num_aggregated - counts.num_dropped
    fates = [f"{counts.num_aggregated:,} went into {how_many(counts.versions, 'version')}"]
    if counts.num_dropped:
        fates.append(f"{counts.num_dropped:,} {_was(counts.num_dropped)} dropped")
    if waiting > 0:
        fates.append(f"{waiting:,} {'waits' if waiting == 1 else 'wait'}")
    return f"{how_many(counts.num_updates, 'update')} arrived: {listed(fates)}."


def _staleness(mean: float, largest: int, bound: float | None) -> str:
    text = f"Updates were {mean:.1f} versions stale on average, the stalest {largest}"
    if bound is None:
        return f"{text}."
    if largest <= bound:
        return f"{text}; the bound is {bound:g}, and no update was staler."
    return f"{text}, which is beyond the bound of {bound:g}."


def _trust(counts: Counts) -> str:
    distrusted, num = counts.distrusted, counts.num_outliers
    what = "an outlier" if num == 1 else "outliers"
    outliers = f"{how_many(num, 'update')} {_was(num)} taken for {what}"
    if not distrusted:
        return "No client was distrusted." if not num else f"{outliers}; no client was distrusted."
    whom = f"{'client' if len(distrusted) == 1 else 'clients'} {listed(distrusted)}"
    return f"{outliers}; {whom} ran out of credits and {_was(len(distrusted))} not picked again."


def _trouble(counts: Counts) -> Iterator[str]:
    given_up = counts.num_given_up
    told = [
        f"{how_many(num, noun)} {verb}"
        for num, noun, verb in (
            (counts.num_failed, "task", "failed"),
            (given_up, "task", f"{_was(given_up)} called off by the protocol"),
        )
        if num
    ]
    if counts.num_left:
        told.append(f"clients left {how_many(counts.num_left, 'time')}")
    if told:
        text = listed(told)
        yield f"{begun(text)}."
    under_way = counts.num_under_way
    if under_way:
        yield (
            f"{how_many(under_way, 'task')} {_was(under_way)} under way when the run stopped, "
            "and came to nothing."
        )


# --- several --------------------------------------------------------------------------------------


def _seeds(seeds: Sequence[int | None]) -> str:
    known = sorted(seed for seed in seeds if seed is not None)
    if not known:
        return "of seeds that are not known"
    if len(known) == 1:
        return f"of seed {known[0]}"
    in_a_row = known[-1] - known[0] == len(known) - 1
    return f"of seeds {known[0]} to {known[-1]}" if in_a_row else f"of seeds {listed(known)}"


def _reached(row: Row, aim: Goal) -> str:
    num, goal = len(row.seeds), f"{told(aim.metric)} {aim.needed:g}"
    if row.reached == 0:
        of = "its only run" if num == 1 else f"any of its {num:,} runs"
        return f"{row.protocol} did not reach {goal} in {of}."
    if row.reached == num and row.time_to_target_s is not None:
        of = "its only run" if num == 1 else f"median of {num:,} runs"
        return f"{row.protocol} reached {goal} after {duration(row.time_to_target_s)} ({of})."
    by = (
        ""
        if row.time_to_target_s is None
        else f", half of them by {duration(row.time_to_target_s)}"
    )
    return f"{row.protocol} reached {goal} in {row.reached:,} of {num:,} runs{by}."


def _speedup(reference: str, other: str, found: Estimate) -> str:
    median = median_in_words(found, "{:.2f}".format, at_least="at least", at_most="at most")
    text = f"{reference} was {median} times as fast as {other}"
    if found.num == 1:
        return f"{text}, in one pair of runs: that may be chance."
    ends = _ends(*ends_in_words(found, "{:.2f}".format))
    spread = f"{ends} in {found.num} pairs, too few for an interval"
    if found.has_interval:
        spread = f"95 % interval {ends}, {found.num} pairs"
    return f"{text} ({spread}){_verdict(found)}."


def _ends(low: str, high: str) -> str:
    if low == "?":
        return "of unknown ends" if high == "?" else f"up to {high}"
    return f"{low} and up" if high == "?" else f"{low} to {high}"


def _verdict(found: Estimate) -> str:
    """Whether the difference may be chance: where the interval holds 1, or has no lower end."""
    if found.low > 1:
        return ""
    return ": it was slower" if found.high < 1 else ": that may be chance"


def _unknown(reference: str, row: Row) -> str:
    if row.speedup is None:
        return f"{reference} and {row.protocol} have no finished seed in common: no speed-up."
    return f"How much faster {reference} was than {row.protocol} cannot be told: neither got there."


def _number(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4g}"


def _was(num: int) -> str:
    return "was" if num == 1 else "were"


def _do(num: int) -> str:
    return "does" if num == 1 else "do"

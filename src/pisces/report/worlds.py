"""What runs met, in words: what was learnt, by how many clients, how many of them did harm or came
late, and how many were distrusted.

All of it from their configs and summaries. Which clients were spoilt is drawn when a run is built,
and no folder says: only how many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pisces.quantities import begun, how_many
from pisces.record.reader import Run
from pisces.record.summary import Counts
from pisces.report.compare import Row

SHARES = {1 / 2: "half", 1 / 3: "a third", 1 / 4: "a quarter", 1 / 5: "a fifth", 1 / 10: "a tenth"}


def what_was_learnt(runs: Sequence[Run]) -> str:
    """`: mlp on digits, 60 clients, 10 at a time, a fifth with wrong labels`.

    Only what is known, and the same for all; nothing where nothing is.
    """
    parts = [_task(runs)]
    num = _same([run.counts.num_clients for run in runs])
    if num:
        parts.append(how_many(num, "client"))
    at_once = _same([run.setting("clients", "concurrency") for run in runs])
    if isinstance(at_once, int):
        parts.append(f"{at_once:,} at a time")
    if not any(run.is_served for run in runs):
        wrong, hostile = (_same([of(run) for run in runs]) for of in (_wrong, _hostile))
        parts += [f"{share_of(wrong)} with wrong labels"] if wrong else []
        parts += [f"{share_of(hostile)} hostile"] if hostile else []
    told = ", ".join(part for part in parts if part)
    return f": {told}" if told else ""


def harm_in(run: Run) -> Iterator[str]:
    """How many clients had wrong labels or were hostile, beside how many were distrusted."""
    if run.is_served or not run.config:
        return
    num, distrusted = run.setting("clients", "count"), len(run.counts.distrusted)
    for share, what in ((_wrong(run), "had wrong labels"), (_hostile(run), "were hostile")):
        if share:
            told = share_of(share)
            many = f" ({round(share * num):,} of {num:,})" if isinstance(num, int) else ""
            yield f"{begun(told)} of the clients{many} {what}; {_found(distrusted)}."


def manners(row: Row, runs: Sequence[Run], bound: float | None = None) -> str:
    """How stale updates came in, against the bound, and how many clients were not trusted."""
    own = [r.counts for r in runs if r.protocol == row.protocol and not r.counts.is_cut_short]
    stale_ones = [counts for counts in own if counts.mean_staleness is not None]
    if not stale_ones or row.max_staleness is None:
        stale = "no update went into a version"
    elif row.max_staleness == 0:
        stale = "no update was stale"
    else:
        mean = _mean_staleness(stale_ones)
        most = f"the stalest {row.max_staleness}{_against(bound, row.max_staleness)}"
        stale = f"updates were {mean:.1f} versions stale on average, {most}"
    nums = [len(counts.distrusted) for counts in own]
    fewest, largest = min(nums, default=0), max(nums, default=0)
    whom = f"{fewest:,} to {largest:,} clients" if fewest < largest else how_many(largest, "client")
    each = " in each run" if fewest == largest > 0 and len(nums) > 1 else ""
    return f"{row.protocol}: {stale}; {whom} {'was' if largest == 1 else 'were'} distrusted{each}."


def _against(bound: float | None, stalest: int) -> str:
    if bound is None:
        return ""
    if stalest == bound:
        return ", its bound"
    return f", {'beyond' if stalest > bound else 'within'} its bound of {bound:g}"


def _mean_staleness(runs: Sequence[Counts]) -> float:
    """Over all updates of these runs, as a histogram of them has it: a long run counts for more."""
    parts = [(max(1, counts.num_aggregated), counts.mean_staleness or 0.0) for counts in runs]
    return sum(num * mean for num, mean in parts) / sum(num for num, _ in parts)


def share_of(share: float) -> str:
    """`a fifth`, `12 %`."""
    names = (name for known, name in SHARES.items() if abs(known - share) < 1e-3)
    return next(names, f"{100 * share:.3g} %")


def _found(num: int) -> str:
    if not num:
        return "none of them was distrusted"
    told = f"{how_many(num, 'client')} {'was' if num == 1 else 'were'} distrusted"
    return f"{told}, and the log does not say which of these they are"


def _task(runs: Sequence[Run]) -> str:
    model = _same([run.setting("model", "name") for run in runs])
    served = any(run.is_served for run in runs)
    dataset = None if served else _same([run.setting("data", "dataset") for run in runs])
    on = f" on {dataset}" if isinstance(dataset, str) else ""
    if isinstance(model, str):
        return f"{model}{on}"
    return dataset if isinstance(dataset, str) else ""


def _wrong(run: Run) -> float:
    """The share of clients whose labels are wrong, as far as the config says."""
    return _share(run.setting("data", "corrupted"))


def _hostile(run: Run) -> float:
    return _share(run.setting("hostile", "share"))


def _share(value: Any) -> float:
    is_share = isinstance(value, (int, float)) and 0 <= value <= 1  # the folder may be anybody's
    return float(value) if is_share else 0.0


def _same(values: Sequence[Any]) -> Any:
    """What all of them are; None where they differ."""
    return values[0] if all(value == values[0] for value in values) else None

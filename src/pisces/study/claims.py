"""What comes of a study's claims: a verdict each from the numbers, and one for the study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from pisces.report import estimate as est
from pisces.report.estimate import Ends, Estimate
from pisces.study.measures import MEASURES
from pisces.study.plan import Claim, Comparison, Study
from pisces.study.records import Record

Verdict: TypeAlias = Literal["holds", "partly", "does not hold", "open", "not measured"]
BySeed: TypeAlias = Mapping[int, Ends]

UNDECIDED: Sequence[Verdict] = ("open", "not measured")
MIN_SEEDS = 3  # fewer decide nothing
MOST_TOLD = 2  # claims in a verdict's line
COMPARE: Mapping[Comparison, Callable[[Ends, Ends], Ends]] = {
    "speedup": lambda of, over: est.ratio(over, of),
    "ratio": est.ratio,
    "difference": est.difference,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim on one task, at one point, of one variant; our number and what comes of it."""

    claim: Claim
    case: str
    x: float | None
    of: str
    found: Estimate | None
    verdict: Verdict

    @property
    def wants_seeds(self) -> bool:
        """Is it open because there are too few seeds?"""
        return self.found is not None and self.found.num < MIN_SEEDS

    @property
    def decision(self) -> str:
        """The verdict, with the reason where it is for want of seeds."""
        return f"open: fewer than {MIN_SEEDS} seeds" if self.wants_seeds else self.verdict

    @property
    def ours(self) -> str:
        """Our number in words; of a claim judged by the worst seed, that one's."""
        at_worst = "at worst " if self.found and self.claim.by == "worst" else ""
        return at_worst + est.in_words(self.found, text_of(self.claim))

    @property
    def setting(self) -> str:
        """On which task, at which point and, where there are several, of which variant."""
        at = "" if self.x is None else f" at {self.x:g}"
        of = f", {self.of}" if len(self.claim.of) > 1 else ""
        return f"{self.case}{at}{of}"


def text_of(claim: Claim) -> Callable[[float], str]:
    """How the claim's number is written."""
    match claim.compare:
        case "speedup" | "ratio":
            return est.times
        case "difference":
            return lambda value: f"{value:+.3g}"
        case _:
            return MEASURES[claim.measure].text


def judge(study: Study, records: Sequence[Record]) -> list[Judged]:
    """Every claim on each of its tasks, at each of its points, of each of its variants."""
    return [
        _judged(claim, case, x, of, records)
        for claim in study.claim
        for case in claim.case
        for x in claim.xs
        for of in claim.of
    ]


def _judged(claim: Claim, case: str, x: float | None, of: str, records: Sequence[Record]) -> Judged:
    mine = by_seed(records, case, of, x, claim.measure)
    values = list(mine.values())
    if claim.over is not None:
        at = x if claim.over_at is None else claim.over_at
        values = paired(claim.compare, mine, by_seed(records, case, claim.over, at, claim.measure))
    found = _found(claim, values)
    return Judged(claim, case, x, of, found, _verdict(claim, found))


def _found(claim: Claim, values: Sequence[Ends]) -> Estimate | None:
    """The median over seeds or, in its place, the one that is furthest from what is claimed."""
    found = est.estimate(values)
    if found is None or claim.by == "median":
        return found
    worst = max if claim.holds.startswith("<=") else min
    least, most = (worst(ends) for ends in zip(*values, strict=True))
    return replace(found, least=least, most=most, low=least, high=most)


def by_seed(
    records: Sequence[Record], case: str, variant: str, x: float | None, measure: str
) -> dict[int, Ends]:
    """A measure of one variant on one task, seed by seed."""
    return {
        record.seed: record.measures[measure]
        for record in records
        if (record.case, record.variant, record.x) == (case, variant, x)
        and measure in record.measures
    }


def paired(compare: Comparison, of: BySeed, over: BySeed) -> list[Ends]:
    """Both compared within each seed they share."""
    return [COMPARE[compare](of[seed], over[seed]) for seed in sorted(of.keys() & over.keys())]


def _verdict(claim: Claim, found: Estimate | None) -> Verdict:
    """By what was found; where it is only bounded, what is certain of it, or else it is open.

    It is open, too, of fewer than `MIN_SEEDS`: their median is one run, or between two.
    """
    if found is None:
        return "not measured"
    if found.num < MIN_SEEDS:
        return "open"
    ends = (found.least, found.most)
    if all(_meets(claim.holds, end) for end in ends):
        return "holds"
    lesser = claim.partly or claim.holds
    if all(_meets(lesser, end) for end in ends):
        return "partly"
    return "open" if any(_meets(lesser, end) for end in ends) else "does not hold"


def _meets(threshold: str, value: float) -> bool:
    sign, number = threshold.split()
    return value >= float(number) if sign == ">=" else value <= float(number)


def overall(judged: Sequence[Judged]) -> Verdict:
    """The study's verdict: all that is decided holds, none of it does, or something between."""
    verdicts = {one.verdict for one in _decided(judged)}
    if not verdicts:
        return "open" if any(one.verdict == "open" for one in judged) else "not measured"
    if len(verdicts) == 1:
        return verdicts.pop()
    return "partly"


def in_short(judged: Sequence[Judged]) -> str:
    """The study's verdict and how many claims hold."""
    if not judged:
        return "no claims"
    verdict = overall(judged)
    return verdict if verdict == "not measured" else f"{verdict} ({_tally(judged)})"


def why(judged: Sequence[Judged]) -> str:
    """The numbers behind the verdict, in one line: what fails before what holds."""
    if not judged:
        return "it makes no claims"
    decided = _decided(judged)
    if not decided:
        return _tally(judged)
    others = sorted((one for one in decided if one.verdict != "holds"), key=lambda o: o.verdict)
    shown = others or decided
    told = "; ".join(_brief(one) for one in shown[:MOST_TOLD])
    more = f"; and {len(shown) - MOST_TOLD} more" if len(shown) > MOST_TOLD else ""
    return f"{_tally(judged)}: {told}{more}"


def _decided(judged: Sequence[Judged]) -> list[Judged]:
    return [one for one in judged if one.verdict not in UNDECIDED]


def _tally(judged: Sequence[Judged]) -> str:
    decided, num_open = _decided(judged), sum(one.verdict == "open" for one in judged)
    if not decided and num_open:
        return f"claims left open: {num_open}{_for_want_of_seeds(judged, num_open)}"
    if not decided:
        return "no claim has been measured yet"
    num_held = sum(one.verdict == "holds" for one in decided)
    left_open = f", {num_open} open" if num_open else ""
    return f"{num_held} of {len(decided)} claims hold{left_open}"


def _for_want_of_seeds(judged: Sequence[Judged], num_open: int) -> str:
    num = sum(one.wants_seeds for one in judged)
    if not num:
        return ""
    return f", {'' if num == num_open else f'{num} of them '}for fewer than {MIN_SEEDS} seeds"


def _brief(one: Judged) -> str:
    verdict = "" if one.verdict == "holds" else f"{one.verdict}: "
    paper = "" if one.claim.paper is None else f", paper {one.claim.paper}"
    return f"{verdict}{one.claim.text} ({one.setting}): {one.ours}{paper}"

"""What comes of a study's claims: a verdict each from the numbers, and one for the study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pisces.report import estimate as est
from pisces.report.estimate import Ends, Estimate
from pisces.report.measures import MEASURES
from pisces.study.plan import Claim, Comparison, Study
from pisces.study.records import Record

Verdict: TypeAlias = Literal["holds", "partly", "does not hold", "open", "not measured"]
BySeed: TypeAlias = Mapping[int, Ends]

MOST_TOLD = 2  # claims in a verdict's line
COMPARE: Mapping[Comparison, Callable[[Ends, Ends], Ends]] = {
    "speedup": lambda of, over: est.ratio(over, of),
    "ratio": est.ratio,
    "difference": est.difference,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim on one task, our number and what it makes of the claim."""

    claim: Claim
    case: str
    of: str
    found: Estimate | None
    verdict: Verdict

    @property
    def ours(self) -> str:
        """Our number in words."""
        return est.in_words(self.found, text_of(self.claim))

    @property
    def setting(self) -> str:
        """On which task, at which point and, where there are several, of which variant."""
        at = "" if self.claim.at is None else f" at {self.claim.at:g}"
        of = f", {self.of}" if len(self.claim.ofs) > 1 else ""
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
    """Every claim on each of its tasks."""
    return [
        _judged(claim, case, of, records)
        for claim in study.claim
        for case in claim.cases
        for of in claim.ofs
    ]


def _judged(claim: Claim, case: str, of: str, records: Sequence[Record]) -> Judged:
    mine = by_seed(records, case, of, claim.at, claim.measure)
    values = list(mine.values())
    if claim.over is not None:
        at = claim.at if claim.over_at is None else claim.over_at
        values = paired(claim.compare, mine, by_seed(records, case, claim.over, at, claim.measure))
    found = est.estimate(values)
    return Judged(claim, case, of, found, _verdict(claim, found))


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
    """By the median; where it is only bounded, what is certain of it, or else it is open."""
    if found is None:
        return "not measured"
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
    all_verdicts = {one.verdict for one in judged}
    verdicts = all_verdicts - {"not measured", "open"}
    if not verdicts:
        return "open" if "open" in all_verdicts else "not measured"
    if len(verdicts) == 1:
        return verdicts.pop()
    return "partly"


def why(judged: Sequence[Judged]) -> str:
    """The numbers behind the verdict, in one line: what fails before what holds."""
    measured = [one for one in judged if one.verdict not in ("not measured", "open")]
    num_open = sum(one.verdict == "open" for one in judged)
    if not measured and not num_open:
        return "no claim has been measured yet"
    if not measured:
        return f"what was measured leaves {num_open} claim{'s' * (num_open > 1)} open"
    held = [one for one in measured if one.verdict == "holds"]
    others = sorted((one for one in measured if one.verdict != "holds"), key=lambda o: o.verdict)
    counted = f"{len(held)} of {len(measured)} measured claims hold"
    shown = others or held
    told = "; ".join(f"{_brief(one)}" for one in shown[:MOST_TOLD])
    more = f"; and {len(shown) - MOST_TOLD} more" if len(shown) > MOST_TOLD else ""
    left_open = f"; open: {num_open}" if num_open else ""
    return f"{counted}{' but' if held and others else ''}: {told}{more}{left_open}"


def _brief(one: Judged) -> str:
    verdict = "" if one.verdict == "holds" else f"{one.verdict}: "
    paper = "" if one.claim.paper is None else f", paper {one.claim.paper}"
    return f"{verdict}{one.claim.text} ({one.setting}): {one.ours}{paper}"

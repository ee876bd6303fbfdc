"""`RESULTS.md`: a study's verdict, claims, tables and pictures, from its records alone."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pisces.quantities import begun, duration
from pisces.report.estimate import MIN_BOOTSTRAP, estimate, in_words, times
from pisces.study.claims import MIN_SEEDS, Judged, by_seed, judge, overall, paired, why
from pisces.study.measures import MEASURES
from pisces.study.plan import FOLDER, Case, Study
from pisces.study.records import Record
from pisces.study.runs import TRIAL

if TYPE_CHECKING:
    from pisces.study.material import Drawn  # matplotlib is slow to import

PAGE = "RESULTS.md"


@dataclass(frozen=True, slots=True)
class Missing:
    """What is left to run of a case."""

    num_runs: int
    seconds: float  # about, one run at a time
    dataset: str


@dataclass(frozen=True, slots=True)
class Results:
    """Everything a page says."""

    name: str
    study: Study
    records: Sequence[Record]
    pictures: Mapping[str, Sequence[Drawn]]  # by case
    missing: Mapping[str, Missing]  # by case; nothing where all is done
    smoke: bool = False
    folder: Path = FOLDER  # where the study is
    every_s: Mapping[str, float] = field(default_factory=dict)  # by case: between evaluations

    @property
    def command(self) -> str:
        """What makes its runs."""
        is_usual = self.folder.resolve() == FOLDER.resolve()
        where = "" if is_usual else f" --folder {shlex.quote(str(self.folder))}"
        return f"pisces reproduce {self.name}{where}"

    def of(self, case: Case) -> list[Record]:
        """The records of a case."""
        return [record for record in self.records if record.case == case.name]


def page(results: Results) -> str:
    """The whole page as Markdown."""
    judged = judge(results.study, results.records)
    parts = [
        *_head(results, judged),
        *_claims(judged),
        *(line for case in results.study.case for line in _case(results, case)),
        *_made(results),
    ]
    return "\n".join(parts) + "\n"


def index(verdicts: Iterable[tuple[str, Study, Sequence[Record]]], *, smoke: bool = False) -> str:
    """The page over all studies: a verdict each."""
    all_studies = list(verdicts)
    of_paper = any(study.paper for _, study, _ in all_studies)
    rows = []
    for name, study, records in all_studies:
        judged = judge(study, records)
        link = f"[{study.title}]({name}/{PAGE})" if records else study.title
        verdict = overall(judged) if judged else "no claims"
        found = ("none", TRIAL) if smoke else (verdict, why(judged))
        paper = [study.paper or ""] if of_paper else []
        rows.append([link, *paper, f"**{found[0]}**", found[1]])
    lines = [
        "# The paper's experiments, measured" if of_paper else "# Studies, measured",
        "",
        *([SMOKE_NOTE, ""] if smoke else []),
        "Made by `pisces reproduce`.",
        "",
        *_table(["study", *(["in the paper"] if of_paper else []), "verdict", "why"], rows),
    ]
    return "\n".join(lines) + "\n"


MEANS_NOTHING = f"{TRIAL}: the numbers mean nothing"
SMOKE_NOTE = f"*{begun(MEANS_NOTHING)}.*"

WORST_NOTE = "At worst: not the median but the worst seed, for it must be so of every one."
OPEN_NOTE = (
    f"Open: fewer than {MIN_SEEDS} seeds, or runs that never met their target leave the median so "
    "wide that it may hold or not; what is open has no say in the study's verdict."
)


def _head(results: Results, judged: Sequence[Judged]) -> Iterator[str]:
    study = results.study
    yield from (f"# {study.title}", "")
    if results.smoke:
        yield from (SMOKE_NOTE, "")
    yield from (
        study.says if study.paper is None else f"The paper ({study.paper}): {study.says}",
        "",
    )
    if not results.smoke:
        yield from (f"**Verdict: {overall(judged)}.** {why(judged)}.", "")
    if study.remark and not results.smoke:
        yield from (study.remark, "")


def _claims(judged: Sequence[Judged]) -> Iterator[str]:
    if not judged:
        return
    yield from ("## Claims", "")
    measured = [one for one in judged if one.verdict != "not measured"]
    if measured:
        yield from _claim_table(measured)
    if len(measured) < len(judged):
        more = " more" if measured else ""
        yield from (f"Not measured yet: {len(judged) - len(measured)}{more}.", "")


def _claim_table(measured: Sequence[Judged]) -> Iterator[str]:
    of_paper = any(one.claim.paper for one in measured)
    rows = [
        [
            one.claim.text,
            one.setting,
            *([one.claim.paper or ""] if of_paper else []),
            one.ours,
            str(0 if one.found is None else one.found.num),
            f"{one.claim.holds}" + (f", partly {one.claim.partly}" if one.claim.partly else ""),
            one.decision,
        ]
        for one in measured
    ]
    paper = ["paper"] if of_paper else []
    headings = ["claim", "on", *paper, "ours", "seeds", "holds if", "verdict"]
    yield from _table(headings, rows)
    spread = f"in brackets its 95 % interval, with fewer than {MIN_BOOTSTRAP} seeds the range"
    yield from ("", f"Ours: the median over seeds, {spread}; two are compared seed by seed.", "")
    if any(one.claim.by == "worst" for one in measured):
        yield from (WORST_NOTE, "")
    if any(one.verdict == "open" for one in measured):
        yield from (OPEN_NOTE, "")


# --- a case ---------------------------------------------------------------------------------------


def _case(results: Results, case: Case) -> Iterator[str]:
    records = results.of(case)
    if not records and case.name not in results.missing:  # no part of a trial
        return
    yield from (f"## {case.name}", "")
    about = "Here: digits, with a small model." if results.smoke else case.about
    if about:
        yield from (about, "")
    if case.name in results.missing:
        yield from (_missing(results, case), "")
    if not records:
        return
    yield from (f"Target: {records[0].metric} {records[0].target:g}{_steps(results, case)}.", "")
    yield from _table(_headings(results.study, case), list(_rows(results.study, case, records)))
    yield ""
    for drawn in results.pictures.get(case.name, ()):
        yield from (f"![{drawn.caption}]({drawn.path.parent.name}/{drawn.path.name})", "")


def _steps(results: Results, case: Case) -> str:
    every_s = results.every_s.get(case.name, math.inf)
    told = f"evaluated every {duration(every_s)}: times to target come in such steps"
    return f", {told}" if math.isfinite(every_s) else ""


def _missing(results: Results, case: Case) -> str:
    left = results.missing[case.name]
    what = "Not all run" if results.of(case) else "Not run"
    return (
        f"*{what}: runs to make: {left.num_runs}, about {duration(left.seconds)} one at a time: "
        f"`{results.command} --case {case.name}`. Needs the dataset {left.dataset} "
        "(`pisces data list` says where it is).*"
    )


def _headings(study: Study, case: Case) -> list[str]:
    axis = [study.axis] if study.points_of(case) else []
    columns = [MEASURES[name].label for name in study.measures]
    return ["variant", *axis, "seeds", f"speed-up of {study.reference}", *columns]


def _rows(study: Study, case: Case, records: Sequence[Record]) -> Iterator[list[str]]:
    for x in study.xs_of(case):
        for variant in study.variants_of(case):
            row = _row(study, case, records, variant.name, x)
            if row is not None:
                yield row


def _row(
    study: Study, case: Case, records: Sequence[Record], variant: str, x: float | None
) -> list[str] | None:
    values = {
        name: by_seed(records, case.name, variant, x, name)
        for name in dict.fromkeys(["time_to_target", *study.measures])
    }
    if not values["time_to_target"]:
        return None
    return [
        variant,
        *([] if x is None else [f"{x:g}"]),
        str(len(values["time_to_target"])),
        _speedup(study, case, records, variant, x),
        *(
            in_words(estimate(list(values[name].values())), MEASURES[name].text)
            for name in study.measures
        ),
    ]


def _speedup(
    study: Study, case: Case, records: Sequence[Record], variant: str, x: float | None
) -> str:
    """How much faster the reference is at the same point, seed by seed."""
    if variant == study.reference:
        return ""
    mine, reference = (
        by_seed(records, case.name, name, x, "time_to_target")
        for name in (variant, study.reference)
    )
    return in_words(estimate(paired("speedup", reference, mine)), times)


# --- how it was made ------------------------------------------------------------------------------


def _made(results: Results) -> Iterator[str]:
    if not results.records:
        return
    records = results.records
    seeds = sorted({record.seed for record in records})
    yield from ("## How it was run", "")
    yield f"- `{results.command}{' --smoke' if results.smoke else ''}`"
    took = duration(sum(record.wall_s for record in records))
    yield f"- {len(records)} runs, seeds {', '.join(map(str, seeds))}; wall time together {took}"
    for made_with in sorted({f"{r.made_with}; {r.trained_by}" for r in records}):
        yield f"- {made_with}"
    if any("+)" in record.made_with for record in records):
        yield from ("", "A + behind a commit: with changes that were not committed.")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"

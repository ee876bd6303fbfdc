"""Writes the measured tables of docs/robustness.md, from experiments/hostile/results.json alone.

python scripts/robustness.py
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pisces.report import estimate as est
from pisces.study import plan, records
from pisces.study.claims import by_seed
from pisces.study.measures import MEASURES

ROOT = Path(__file__).parents[1]
STUDY = ROOT / "experiments" / "hostile"
PAGE = ROOT / "docs" / "robustness.md"
BEGIN, END = "<!-- measured: made by scripts/robustness.py -->", "<!-- measured: end -->"
WHO = ("corrupted_picked", "corrupted_used", "corrupted_distrusted", "honest_distrusted")


def measured(folder: Path = STUDY) -> str:
    """Both tables, or that there is nothing to tell yet."""
    study, found = plan.load(folder), records.load(folder)
    if not found:
        return "*Not measured yet: `pisces reproduce hostile`.*"
    return "\n".join([*_accuracy(study, found), "", *_clients(study, found)])


def _accuracy(study: plan.Study, found: Sequence[records.Record]) -> Iterator[str]:
    """A row per attack, a column per defence."""
    names = study.variant_names
    yield from _head(["accuracy, %", *(f"`{name}`" for name in names)])
    for case in study.case:
        cells = [_cell(found, case, name, "late", _percent) for name in names]
        yield _row([_called(case), *cells])


def _clients(study: plan.Study, found: Sequence[records.Record]) -> Iterator[str]:
    """Who is picked, used and banned, with the default and without any defence."""
    yield from _head(["", "", *(_label(name) for name in WHO)])
    for case in study.case:
        for name in ("undefended", study.reference):
            if any((r.case, r.variant) == (case.name, name) for r in found):
                cells = [_cell(found, case, name, measure, _percent) for measure in WHO]
                yield _row([_called(case), f"`{name}`", *cells])


def _cell(
    found: Sequence[records.Record],
    case: plan.Case,
    variant: str,
    measure: str,
    text: Callable[[float], str],
) -> str:
    (point,) = case.point
    values = list(by_seed(found, case.name, variant, point.x, measure).values())
    told = est.in_words(est.estimate(values), text)
    return "" if told in ("-", "?") else told


def _called(case: plan.Case) -> str:
    return case.name.replace("_", " ")


def _label(measure: str) -> str:
    return f"{MEASURES[measure].label.replace('corrupted', 'hostile')}, %"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _head(cells: Sequence[str]) -> Iterator[str]:
    yield _row(cells)
    yield "|" + "---|" * len(cells)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(text: str, tables: str) -> str:
    """The page with these tables in place of those it has."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text("utf-8"), measured()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

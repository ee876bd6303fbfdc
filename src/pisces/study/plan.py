"""A study file: what is compared, on which tasks, and which claims are held against the numbers.

`experiments/<study>/study.toml` names cases (tasks, each a plain config file beside it), variants
(protocols with settings) and, where something is varied in steps, points. Every case runs every
variant at every point with every seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tomlkit
from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails
from tomlkit.exceptions import TOMLKitError

from pisces.errors import ConfigError
from pisces.explain import explain, known
from pisces.study.words import Change, MeasureName, Name, Several, Threshold
from pisces.tables import Count, Finite, Positive, Section

FOLDER = Path("experiments")  # where studies are unless said otherwise
STUDY = "study.toml"
Comparison = Literal["value", "speedup", "ratio", "difference"]
By = Literal["median", "worst"]
Picture = Literal["curves", "bars", "sweep", "aggregations", "involvement", "staleness", "losses"]


class Variant(Section):
    """One of the things compared."""

    name: Name = Field(description="what it is called in tables and claims")
    protocol: str = Field(description="the protocol it runs")
    set: list[Change] = Field([], description="key=value changes to the case's config")


class Point(Section):
    """One step of what is varied."""

    x: Finite = Field(description="its place on the axis")
    set: list[Change] = Field(description="key=value changes to the case's config")


class Case(Section):
    """One task."""

    name: Name = Field(description="of the task; a stand-in is named as what it is")
    config: str | None = Field(None, description="its config file; none: <name>.toml")
    set: list[Change] = Field([], description="key=value changes to that file")
    target: Finite = Field(description="value of stop.metric whose time is taken")
    about: str = Field("", description="what it is, and for what it stands")
    seeds: Count | None = Field(None, description="seeds unless said otherwise; none: five")
    run_s: Positive = Field(
        60.0, description="seconds a run takes on a GPU, about; until one has been measured"
    )
    variant: list[Variant] = Field([], description="instead of the study's")
    point: list[Point] = Field([], description="instead of the study's")


class Claim(Section):
    """What a paper says, or you expect, as a number that can be held against ours."""

    text: str = Field(description="in words")
    case: Several[str] = Field(description="on which task, or each of which")
    measure: MeasureName = Field(description="of which measure")
    compare: Comparison = Field(
        "value", description="value | speedup (over / of) | ratio (of / over) | difference"
    )
    of: Several[str] = Field(description="of which variant, or each of which")
    over: str | None = Field(None, description="against which variant, seed by seed")
    at: Several[Finite] = Field([], description="at which point, or each of which")
    over_at: Finite | None = Field(None, description="the other's point; none: the same")
    paper: str | None = Field(None, description="the paper's number, if it is a paper's claim")
    by: By = Field("median", description="median | worst (every seed must be so; of a value only)")
    holds: Threshold = Field(description="it holds if the median, or the worst seed, is so")
    partly: Threshold | None = Field(None, description="else it holds partly if it is so")

    @property
    def xs(self) -> Sequence[float | None]:
        """The points it is about; one that is none where nothing is varied."""
        return self.at or [None]

    @model_validator(mode="after")
    def _compares(self) -> Claim:
        if (self.compare == "value") != (self.over is None):
            raise ValueError(
                f"compare = {self.compare!r} and over = {self.over!r} do not go together"
            )
        same = [x for x in self.xs if self.over_at in (None, x)]
        if self.over in self.of and same:
            at = "" if same[0] is None else f" at {same[0]}"
            raise ValueError(f"{self.over!r}{at} is compared with itself: name another over")
        return self

    @model_validator(mode="after")
    def _worst_is_of_a_value(self) -> Claim:
        if self.by == "worst" and self.compare != "value":
            raise ValueError(
                f"by = 'worst' and compare = {self.compare!r} do not go together: what is compared "
                "seed by seed is judged by the median"
            )
        return self

    @model_validator(mode="after")
    def _holds_is_more_than_partly(self) -> Claim:
        if self.partly is None:
            return self
        (sign, holds), (lesser_sign, partly) = self.holds.split(), self.partly.split()
        if sign != lesser_sign:
            raise ValueError(
                f"holds and partly must look the same way, not {self.holds}, {self.partly}"
            )
        if float(partly) >= float(holds) if sign == ">=" else float(partly) <= float(holds):
            raise ValueError(
                f"partly must ask for less than holds, not {self.partly} beside {self.holds}"
            )
        return self


class Study(Section):
    """Something to run: a figure or table of the paper, or a question of your own."""

    title: str = Field(description="of the page of results")
    paper: str | None = Field(None, description="where in the paper, if it is in one")
    says: str = Field(description="what the paper says, or what is asked, in a sentence")
    remark: str = Field("", description="a word by hand on the results")
    reference: str = Field(description="variant whose speed-up over the others is shown")
    axis: str = Field("", description="what the points vary")
    first_seed: Count = Field(1, description="seeds, also those of --seeds, are counted from here")
    measures: list[MeasureName] = Field(
        ["time_to_target", "final", "late_sd", "versions", "updates", "max_staleness"],
        description="columns of the tables",
    )
    figures: list[Picture] = Field(["curves", "bars"], description=" | ".join(get_args(Picture)))
    sweep: list[MeasureName] = Field(
        ["time_to_target"], description="what figure 'sweep' draws against the points"
    )
    smoke: list[Change] = Field([], description="changes that make a run small, besides the usual")
    variant: list[Variant] = Field([], description="what is compared")
    point: list[Point] = Field([], description="what is varied")
    case: Annotated[list[Case], Field(min_length=1, description="on which tasks")]
    claim: list[Claim] = Field([], description="what is held against the numbers")

    @model_validator(mode="after")
    def _names_are_known(self) -> Study:
        _differ([case.name for case in self.case], "cases must have different names")
        for case in self.case:
            _differ([v.name for v in self.variants_of(case)], "variants must have different names")
            _differ([f"{p.x:g}" for p in self.points_of(case)], "points must have different x")
        for claim in self.claim:
            for name in claim.case:
                self._check(claim, self.case_named(name))
        for case in self.case:
            known(self.reference, [v.name for v in self.variants_of(case)], "reference")
        return self

    def _check(self, claim: Claim, case: Case) -> None:
        variants = [variant.name for variant in self.variants_of(case)]
        for name in filter(None, (*claim.of, claim.over)):
            known(name, variants, f"claim.of, claim.over ({claim.text!r})")
        xs = [point.x for point in self.points_of(case)]
        for x in (*claim.xs, claim.xs[0] if claim.over_at is None else claim.over_at):
            if x not in (xs or (None,)):
                raise ValueError(f"claim.at ({claim.text!r}): must be one of {xs}, not {x}")

    def case_named(self, name: str) -> Case:
        """The case of that name."""
        known(name, [case.name for case in self.case], "case")
        return next(case for case in self.case if case.name == name)

    @property
    def variant_names(self) -> list[str]:
        """All that are compared on any task, each once."""
        variants = [v for case in self.case for v in self.variants_of(case)]
        return list(dict.fromkeys(variant.name for variant in variants))

    def variants_of(self, case: Case) -> Sequence[Variant]:
        """What is compared on a task."""
        return case.variant or self.variant

    def points_of(self, case: Case) -> Sequence[Point]:
        """What is varied on a task, if anything."""
        return case.point or self.point

    def xs_of(self, case: Case) -> Sequence[float | None]:
        """The places on the axis; one that is none where nothing is varied."""
        return [point.x for point in self.points_of(case)] or [None]


def _differ(names: Sequence[str], rule: str) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"{rule}, not {', '.join(names)}")


def load(folder: Path) -> Study:
    """Read and check the study in a folder."""
    path = folder / STUDY
    try:
        values = tomlkit.parse(path.read_text("utf-8")).unwrap()
        return Study.model_validate(values)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the study: {error.strerror}") from error
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    except ValidationError as error:
        raise ConfigError(explain(_by_name(error, values), str(path), _keys())) from None


def _by_name(error: ValidationError, values: Any) -> ValidationError:
    """The same error, but its places have the names of variants and cases, not their numbers."""
    details = [
        InitErrorDetails(
            type=detail["type"],
            loc=_place(detail["loc"], values),
            input=detail["input"],
            ctx=detail.get("ctx", {}),
        )
        for detail in error.errors(include_url=False)
    ]
    return ValidationError.from_exception_data(error.title, details)


def _place(loc: Sequence[str | int], values: Any) -> tuple[str | int, ...]:
    """`variant 'slow'`, or `claim 2` of what has no name."""
    place: list[str | int] = []
    for part in loc:
        try:
            values = values[part]
        except (LookupError, TypeError):  # a key that is needed; pydantic's name for a choice
            values = None
        if isinstance(part, int) and isinstance(values, dict):
            place[-1] = f"{place[-1]} {values.get('name', part + 1)!r}"
        else:
            place.append(part)
    return tuple(place)


def find(folder: Path) -> dict[str, Path]:
    """The studies below a folder: names and where they are, in their order."""
    return {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{STUDY}"))}


def _keys() -> list[str]:
    tables: Sequence[type[Section]] = (Variant, Point, Case, Claim)
    within = [f"{table.__name__.lower()}.{key}" for table in tables for key in table.model_fields]
    return [*Study.model_fields, *within]

"""The runs a study asks for: every case, variant, point and seed with its whole config."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pisces import config
from pisces.config import FREE, Config, described
from pisces.policy import ANSWERS
from pisces.study.plan import Case, Point, Study, Variant

NUM_SEEDS = 5
# How a small run differs from the real one: other data, a small model, little time. What the
# variants and points of a study change is changed on top.
SMOKE = (
    *("clients.count=40", "clients.concurrency=10"),
    *("data.dataset=digits", "data.partition=dirichlet", "data.alpha=1.0"),
    *("data.sizes=lognormal", "data.size_median=20"),
    *("model.hidden=[16]", "train.learning_rate=0.1", "train.batch_size=16"),
    *("evaluate.every_s=10", "stop.time_s=150", "stop.metric=accuracy", "stop.target=0.99"),
)
NOT_SMALL = ("data", "model", "train")  # tables of a real run of which a small one takes nothing
TRIAL = "a trial on digits"  # what all that comes of them is called
SMOKE_TARGET = 0.4
SMOKE_CASES = 2  # of a study: small, all are much the same

Corrupted: TypeAlias = Callable[[Config], Collection[int]]


@dataclass(frozen=True, slots=True)
class Planned:
    """One run of a study."""

    case: str
    variant: str
    x: float | None
    seed: int
    is_first: bool  # of the seeds: the one whose clients are kept one by one
    target: float
    config: Config
    digest: str

    @property
    def key(self) -> tuple[str, str, float | None, int]:
        """What it is called among the runs of its study."""
        return self.case, self.variant, self.x, self.seed

    @property
    def short_digest(self) -> str:
        """What a folder's name has of it."""
        return self.digest[:8]

    @property
    def folder(self) -> Path:
        """Where it goes, below the study's folder of runs."""
        at = "" if self.x is None else f"-{self.x:g}"
        return Path(self.case) / f"{self.variant}{at}-seed{self.seed}-{self.short_digest}"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a study.

    `resolve` spells a config's protocol settings out, `corrupted` tells whose labels it spoils,
    `revision` how often its protocol has come to do other things with the same settings.
    """

    resolve: Callable[[Config], Config]
    corrupted: Corrupted
    seeds: Sequence[int] | None = None  # 1 is a study's first seed
    cases: Sequence[str] = ()  # none: all
    device: str = "auto"
    smoke: bool = False
    revision: Callable[[Config], int] = lambda _config: 0


def planned(study: Study, folder: Path, wish: Wish) -> list[Planned]:
    """All runs of a study, seed by seed, so that what is finished first can be compared."""
    cases = [case for case in study.case if not wish.cases or case.name in wish.cases]
    if wish.smoke and not wish.cases:
        cases = cases[:SMOKE_CASES]
    return [run for case in cases for run in _of_case(study, case, folder, wish)]


def _of_case(study: Study, case: Case, folder: Path, wish: Wish) -> Iterator[Planned]:
    asked = wish.seeds or range(1, 1 + (case.seeds or NUM_SEEDS))
    seeds = [study.first_seed - 1 + number for number in asked]
    points: Sequence[Point | None] = study.points_of(case) or [None]
    settings = [
        (variant, point, _config(study, case, folder, wish, variant, point))
        for point in points
        for variant in study.variants_of(case)
    ]
    for seed in seeds:
        for variant, point, unseeded in settings:
            seeded = unseeded.model_copy(update={"seed": seed})
            yield Planned(
                case=case.name,
                variant=variant.name,
                x=None if point is None else point.x,
                seed=seed,
                is_first=seed == seeds[0],
                target=SMOKE_TARGET if wish.smoke else case.target,
                config=seeded,
                digest=digest(seeded, wish.revision(seeded)),
            )


def _config(
    study: Study, case: Case, folder: Path, wish: Wish, variant: Variant, point: Point | None
) -> Config:
    small = [*SMOKE, *study.smoke] if wish.smoke else []
    varied = [] if point is None else point.set
    named = [f"protocol={variant.protocol}", f"train.device={wish.device}"]
    changes = [*([] if wish.smoke else case.set), *small, *varied, *variant.set, *named]
    without = NOT_SMALL if wish.smoke else ()
    return wish.resolve(config.load(folder / config_file(case), changes, without))


def config_file(case: Case) -> str:
    """The name of a case's config file."""
    return case.config or f"{case.name}.toml"


def digest(settings: Config, revision: int = 0) -> str:
    """The same for two configs that describe the same run.

    Everything counts, also what is at its default: the next version may have another default. A key
    that a later version adds makes other runs of all; better that than numbers of unknown origin.
    Only a table that replaces a part of the protocol is not there unless it is given, nor is that
    of hostile clients unless there are any.
    """
    values = described(settings, FREE)
    for table in ANSWERS.keys() - settings.replaced.keys():  # they came later than most records
        del values[table]
    if revision:
        values["revision"] = revision
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

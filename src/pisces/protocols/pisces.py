"""Pisces: as it is, to the letter of its paper, in its authors' form, and without each part."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from pisces.aggregate.average import Averaged
from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.measured import MeasuredMean
from pisces.aggregate.usual import LONGEST, Usual
from pisces.errors import ConfigError
from pisces.judge.clusters import AUTHORS_EPS, LossOutliers
from pisces.judge.learning import NothingLearnt
from pisces.pace.fedbuff import Buffered
from pisces.pace.pisces import Adaptive
from pisces.pace.remaining import Remaining
from pisces.policy import Aggregator, Judge, Pacer, Policies
from pisces.protocols.buffered import goal_of
from pisces.select.pisces import Guided
from pisces.select.uniform import Uniform
from pisces.words import (
    Bound,
    BufferSize,
    Drop,
    Exploration,
    ExplorationDecay,
    FullShare,
    Guard,
    Longest,
    MinExploration,
    Pace,
    Penalty,
    SelectionPenalty,
    Unseen,
    WeightPenalty,
    WideBound,
    Window,
)


def pisces(
    concurrency: int,
    *,
    pace: Pace = "remaining",
    staleness_bound: WideBound = None,
    unseen_latency_s: Annotated[
        float | None,
        Field(
            ge=0,
            description="latency of a client not seen yet, for another pace than remaining; "
            "none: the slowest seen",
        ),
    ] = None,
    selection_penalty: SelectionPenalty = 0.5,
    exploration: Exploration = 0.9,
    exploration_decay: ExplorationDecay = 0.98,
    min_exploration: MinExploration = 0.3,
    weight_penalty: WeightPenalty = 0.5,
    full_share: FullShare = None,
    average: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="publish the average over the updates of so many times C; 0: the last",
        ),
    ] = 2.0,
    guard: Guard = "learning",
    longest: Longest = None,
) -> Policies:
    """Pisces (Jiang et al., 2022): loss utility x staleness discount, adaptive pace, outliers.

    Differs from `pisces-paper`, the letter of the paper: the pace spreads what is left of the bound
    (`pace`), which is twice as wide (`staleness_bound`), a step made of few updates is a small one
    (`full_share`) in which the stale count less (`weight_penalty`), an average over recent versions
    is published (`average`), clients are judged by what they learn from their own data (`guard`),
    and updates far longer than usual are shortened (`longest`).
    """
    bound = 2 * concurrency if staleness_bound is None else staleness_bound
    guided = Guided(selection_penalty, exploration, exploration_decay, min_exploration)
    mean = MeasuredMean(staleness_penalty=weight_penalty, full_share=full_share, memory=concurrency)
    judge: Judge = NothingLearnt(concurrency)
    if guard == "clusters":
        judge = LossOutliers(concurrency, max_staleness=bound)
    how = _around(mean, concurrency, longest, average)
    return Policies(guided, _pacer(concurrency, bound, pace, unseen_latency_s), how, judge)


def _around(
    mean: Aggregator, concurrency: int, longest: float | None, average: float
) -> Aggregator:
    if longest != 0:
        mean = Usual(concurrency, mean, longest=LONGEST if longest is None else longest)
    return Averaged(mean, horizon=average * concurrency) if average else mean


def _pacer(concurrency: int, bound: int, pace: Pace, unseen_latency_s: float | None) -> Pacer:
    if pace != "remaining":
        return Adaptive(concurrency, bound, mode=pace, unseen_latency_s=unseen_latency_s)
    if unseen_latency_s is not None:
        raise ConfigError(
            f"unseen_latency_s: {unseen_latency_s} would do nothing: the pace remaining needs no "
            "guess; leave it out, or choose another pace"
        )
    return Remaining(concurrency, bound)


def pisces_paper(
    concurrency: int,
    *,
    staleness_bound: Bound = None,
    unseen_latency_s: Unseen = 180.0,
    selection_penalty: SelectionPenalty = 0.5,
    outlier_window: Window = 5,
    drop_outliers: Drop = False,
) -> Policies:
    """Pisces to the letter of its paper (Jiang et al., SoCC 2022).

    Updates are deltas against the version they were trained from (Theorem 2), averaged by samples
    at server rate 1; staleness counts in the selection only. The paper leaves open how to begin
    (here as in the authors' code, and in `pisces`) and the radius of DBSCAN (scaled to the losses).
    """
    bound = concurrency if staleness_bound is None else staleness_bound
    return Policies(
        selector=Guided(selection_penalty),
        pacer=Adaptive(concurrency, bound, unseen_latency_s=unseen_latency_s),
        aggregator=DiscountedMean(reference="base"),
        judge=LossOutliers(
            concurrency, window=outlier_window, max_staleness=bound, drop=drop_outliers
        ),
    )


def pisces_artifact(
    concurrency: int,
    *,
    unseen_latency_s: Unseen = 180.0,
    penalty: Penalty = 0.5,
    guard: Annotated[bool, Field(description="judge losses, as in the corruption study")] = False,
) -> Policies:
    """Pisces in the form of its authors' code.

    Clients' models are mixed into the current one, discounted by the same penalty as the selection;
    the loss counts with the square root of its mean; DBSCAN has a radius of 0.5.

    Differs from the code: the loss is the mean over the first local epoch, not the first batch;
    selection goes on while the buffer is empty; a wrong loss costs one credit, its own client's.
    """
    return Policies(
        selector=Guided(penalty, loss_term="root"),
        pacer=Adaptive(concurrency, concurrency, unseen_latency_s=unseen_latency_s),
        aggregator=DiscountedMean(staleness_penalty=penalty),
        judge=LossOutliers(concurrency, eps=AUTHORS_EPS) if guard else None,
    )


Variant = Callable[..., Policies]


def _pisces_without(*removed: str) -> Callable[[Variant], Variant]:
    """Say in a variant's signature that it takes what Pisces takes, but for what it removes."""

    def signed(variant: Variant) -> Variant:
        own = inspect.signature(variant).parameters.values()
        added = [p for p in own if p.kind is inspect.Parameter.KEYWORD_ONLY]
        kept = [p for p in inspect.signature(pisces).parameters.values() if p.name not in removed]
        variant.__signature__ = inspect.Signature([*kept, *added])  # type: ignore[attr-defined]
        variant.__annotations__ = {**pisces.__annotations__, **variant.__annotations__}
        variant.variant_of = "pisces"  # type: ignore[attr-defined]
        return variant

    return signed


@_pisces_without("selection_penalty", "exploration", "exploration_decay", "min_exploration")
def pisces_without_selection(concurrency: int, **settings: Any) -> Policies:
    """Pisces "w/o slt.": clients are picked at random."""
    return replace(pisces(concurrency, **settings), selector=Uniform())


@_pisces_without("selection_penalty")
def pisces_without_staleness(concurrency: int, **settings: Any) -> Policies:
    """Pisces "w/o stale.": utilities are not discounted by staleness."""
    return pisces(concurrency, selection_penalty=0.0, **settings)


@_pisces_without("pace", "staleness_bound", "unseen_latency_s")
def pisces_without_adaptive_pace(
    concurrency: int, *, buffer_size: BufferSize = None, **settings: Any
) -> Policies:
    """Pisces "w/o adp.": aggregates every K updates, as FedBuff does."""
    pacer = Buffered(concurrency, goal_of(buffer_size, concurrency))
    return replace(pisces(concurrency, **settings), pacer=pacer)


@_pisces_without("guard")
def pisces_without_guard(concurrency: int, **settings: Any) -> Policies:
    """Pisces "w/o rob.": nobody is judged."""
    return replace(pisces(concurrency, **settings), judge=None)

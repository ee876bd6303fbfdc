"""Aggregators by name, for `[aggregate]`: their keyword parameters are its settings.

Those that take an `inner` one go around another aggregator.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pisces.aggregate.asofed import AsoFed
from pisces.aggregate.average import Averaged
from pisces.aggregate.ca2fl import Calibrated
from pisces.aggregate.fedasync import Mixing
from pisces.aggregate.hysync import Hybrid
from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.measured import MeasuredMean
from pisces.aggregate.memory import MAX_CACHE_BYTES
from pisces.aggregate.port import SimilarityMean
from pisces.aggregate.robust import Krum, Median, RobustMean, Rule, Trimmed
from pisces.aggregate.server import Adam, AMSGrad, Momentum, Optimized, Yogi
from pisces.aggregate.staleness import Discount
from pisces.aggregate.teafed import MixedMean
from pisces.policy import Aggregator
from pisces.words import (
    Against,
    Beta,
    CacheBytes,
    DirectionWeight,
    Form,
    FreshnessWeight,
    FullShare,
    HingeSlope,
    HingeStart,
    MixingRate,
    OptimizerRate,
    Patience,
    Penalty,
    ServerRate,
    ShareBy,
    Tau,
    Threshold,
    WeighFeatures,
    WeightPenalty,
)


def mean(
    *,
    share: ShareBy = "equal",
    staleness_penalty: Penalty = 0.5,
    reference: Against = "base",
    server_rate: ServerRate = 1.0,
) -> Aggregator:
    """A mean in which stale updates count less: FedBuff's.

    By samples, and where nobody is stale, it is FedAvg's.
    """
    return DiscountedMean(
        share=share,
        staleness_penalty=staleness_penalty,
        reference=reference,
        server_rate=server_rate,
    )


def measured(
    concurrency: int, *, weight_penalty: WeightPenalty = 0.5, full_share: FullShare = None
) -> Aggregator:
    """That of pisces: a mean whose step is as long as there is reason for."""
    return MeasuredMean(staleness_penalty=weight_penalty, full_share=full_share, memory=concurrency)


def similarity(
    concurrency: int,
    *,
    staleness_weight: FreshnessWeight = 1.0,
    similarity_weight: DirectionWeight = 1.0,
    half_staleness: Annotated[
        float | None, Field(gt=0, description="staleness that halves freshness; none: C")
    ] = None,
) -> Aggregator:
    """PORT's: a mean by samples, freshness and direction."""
    return SimilarityMean(
        staleness_weight=staleness_weight,
        half_staleness=concurrency if half_staleness is None else half_staleness,
        similarity_weight=similarity_weight,
    )


# --- with a vector of each client -----------------------------------------------------------------


def calibrated(
    *, server_rate: ServerRate = 1.0, max_cache_bytes: CacheBytes = MAX_CACHE_BYTES
) -> Aggregator:
    """CA2FL's: a mean of the updates, calibrated by the last one of every client."""
    return Calibrated(server_rate=server_rate, max_cache_bytes=max_cache_bytes)


def aso_fed(
    *, weigh_features: WeighFeatures = False, max_cache_bytes: CacheBytes = MAX_CACHE_BYTES
) -> Aggregator:
    """ASO-Fed's: a mean of everybody's last model, kept up to date."""
    return AsoFed(weigh_features=weigh_features, max_cache_bytes=max_cache_bytes)


# --- mixing into the current model ----------------------------------------------------------------


def mixing(
    *,
    alpha: MixingRate = 0.6,
    staleness: Form = "polynomial",
    penalty: Penalty = 0.5,
    hinge_slope: HingeSlope = 10.0,
    hinge_start: HingeStart = 4.0,
) -> Aggregator:
    """FedAsync's: each update is mixed in by itself, the staler the less."""
    return Mixing(alpha, Discount(staleness, penalty, hinge_slope, hinge_start))


def mixed_mean(
    *,
    alpha: MixingRate = 0.6,
    staleness: Form = "polynomial",
    penalty: Penalty = 0.5,
    hinge_slope: HingeSlope = 10.0,
    hinge_start: HingeStart = 4.0,
) -> Aggregator:
    """TEA-Fed's: the mean of the updates is mixed in."""
    return MixedMean(alpha, Discount(staleness, penalty, hinge_slope, hinge_start))


def hybrid(
    concurrency: int,
    *,
    threshold: Threshold = None,
    alpha: MixingRate = 0.6,
    staleness: Form = "polynomial",
    penalty: Penalty = 0.5,
    hinge_slope: HingeSlope = 10.0,
    hinge_start: HingeStart = 4.0,
) -> Aggregator:
    """HySync's: as FedAsync's, but a crowd is averaged first."""
    discount = Discount(staleness, penalty, hinge_slope, hinge_start)
    return Hybrid(concurrency // 2 if threshold is None else threshold, alpha, discount)


# --- robust ---------------------------------------------------------------------------------------


def median(
    *,
    share: ShareBy = "samples",
    staleness_penalty: Penalty = 0.5,
    reference: Against = "base",
    server_rate: ServerRate = 1.0,
) -> Aggregator:
    """The weighted median of every coordinate."""
    return _robust(Median(), share, staleness_penalty, reference, server_rate)


def trimmed_mean(
    *,
    trimmed: Annotated[
        float, Field(ge=0, lt=0.5, description="share of the weight left out at each end")
    ] = 0.1,
    share: ShareBy = "samples",
    staleness_penalty: Penalty = 0.5,
    reference: Against = "base",
    server_rate: ServerRate = 1.0,
) -> Aggregator:
    """The weighted mean of every coordinate without the lowest and the highest."""
    return _robust(Trimmed(trimmed), share, staleness_penalty, reference, server_rate)


def krum(
    *,
    bad_share: Annotated[
        float, Field(ge=0, lt=0.5, description="of the updates, taken to be bad")
    ] = 0.2,
    chosen: Annotated[
        int, Field(ge=0, description="1: Krum; more: multi-Krum; 0: all that may be")
    ] = 1,
    share: ShareBy = "samples",
    staleness_penalty: Penalty = 0.5,
    reference: Against = "base",
    server_rate: ServerRate = 1.0,
) -> Aggregator:
    """Krum: the update nearest to the others, or the mean of the few that are."""
    return _robust(
        Krum(bad_share, chosen or None), share, staleness_penalty, reference, server_rate
    )


def _robust(
    rule: Rule, share: ShareBy, staleness_penalty: float, reference: Against, server_rate: float
) -> Aggregator:
    return RobustMean(
        rule,
        share=share,
        staleness_penalty=staleness_penalty,
        reference=reference,
        server_rate=server_rate,
    )


# --- around another -------------------------------------------------------------------------------


def momentum(inner: Aggregator, *, rate: OptimizerRate = 1.0, beta: Beta = 0.9) -> Aggregator:
    """FedAvgM: the inner aggregator's step goes on."""
    return Optimized(inner, Momentum(rate, beta))


def adam(
    inner: Aggregator,
    *,
    rate: OptimizerRate = 0.01,
    beta1: Beta = 0.9,
    beta2: Beta = 0.99,
    tau: Tau = 1e-3,
) -> Aggregator:
    """FedAdam: the inner aggregator's step as a gradient for Adam."""
    return Optimized(inner, Adam(rate, beta1, beta2, tau))


def yogi(
    inner: Aggregator,
    *,
    rate: OptimizerRate = 0.01,
    beta1: Beta = 0.9,
    beta2: Beta = 0.99,
    tau: Tau = 1e-3,
) -> Aggregator:
    """FedYogi: as FedAdam, but large steps are forgotten more slowly."""
    return Optimized(inner, Yogi(rate, beta1, beta2, tau))


def amsgrad(
    inner: Aggregator,
    *,
    rate: OptimizerRate = 0.01,
    beta1: Beta = 0.9,
    beta2: Beta = 0.99,
    tau: Tau = 1e-8,
    patience: Patience = None,
) -> Aggregator:
    """FADAS': as FedAdam, but large steps are never forgotten."""
    return Optimized(inner, AMSGrad(rate, beta1, beta2, tau, patience))


def average(
    concurrency: int,
    inner: Aggregator,
    *,
    cohorts: Annotated[
        float, Field(gt=0, allow_inf_nan=False, description="over the updates of so many times C")
    ] = 2.0,
) -> Aggregator:
    """That of pisces: an average over the inner aggregator's recent versions is published."""
    return Averaged(inner, horizon=cohorts * concurrency)

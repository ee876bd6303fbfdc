"""Protocols that aggregate every so many updates."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Annotated, Literal

from pydantic import Field

from pisces.aggregate.ca2fl import Calibrated
from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.memory import MAX_CACHE_BYTES
from pisces.aggregate.port import SimilarityMean
from pisces.aggregate.server import Adam, AMSGrad, Momentum, Optimized
from pisces.aggregate.staleness import Discount
from pisces.aggregate.teafed import MixedMean
from pisces.pace.fedbuff import Buffered
from pisces.pace.fedcompass import Grouped
from pisces.pace.papaya import Papaya
from pisces.pace.port import Port
from pisces.policy import Policies
from pisces.select.fedcompass import Compass
from pisces.select.uniform import Uniform
from pisces.words import (
    Against,
    Bound,
    BufferSize,
    CacheBytes,
    CalledOffBeyond,
    DirectionWeight,
    FreshnessWeight,
    MaxSteps,
    MinSteps,
    MixingRate,
    MostStale,
    Patience,
    Penalty,
    ServerRate,
    ShareBy,
    Slack,
    TaskTimeout,
)


def fedbuff(
    concurrency: int,
    *,
    buffer_size: BufferSize = None,
    staleness_penalty: Penalty = 0.5,
    server_rate: ServerRate = 1.0,
    reference: Against = "base",
    share: ShareBy = "equal",
    max_staleness: MostStale = None,
) -> Policies:
    """FedBuff (Nguyen et al., AISTATS 2022): random clients, aggregate every K updates.

    With `reference = "current"` and `share = "samples"` it takes the mixing form that the Pisces
    authors compared with; its own rule is the stronger baseline.
    """
    return Policies(
        selector=Uniform(),
        pacer=Buffered(concurrency, goal_of(buffer_size, concurrency), max_staleness=max_staleness),
        aggregator=DiscountedMean(
            share=share,
            staleness_penalty=staleness_penalty,
            reference=reference,
            server_rate=server_rate,
        ),
    )


def ca2fl(
    concurrency: int,
    *,
    buffer_size: BufferSize = None,
    server_rate: ServerRate = 1.0,
    max_cache_bytes: CacheBytes = MAX_CACHE_BYTES,
) -> Policies:
    """CA2FL (Wang et al., ICLR 2024): FedBuff, calibrated by the last update of every client."""
    return replace(
        fedbuff(concurrency, buffer_size=buffer_size),
        aggregator=Calibrated(server_rate=server_rate, max_cache_bytes=max_cache_bytes),
    )


def fadas(
    concurrency: int,
    *,
    buffer_size: BufferSize = None,
    server_rate: Annotated[float, Field(gt=0, description="of AMSGrad")] = 0.01,
    patience: Patience = None,
) -> Policies:
    """FADAS (Wang et al., ICML 2024): FedBuff with AMSGrad on the server."""
    plain = fedbuff(concurrency, buffer_size=buffer_size, staleness_penalty=0.0)
    how = Optimized(plain.aggregator, AMSGrad(server_rate, patience=patience))
    return replace(plain, aggregator=how)


def papaya(
    concurrency: int,
    *,
    buffer_size: BufferSize = None,
    staleness_penalty: Penalty = 0.5,
    timeout_s: TaskTimeout = 240.0,
    max_staleness: CalledOffBeyond = None,
    server_rate: ServerRate = 0.01,
    server: Annotated[Literal["adam", "sgd"], Field(description="the server's optimiser")] = "adam",
) -> Policies:
    """Papaya (Huba et al., MLSys 2022): FedBuff in production, with timeouts and FedAdam."""
    plain = fedbuff(concurrency, staleness_penalty=staleness_penalty)
    rule = Adam(server_rate) if server == "adam" else Momentum(server_rate, beta=0.0)
    goal, after_s = goal_of(buffer_size, concurrency), None if timeout_s == inf else timeout_s
    pacer = Papaya(concurrency, goal, timeout_s=after_s, max_staleness=max_staleness)
    return replace(plain, pacer=pacer, aggregator=Optimized(plain.aggregator, rule))


def port(
    concurrency: int,
    *,
    buffer_size: BufferSize = None,
    staleness_bound: Bound = None,
    staleness_weight: FreshnessWeight = 1.0,
    similarity_weight: DirectionWeight = 1.0,
) -> Policies:
    """PORT (Su and Li, IWQoS 2022): FedBuff; who would be too stale hands in what there is."""
    bound = concurrency if staleness_bound is None else staleness_bound
    how = SimilarityMean(
        staleness_weight=staleness_weight,
        half_staleness=bound,
        similarity_weight=similarity_weight,
    )
    return Policies(Uniform(), Port(concurrency, goal_of(buffer_size, concurrency), bound), how)


def fedcompass(
    concurrency: int,
    *,
    min_steps: MinSteps = None,
    max_steps: MaxSteps = None,
    slack: Slack = 1.2,
) -> Policies:
    """FedCompass (Li et al., ICLR 2024): as many steps for each as let groups arrive together.

    It needs latencies that grow with the steps: latency.kind = "compute".
    """
    selector = Compass(min_steps=min_steps, max_steps=max_steps)
    return Policies(selector, Grouped(concurrency, slack), DiscountedMean(reference="base"))


def tea_fed(
    concurrency: int,
    *,
    cache_size: Annotated[
        int | None, Field(ge=1, description="updates per aggregation; none: half of C")
    ] = None,
    alpha: MixingRate = 0.6,
    penalty: Penalty = 0.5,
) -> Policies:
    """TEA-Fed (Zhou et al., 2021): idle clients apply; a cache is averaged, then mixed in.

    Theirs runs at most a tenth of the clients and caches as many: set clients.concurrency.
    """
    goal = max(1, concurrency // 2) if cache_size is None else cache_size
    how = MixedMean(alpha, Discount(penalty=penalty))
    return Policies(Uniform(), Buffered(concurrency, goal), how)


def goal_of(buffer_size: int | None, concurrency: int) -> int:
    """FedBuff's K: as given, or 20 % of the concurrency as in the Pisces paper."""
    return max(1, round(0.2 * concurrency)) if buffer_size is None else buffer_size

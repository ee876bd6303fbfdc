"""Protocols that mix each update into the model as it arrives."""

from __future__ import annotations

from pisces.aggregate.asofed import AsoFed
from pisces.aggregate.fedasync import Mixing
from pisces.aggregate.hysync import Hybrid
from pisces.aggregate.memory import MAX_CACHE_BYTES
from pisces.aggregate.staleness import Discount
from pisces.pace.fedbuff import Buffered
from pisces.policy import Policies
from pisces.select.uniform import Uniform
from pisces.words import (
    CacheBytes,
    Form,
    HingeSlope,
    HingeStart,
    MixingRate,
    Penalty,
    Threshold,
    WeighFeatures,
)


def fedasync(
    concurrency: int,
    *,
    alpha: MixingRate = 0.6,
    staleness: Form = "polynomial",
    penalty: Penalty = 0.5,
    hinge_slope: HingeSlope = 10.0,
    hinge_start: HingeStart = 4.0,
) -> Policies:
    """FedAsync (Xie et al., OPT 2020): every arrival is mixed in, the staler the less.

    Its clients have a proximal term, too: set train.proximal (theirs: 0.005).
    """
    discount = Discount(staleness, penalty, hinge_slope, hinge_start)
    return Policies(Uniform(), Buffered(concurrency, 1), Mixing(alpha, discount))


def hysync(
    concurrency: int,
    *,
    threshold: Threshold = None,
    alpha: MixingRate = 0.6,
    penalty: Penalty = 0.5,
) -> Policies:
    """HySync (Shi et al., HPCC 2020): as FedAsync, but a crowd is averaged, then mixed in.

    A crowd comes within one tick: set tick_s. At 0 only exact ties are one, else it is FedAsync.
    """
    crowd = concurrency // 2 if threshold is None else threshold
    how = Hybrid(crowd, alpha, Discount(penalty=penalty))
    return Policies(Uniform(), Buffered(concurrency, 1), how)


def aso_fed(
    concurrency: int,
    *,
    weigh_features: WeighFeatures = False,
    max_cache_bytes: CacheBytes = MAX_CACHE_BYTES,
) -> Policies:
    """ASO-Fed (Chen et al., 2020): the model moves by what changed since a client's last one.

    Its clients run all the time (set clients.concurrency to clients.count), with a proximal term.
    """
    how = AsoFed(weigh_features=weigh_features, max_cache_bytes=max_cache_bytes)
    return Policies(Uniform(), Buffered(concurrency, 1), how)

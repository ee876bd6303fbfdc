"""Protocols of rounds: a cohort starts together and is waited for."""

from __future__ import annotations

import math
from dataclasses import replace

from pisces.aggregate.mean import DiscountedMean
from pisces.pace.fedavg import Rounds
from pisces.pace.timed import Timed
from pisces.policy import Policies
from pisces.select.autofl import QLearning
from pisces.select.fedar import Trusting
from pisces.select.fedcs import Fitting
from pisces.select.oort import Oort
from pisces.select.tifl import Tiers
from pisces.select.uniform import Uniform
from pisces.words import (
    AskedShare,
    EnergyWeight,
    Epsilon,
    LowerIsBetter,
    MaxLatency,
    MinExamples,
    MinTrust,
    NumTiers,
    OverSelection,
    RankedEvery,
    RewardMetric,
    RoundDeadline,
    RoundLimit,
    SequentialUpload,
    StragglerPenalty,
    TierCredits,
    Timeout,
)


def fedavg(
    concurrency: int,
    *,
    over_selection: OverSelection = None,
    round_deadline_s: RoundDeadline = None,
) -> Policies:
    """FedAvg (McMahan et al., AISTATS 2017): a random cohort, wait for it, average by samples."""
    enough = enough_of(over_selection, concurrency)
    return Policies(
        selector=Uniform(),
        pacer=Rounds(concurrency, enough=enough, deadline_s=round_deadline_s),
        aggregator=DiscountedMean(),
    )


def oort(
    concurrency: int,
    *,
    straggler_penalty: StragglerPenalty = 2.0,
    over_selection: OverSelection = None,
    round_deadline_s: RoundDeadline = None,
) -> Policies:
    """Oort (Lai et al., OSDI 2021): loss utility, penalised by slowness; rounds as in FedAvg."""
    rounds = fedavg(concurrency, over_selection=over_selection, round_deadline_s=round_deadline_s)
    return replace(rounds, selector=Oort(straggler_penalty=straggler_penalty))


def tifl(
    concurrency: int,
    *,
    num_tiers: NumTiers = 5,
    every: RankedEvery = 10,
    credits_per_tier: TierCredits = None,
    over_selection: OverSelection = None,
    round_deadline_s: RoundDeadline = None,
) -> Policies:
    """TiFL (Chai et al., HPDC 2020): cohorts of like speed, more of those with more to learn."""
    rounds = fedavg(concurrency, over_selection=over_selection, round_deadline_s=round_deadline_s)
    tiers = Tiers(num_tiers=num_tiers, every=every, credits_per_tier=credits_per_tier)
    return replace(rounds, selector=tiers)


def fedcs(
    concurrency: int,
    *,
    deadline_s: RoundLimit = 180.0,
    asked_share: AskedShare = 0.1,
    sequential_upload_s: SequentialUpload = 0.0,
) -> Policies:
    """FedCS (Nishio and Yonetani, ICC 2019): as many as fit into a round of given length."""
    fitting = Fitting(
        deadline_s=deadline_s, asked_share=asked_share, sequential_upload_s=sequential_upload_s
    )
    return replace(fedavg(concurrency), selector=fitting)


def autofl(
    concurrency: int,
    *,
    epsilon: Epsilon = 0.1,
    energy_weight: EnergyWeight = 0.01,
    metric: RewardMetric = "accuracy",
    lower_is_better: LowerIsBetter = False,
) -> Policies:
    """AutoFL (Kim and Wu, MICRO 2021): cohorts by what Q-learning found worth their energy."""
    learner = QLearning(
        epsilon=epsilon,
        energy_weight=energy_weight,
        metric=metric,
        lower_is_better=lower_is_better,
    )
    return replace(fedavg(concurrency), selector=learner)


def fedar(
    concurrency: int,
    *,
    timeout_s: Timeout = 60.0,
    max_latency_s: MaxLatency = None,
    min_examples: MinExamples = 0,
    min_trust: MinTrust = 10.0,
) -> Policies:
    """FedAR (Imteaj and Amini, ICMLA 2020): clients by trust, a timeout, the late count next time.

    Whoever is late is picked less often from then on: choose a timeout that most can keep.
    """
    selector = Trusting(
        timeout_s=timeout_s,
        max_latency_s=max_latency_s,
        min_examples=min_examples,
        min_trust=min_trust,
    )
    return Policies(selector, Timed(concurrency, timeout_s), DiscountedMean(reference="base"))


def enough_of(over_selection: float | None, concurrency: int) -> int | None:
    """How many of an over-selected cohort are used: C / over_selection, rounded down."""
    if over_selection is None:
        return None
    return max(1, math.floor(concurrency / over_selection + 1e-9))  # 13 / 1.3 is 9.999...

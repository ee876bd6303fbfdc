"""Protocols of rounds: a cohort starts together and is waited for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from pisces.aggregate.mean import DiscountedMean
from pisces.pace.fedavg import Rounds
from pisces.policy import Policies
from pisces.protocols.words import OverSelection, RoundDeadline
from pisces.select.oort import Oort
from pisces.select.uniform import Uniform


def fedavg(
    concurrency: int,
    *,
    over_selection: OverSelection = None,
    round_deadline_s: RoundDeadline = None,
) -> Policies:
    """FedAvg (McMahan et al., AISTATS 2017): a random cohort, wait for it, average by samples."""
    enough = None if over_selection is None else _first(concurrency, over_selection)
    return Policies(
        selector=Uniform(),
        pacer=Rounds(concurrency, enough=enough, deadline_s=round_deadline_s),
        aggregator=DiscountedMean(),
    )


def oort(
    concurrency: int,
    *,
    straggler_penalty: Annotated[
        float, Field(ge=0, description="exponent of the slow clients' penalty (alpha)")
    ] = 2.0,
    over_selection: OverSelection = None,
    round_deadline_s: RoundDeadline = None,
) -> Policies:
    """Oort (Lai et al., OSDI 2021): loss utility, penalised by slowness; rounds as in FedAvg."""
    rounds = fedavg(concurrency, over_selection=over_selection, round_deadline_s=round_deadline_s)
    return replace(rounds, selector=Oort(straggler_penalty=straggler_penalty))


def _first(concurrency: int, over_selection: float) -> int:
    """How many of an over-selected cohort are used: C / over_selection, rounded down."""
    return max(1, math.floor(concurrency / over_selection + 1e-9))  # 13 / 1.3 is 9.999...

"""Protocols that aggregate every so many updates."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pisces.aggregate.mean import DiscountedMean
from pisces.pace.fedbuff import Buffered
from pisces.policy import Policies
from pisces.protocols.words import Against, BufferSize, Penalty, ServerRate, ShareBy
from pisces.select.uniform import Uniform


def fedbuff(
    concurrency: int,
    *,
    buffer_size: BufferSize = None,
    staleness_penalty: Penalty = 0.5,
    server_rate: ServerRate = 1.0,
    reference: Against = "base",
    share: ShareBy = "equal",
    max_staleness: Annotated[int | None, Field(ge=0, description="drop staler updates")] = None,
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


def goal_of(buffer_size: int | None, concurrency: int) -> int:
    """FedBuff's K: as given, or 20 % of the concurrency as in the Pisces paper."""
    return max(1, round(0.2 * concurrency)) if buffer_size is None else buffer_size

"""The words protocols and policies are set with: types, bounds and descriptions, each said once.

Also those that more than one room shares. It knows no room, so that every room may know it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

Reference = Literal["current", "base"]
Share = Literal["samples", "equal"]
Forms = Literal["constant", "polynomial", "hinge"]
Mode = Literal["paper", "elapsed", "strict"]

OverSelection = Annotated[
    float | None, Field(ge=1, description="start C, use the first C / this; none: wait for all")
]
RoundDeadline = Annotated[
    float | None, Field(gt=0, description="aggregate what arrived this long after a round's start")
]
BufferSize = Annotated[
    int | None, Field(ge=1, description="updates per aggregation (K); none: 20 % of C")
]
Penalty = Annotated[
    float, Field(ge=0, le=10, description="exponent of the staleness discount (beta)")
]
SelectionPenalty = Annotated[
    float, Field(ge=0, le=10, description="exponent of the staleness discount in selection (beta)")
]
WeightPenalty = Annotated[
    float, Field(ge=0, le=10, description="exponent of the staleness discount in the model")
]
ServerRate = Annotated[float, Field(gt=0, le=1e6, description="server learning rate")]
Against = Annotated[
    Reference, Field(description="measure an update against the current model or its base version")
]
ShareBy = Annotated[Share, Field(description="an update's share: by its samples, or equal")]
Probability = Annotated[float, Field(ge=0, le=1)]
Bound = Annotated[
    int | None, Field(ge=1, le=1_000_000, description="stalest update wanted (b); none: C")
]
WideBound = Annotated[
    int | None, Field(ge=1, le=1_000_000, description="stalest update wanted (b); none: 2 C")
]
Pace = Annotated[
    Literal["remaining", Mode],
    Field(
        description="remaining: what is left of b over the time left; paper: latency / b; "
        "elapsed: or time running / b; strict: a hard bound"
    ),
]
Unseen = Annotated[
    float, Field(ge=0, description="latency of a client not seen yet; 0: the slowest seen")
]
Window = Annotated[int, Field(ge=0, le=1000, description="versions that count as similar")]


def _some_guard(value: object) -> object:
    if value in (None, "none", False):
        raise ValueError("must be 'learning' or 'clusters'; without any it is pisces-without-guard")
    return value


Guard = Annotated[
    Literal["learning", "clusters"],
    BeforeValidator(_some_guard),
    Field(
        description="learning: whoever learns nothing from its own data is dropped and loses a "
        "credit; clusters: losses in no cluster cost one, as in the paper"
    ),
]
Drop = Annotated[bool, Field(description="keep updates of outliers out of the model too")]
MostStale = Annotated[int | None, Field(ge=0, description="drop staler updates; none: keep all")]
TaskTimeout = Annotated[float, Field(gt=0, description="call a task off after so long; inf: never")]
Timeout = Annotated[
    float, Field(gt=0, description="how long to wait; who takes longer loses trust")
]
Slack = Annotated[
    float, Field(ge=1, allow_inf_nan=False, description="how much longer a group is waited for")
]
Threshold = Annotated[
    int | None, Field(ge=0, description="more at once are averaged first; none: half of C")
]
FullShare = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description="share of the samples at work that makes a full step; none: 0.5 to 1, by where "
        "updates point",
    ),
]
OptimizerRate = Annotated[float, Field(gt=0, le=1e6, description="of the server's optimiser")]
Beta = Annotated[float, Field(ge=0, lt=1, description="how much of what was is kept")]
Tau = Annotated[float, Field(gt=0, allow_inf_nan=False, description="the least to divide by")]
WeighFeatures = Annotated[
    bool, Field(description="weigh the first layer's features, which shrinks it")
]
Patience = Annotated[
    int | None, Field(ge=1, description="staleness beyond which the rate shrinks; none: never")
]
MixingRate = Annotated[
    float, Field(gt=0, le=1, description="how much of a fresh update the model becomes (alpha)")
]
Form = Annotated[Forms, Field(description="what staleness costs: constant | polynomial | hinge")]
HingeSlope = Annotated[float, Field(gt=0, description="hinge: how quickly it costs more")]
HingeStart = Annotated[float, Field(ge=0, description="hinge: up to here it costs nothing")]
CacheBytes = Annotated[
    int, Field(gt=0, description="most memory for what it keeps of each client; else it refuses")
]

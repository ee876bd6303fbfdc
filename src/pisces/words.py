"""The words protocols and policies are set with: types, bounds and descriptions, each said once.

Also those that more than one room shares. It knows no room, so that every room may know it.
"""

from __future__ import annotations

from math import inf
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

Reference = Literal["current", "base"]
Share = Literal["samples", "equal"]
Forms = Literal["constant", "polynomial", "hinge"]
Mode = Literal["paper", "elapsed", "strict"]

# Without a description: `Annotated[Probability, "share of slots to explore with"]`.
Probability = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
WholeNumber = Annotated[int, Field(ge=0)]

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


def _longer_than_usual(value: float | None) -> float | None:
    if value is not None and value != 0 and not 1 < value < inf:
        raise ValueError(f"must be more than 1, or 0 to shorten nothing, not {value:g}")
    return value


Longest = Annotated[
    float | None,
    AfterValidator(_longer_than_usual),
    Field(
        description="what is more than so many times as long as usual, and longer than the model "
        "itself, is shortened to what is usual; 0: nothing is; none: 20"
    ),
]
Drop = Annotated[bool, Field(description="keep updates of outliers out of the model too")]
MostStale = Annotated[int | None, Field(ge=0, description="drop staler updates; none: keep all")]
CalledOffBeyond = Annotated[
    int | None, Field(ge=0, description="call off and drop what is staler; none: keep all")
]
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
    Probability | None,
    Field(
        description="share of the samples at work that makes a full step; 0: any does; none: "
        "0.5 to 1, by where updates point"
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
FreshnessWeight = Annotated[float, Field(ge=0, description="of freshness")]
DirectionWeight = Annotated[float, Field(ge=0, description="of pointing where the model last went")]

# --- of selectors ---------------------------------------------------------------------------------

Exploration = Annotated[Probability, Field(description="share of slots to explore with")]
ExplorationDecay = Annotated[Probability, Field(description="its factor per selection")]
MinExploration = Annotated[Probability, Field(description="its floor, unless it begins with less")]
StragglerPenalty = Annotated[
    float, Field(ge=0, description="exponent of the slow clients' penalty (alpha)")
]
NumTiers = Annotated[int, Field(ge=1, description="tiers of like speed")]
RankedEvery = Annotated[int, Field(ge=1, description="draws of a tier between two rankings")]
TierCredits = Annotated[
    int | None, Field(ge=1, description="how often each tier may be drawn; none: no limit")
]
RoundLimit = Annotated[float, Field(gt=0, description="longest round wanted")]
AskedShare = Annotated[float, Field(gt=0, le=1, description="of the free clients")]
SequentialUpload = Annotated[
    float, Field(ge=0, description="per client, one after the other, as in the paper; 0: none")
]
Epsilon = Annotated[Probability, Field(description="chance of each slot to go to anybody")]
EnergyWeight = Annotated[
    float, Field(ge=0, description="what the energy of the mean client costs, in the metric")
]
RewardMetric = Annotated[str, Field(description="evaluated, whose gain is the reward")]
LowerIsBetter = Annotated[bool, Field(description="of that metric, as of a loss")]
MaxLatency = Annotated[
    float | None, Field(gt=0, description="leave out who took longer last time; none: nobody")
]
MinExamples = Annotated[int, Field(ge=0, description="leave out who has fewer samples")]
MinTrust = Annotated[float, Field(ge=0, description="least of it (50 at first, 100 at most)")]
MinSteps = Annotated[
    int | None, Field(ge=1, description="fewest local steps; none: a fifth of the plan's")
]
MaxSteps = Annotated[int | None, Field(ge=1, description="most local steps; none: the plan's")]

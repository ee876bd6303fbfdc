"""The config's `[latency]` table: how long clients take, of one kind or another."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pisces.tables import MOST_SIGMA, NonNegative, Positive, Section


class Zipf(Section):
    """Few slow clients, many fast ones: k^-a, rescaled to [min_s, max_s] and shuffled."""

    kind: Literal["zipf"] = Field("zipf", description="other kinds: below")
    a: Positive = Field(1.2, description="skew")
    min_s: Positive = Field(15.0, description="fastest client, seconds per task")
    max_s: Positive = Field(180.0, description="slowest client")
    jitter: NonNegative = Field(0.0, description="sigma of the lognormal factor on every task")


class ConstantLatency(Section):
    """Everybody takes as long."""

    kind: Literal["constant"] = Field("constant", description="instead of zipf")
    seconds: Positive = Field(60.0, description="per task")
    jitter: NonNegative = Field(0.0, description="sigma of the lognormal factor on every task")


class UniformLatency(Section):
    """Uniform between two bounds."""

    kind: Literal["uniform"] = Field("uniform", description="instead of zipf")
    min_s: Positive = Field(15.0, description="fastest client, seconds per task")
    max_s: Positive = Field(180.0, description="slowest client")
    jitter: NonNegative = Field(0.0, description="sigma of the lognormal factor on every task")


class LognormalLatency(Section):
    """Lognormal around a median."""

    kind: Literal["lognormal"] = Field("lognormal", description="instead of zipf")
    median_s: Positive = Field(60.0, description="median client, seconds per task")
    sigma: NonNegative = Field(0.8, description="spread over clients")
    jitter: NonNegative = Field(0.0, description="sigma of the lognormal factor on every task")


class ComputeLatency(Section):
    """Computation per sample and transfer of the model, both lognormal over clients."""

    kind: Literal["compute"] = Field("compute", description="instead of zipf")
    seconds_per_sample: Positive = Field(
        0.02, description="median compute time per sample and epoch"
    )
    compute_sigma: NonNegative = Field(0.8, le=MOST_SIGMA, description="its spread over clients")
    bytes_per_s: Positive = Field(1e6, description="median bandwidth, each way")
    bandwidth_sigma: NonNegative = Field(0.8, le=MOST_SIGMA, description="its spread over clients")
    jitter: NonNegative = Field(0.0, description="sigma of the lognormal factor on every task")


class TraceLatency(Section):
    """Measured latencies from a CSV or JSON file."""

    kind: Literal["trace"] = Field("trace", description="instead of zipf")
    path: str = Field(description="CSV with columns client,latency_s, or JSON")
    jitter: NonNegative = Field(0.0, description="sigma of the lognormal factor on every task")


Latency = Annotated[
    Zipf | ConstantLatency | UniformLatency | LognormalLatency | ComputeLatency | TraceLatency,
    Field(discriminator="kind"),
]

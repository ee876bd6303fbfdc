"""The tables of a config file: what may be set, within which bounds, and what for.

Every field's description is its documentation: `pisces config` prints them all.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False),
    AfterValidator(lambda v: v + 0.0),  # -0.0 becomes 0.0: some libraries mind
]
Finite = Annotated[float, Field(allow_inf_nan=False)]
# TOML has no word for nothing: where a limit has a default, no limit is infinity.
Limit = Annotated[float, BeforeValidator(lambda v: math.inf if v is None else v), Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
MOST_CORES = 1024
MOST_SAMPLES = 1 << 31
MOST_SIGMA = 10.0  # a client 22 000 times as fast, or rich, as the median: more is a mistake
Backend = Literal["auto", "sequential", "pool", "batched", "ray"]
Replaced = Annotated[
    dict[str, Any] | None, Field(description="a policy in place of the protocol's")
]


class Section(BaseModel):
    """A table of the config file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Clients(Section):
    """Who takes part, and how many at once."""

    count: Count = Field(100, le=10_000_000, description="number of clients (N)")
    concurrency: Count = Field(20, description="most clients running at once (C)")
    deadline_s: Positive | None = Field(
        None, description="give a task up after this long; its client must be heard from again"
    )
    credits: Count = Field(
        5, le=1_000_000, description="outliers or bad updates before a client is distrusted (r)"
    )
    staleness_window: Count = Field(
        5, le=1000, description="updates in a client's staleness average (k)"
    )


class Data(Section):
    """What is learned from, and who owns which part of it."""

    dataset: str = Field(
        "digits",
        description="digits, or one of those that `pisces data list` shows: mnist | cifar10 | ...",
    )
    folder: str | None = Field(
        None,
        description="folder with datasets; without it PISCES_DATA and the cache are looked at",
    )
    partition: Literal["iid", "dirichlet", "natural"] = Field(
        "dirichlet",
        description="iid | dirichlet | natural (by writer or author): who has which labels",
    )
    alpha: Positive = Field(
        0.5, description="Dirichlet concentration; small: few labels per client"
    )
    sizes: Literal["equal", "lognormal", "coupled"] | list[Count] = Field(
        "equal",
        description="equal | lognormal | coupled (slow clients are rich) | a list of numbers",
    )
    size: Count | None = Field(
        None, le=MOST_SAMPLES, description="equal: samples each; none: all there are, divided"
    )
    size_median: Positive = Field(
        190.0, description="lognormal: median samples per client; less where the data is too small"
    )
    size_sigma: NonNegative = Field(0.6, le=MOST_SIGMA, description="lognormal: spread of sizes")
    samples_per_s: Positive = Field(2.5, description="coupled: samples per second of latency")
    alpha_per_s: Positive = Field(0.05, description="coupled: alpha per second of latency")
    min_samples: Count = Field(1, description="natural: leave out clients with fewer samples")
    max_samples: Count | None = Field(
        None, description="natural: take the first so many of a client's samples; none: all"
    )
    overlap: bool = Field(False, description="let clients share samples, as the paper's MNIST does")
    redraw: bool = Field(
        False, description="fresh samples every epoch, from the client's own mixture of labels"
    )
    corrupted: Share = Field(0.0, description="share of clients whose labels are all wrong")
    test_samples: Count | None = Field(
        None, description="test on at most so many samples, the same for every seed; none: all"
    )
    sequence_length: Count = Field(32, description="text: words of a sample")
    vocabulary: Count = Field(10_000, description="text: words known, the most frequent ones")

    @model_validator(mode="after")
    def _can_be_redrawn(self) -> Data:
        if self.redraw and self.corrupted:
            raise ValueError(
                "redraw needs corrupted = 0: every client draws from all samples, so honest ones "
                "would meet the wrong labels too; set one of them only"
            )
        if self.redraw and self.partition == "natural":
            raise ValueError(
                "redraw draws from a mixture of labels, which natural clients do not have: use "
                "partition = 'dirichlet' or 'iid', or leave it out"
            )
        if self.redraw and self.overlap:
            raise ValueError("redraw lets clients share samples by itself: leave overlap out")
        return self

    @model_validator(mode="after")
    def _leaves_out_natural_clients(self) -> Data:
        if self.min_samples > 1 and self.partition != "natural":
            raise ValueError(
                f"min_samples = {self.min_samples} leaves natural clients out, and partition = "
                f"{self.partition!r} has none: use partition = 'natural', or leave it out"
            )
        if self.max_samples is not None and self.partition != "natural":
            raise ValueError(
                f"max_samples = {self.max_samples} is for natural clients, and partition = "
                f"{self.partition!r} has none: use partition = 'natural', or set sizes"
            )
        return self


class Model(Section):
    """What is learned."""

    name: str = Field(
        "mlp", description="mlp | small_cnn | lenet5 | femnist_cnn | resnet18 | lstm | albert"
    )
    hidden: list[Count] = Field([64], description="mlp: widths of the hidden layers")
    norm: Literal["batch", "group"] = Field(
        "batch", description="batch | group: the normalisation of resnet18"
    )
    embedding: Count = Field(96, description="lstm: numbers that stand for a word")
    units: Count = Field(670, description="lstm: numbers it remembers of the words so far")
    size: Literal["small", "base"] = Field(
        "base", description="base (as published) | small: the size of albert"
    )
    weights: str | None = Field(None, description="start from this safetensors file or run folder")


class Ray(Section):
    """Workers on a Ray cluster, where train.backend is ray."""

    address: str = Field(
        "auto",
        description="auto (the cluster this machine is in) | local (one of its own) | HOST:PORT | "
        "ray://HOST:PORT",
    )
    trainer: Literal["auto", "sequential", "batched"] = Field(
        "auto", description="of each worker; auto: batched with a GPU, else sequential (same bits)"
    )
    cpus_per_worker: NonNegative = Field(1.0, le=MOST_CORES, description="CPUs of a worker")
    gpus_per_worker: NonNegative = Field(
        0.0, le=MOST_CORES, description="GPUs of a worker; 0.5: two of them share one; 0: none"
    )

    @property
    def batched(self) -> bool:
        """Do workers train many clients at once?"""
        return self.trainer == "batched" or (self.trainer == "auto" and self.gpus_per_worker > 0)

    @property
    def device(self) -> str:
        """Where workers train."""
        return "cuda" if self.gpus_per_worker else "cpu"


class Train(Section):
    """How a client trains."""

    optimizer: Literal["sgd", "adam", "adamw"] = Field("sgd", description="sgd | adam | adamw")
    learning_rate: Positive = Field(0.05, description="client learning rate at version 0")
    decay: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="factor on the learning rate ..."
    )
    decay_every: Count = Field(1, description="... every so many versions")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="of sgd")
    weight_decay: NonNegative = Field(0.0, description="L2 penalty (adamw: decoupled)")
    proximal: NonNegative = Field(
        0.0, le=1e6, description="FedProx: pull towards the received model (mu)"
    )
    clip_norm: Positive | None = Field(None, description="clip each step's gradient to this norm")
    batch_size: Count = Field(16, le=MOST_SAMPLES, description="samples per step")
    epochs: Count = Field(5, description="passes over a client's data per task")
    device: str = Field("auto", description="auto | cpu | cuda; auto: a GPU if there is one")
    backend: Backend = Field(
        "auto",
        description="auto | sequential | pool (same bits) | batched (rounds otherwise; for GPUs) | "
        "ray (a cluster)",
    )
    workers: Count | None = Field(
        None,
        le=MOST_CORES,
        description="processes of a pool, or workers of a cluster; none: one per core",
    )
    precision: Literal["float32", "bf16"] = Field(
        "float32",
        description="float32 | bf16 (batched on a GPU: faster for large models, less exact)",
    )
    threads: Count = Field(
        1,
        le=MOST_CORES,
        description="of torch where there is no pool; one is best for small models",
    )
    ray: Ray = Ray()


class Availability(Section):
    """When clients are there."""

    kind: Literal["always", "markov", "diurnal", "trace"] = Field(
        "always", description="always | markov | diurnal | trace"
    )
    mean_online_s: Positive = Field(600.0, description="markov: mean session")
    mean_offline_s: Positive = Field(60.0, description="markov: mean absence")
    period_s: Positive = Field(86400.0, description="diurnal: length of a day")
    online_share: Annotated[float, Field(gt=0, le=1)] = Field(
        0.5, description="diurnal: share of the day a client is there"
    )
    path: str | None = Field(None, description="trace: CSV with columns client,joins_at,leaves_at")
    late_share: Share = Field(0.0, description="share of clients that join late ...")
    late_over_s: Positive = Field(600.0, description="... at some instant within this time")

    @model_validator(mode="after")
    def _trace_has_a_path(self) -> Availability:
        if self.kind == "trace" and self.path is None:
            raise ValueError("path is needed for kind 'trace': name a CSV or JSON file")
        return self


class Failures(Section):
    """What goes wrong, as probabilities per task."""

    crash: Share = Field(0.0, description="the task fails, the client stays")
    dropout: Share = Field(0.0, description="the client is seen leaving")
    vanish: Share = Field(0.0, description="the client falls silent without a word")
    return_after_s: Positive | None = Field(
        None, description="it is back after this long; none: never"
    )

    @model_validator(mode="after")
    def _at_most_certain(self) -> Failures:
        chances = (self.crash, self.dropout, self.vanish)
        if math.fsum(chances) > 1:
            raise ValueError(f"crash, dropout and vanish must add up to at most 1, not {chances}")
        return self


class Hostile(Section):
    """Clients that mean harm: what they learn from, what they tell, and what they send.

    Those of `data.corrupted`, and with one seed a larger share has them all again.
    """

    share: Share = Field(0.0, description="of the clients; the rest is honest")
    labels: Literal["own", "random", "shifted"] = Field(
        "own", description="own | random (cannot be learnt) | shifted (y + 1: can be learnt)"
    )
    loss: Literal["own", "high", "low", "same"] = Field(
        "own", description="own | high (ten times) | low (a tenth) | same: what they tell of it"
    )
    direction: Literal["own", "shared"] = Field(
        "own", description="own | shared: where the step they send points; shared: drawn once"
    )
    times: Finite = Field(
        1.0, description="length of that step, in own steps; -1: back, 1000: far too long"
    )

    @model_validator(mode="after")
    def _do_something(self) -> Hostile:
        honest = self.labels == self.loss == self.direction == "own" and self.times == 1
        if self.share and honest:
            raise ValueError(
                f"share = {self.share} of the clients would do nothing hostile: set labels, loss, "
                "direction or times, or leave the share out"
            )
        return self


class Evaluate(Section):
    """When the model is tested; it takes no virtual time."""

    every_s: Limit = Field(20.0, description="every so many seconds; inf: not by time")
    every_versions: Count | None = Field(None, description="every so many versions")


class StopAt(Section):
    """When the run ends: whichever comes first. One of the first three is needed."""

    time_s: Limit = Field(1000.0, description="virtual seconds; inf: no limit")
    versions: Count | None = Field(None, description="aggregations")
    updates: Count | None = Field(None, description="accepted client updates")
    target: Finite | None = Field(None, description="value of the metric to reach")
    patience: Count | None = Field(
        None, description="evaluated versions in a row without a new best"
    )
    metric: str = Field(
        "accuracy", description="accuracy | loss | perplexity (text), or a metric of your own"
    )

    @model_validator(mode="after")
    def _ends(self) -> StopAt:
        if self.time_s == math.inf and self.versions is None and self.updates is None:
            raise ValueError("the run would never end: set time_s, versions or updates")
        return self

    @model_validator(mode="after")
    def _can_be_met(self) -> StopAt:
        if self.metric == "accuracy" and self.target is not None and self.target > 1:
            hint = f"; did you mean {self.target / 100:g}?" if 10 <= self.target <= 100 else ""
            raise ValueError(
                f"a target of {self.target:g} is never reached: accuracy is a share of 1{hint}"
            )
        if self.metric == "perplexity" and self.target is not None and self.target < 1:
            raise ValueError(
                f"a target of {self.target:g} is never reached: perplexity is at least 1"
            )
        return self


class Limits(Section):
    """Beyond these an update is refused, and a full buffer aggregated early."""

    max_examples: Count = Field(100_000_000, description="that a client may say it has")
    max_loss: Positive = Field(1e6, description="that a client may report")
    max_norm: Positive = Field(1e15, description="of an update, and of the way it went")
    max_update_bytes: Count | None = Field(None, description="of a model; none: any")
    max_buffered_bytes: Count = Field(16 * 2**30, description="of all updates that wait, together")


class Checkpoint(Section):
    """What `pisces resume` goes on from. In seconds of your time, not of the run's."""

    every_s: Limit = Field(
        60.0, description="saved every so many seconds, and at the end; inf: only at the end"
    )
    keep: Count = Field(2, le=1000, description="keep the last so many")


class Record(Section):
    """What is written down beside what happens."""

    decisions: bool = Field(
        True, description="why clients were picked and versions made, in events.jsonl"
    )
    share: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="of the clients whose lines are written; below 1: a sampled log"
    )
    trackers: list[str] = Field(
        [], description="whom to tell besides: tensorboard, mlflow, wandb, csv"
    )
    project: Annotated[str, Field(min_length=1)] = Field(
        "pisces", description="W&B's project, MLflow's experiment"
    )
    mlflow_uri: str | None = Field(
        None, description="of a server or database; none: MLFLOW_TRACKING_URI, or the run's folder"
    )
    wandb_mode: Literal["offline", "online"] | None = Field(
        None, description="offline | online; none: WANDB_MODE, or offline"
    )
    track_model: bool = Field(False, description="hand MLflow and W&B the model file at the end")


class Network(Section):
    """Of `pisces serve`: with whom it begins, and what it puts up with."""

    at_least: Count = Field(1, description="clients with which the run, and its clock, begin")
    patience_s: Positive = Field(
        60.0, description="without a connection before a client counts as gone"
    )
    beat_s: Positive = Field(
        30.0, description="clients say something this often; silent three times over, they are gone"
    )
    handshake_s: Positive = Field(10.0, description="for a client to say who it is")
    linger_s: NonNegative = Field(5.0, description="at the end, for everybody to hear of it")
    max_connections: Count = Field(10_000, description="at once")
    messages_per_s: Positive = Field(50.0, description="of one client, but for results")
    connects_per_minute: Positive = Field(30.0, description="of one name")
    encoding: Literal["float32", "float16"] = Field(
        "float32", description="float32 | float16 (half the bytes, less exact): of results"
    )
    compress: bool = Field(False, description="weights, both ways, by zstd")

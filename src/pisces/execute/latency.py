"""How long a simulated client takes for a task, and the shapes those times come in.

A `Latency` answers for one client and its turn-th task, whatever else is going on, so protocols
compared under one seed meet the same latencies. The makers (`zipf`, `lognormal`, `from_trace` ...)
give one base latency per client, in client order.
"""

from __future__ import annotations

import math
from os import PathLike
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisces.errors import ConfigError, DataError
from pisces.execute.trace import read_trace, trace_number
from pisces.seeds import generator
from pisces.types import Plan, Task

Floats: TypeAlias = NDArray[np.float64]

# exp(10 x a normal draw) is still a finite, positive float; far beyond it is not
MAX_JITTER = 10.0


class Latency(Protocol):
    """Seconds a client needs for a task."""

    def profile(self, client: int) -> float:
        """Expected seconds of one default task."""
        ...

    def draw(self, client: int, turn: int, task: Task) -> float:
        """Seconds of the client's turn-th task, counted from 0.

        Depends only on the seed, the client, the turn and the task's plan.
        """
        ...


class PerClient:
    """Each client has its own pace, whatever the plan; jitter makes single tasks differ from it.

    The factor is exp(jitter x a standard normal draw): its median is 1.
    """

    grows_with_steps = False

    def __init__(self, base_s: ArrayLike, jitter: float = 0.0, seed: int = 0) -> None:
        self._base_s = _positive("base latency", base_s)
        self._jitter = _checked_jitter(jitter)
        self._seed = seed

    def profile(self, client: int) -> float:
        """The client's base latency, which is the median of its draws."""
        return float(self._base_s[client])

    def draw(self, client: int, turn: int, task: Task) -> float:
        """The base latency times the factor of this turn."""
        return self.profile(client) * _factor(self._jitter, self._seed, client, turn)


class OwnTime:
    """Of clients that are real: they take as long as they take, and longer for more steps."""

    def profile(self, client: int) -> float:
        """Nobody knows."""
        raise RuntimeError(f"client {client} is real: its latency is not known beforehand")

    def draw(self, client: int, turn: int, task: Task) -> float:
        """Nobody knows."""
        del turn, task
        return self.profile(client)


class ComputeAndNetwork:
    """Latency made of the samples to go through and a model to fetch and send back.

    A plan with `max_steps` counts at most that many full batches.
    """

    def __init__(
        self,
        seconds_per_sample: ArrayLike,
        bandwidth_bytes_per_s: ArrayLike,
        num_examples: ArrayLike,
        model_bytes: int,
        epochs: int,
        jitter: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._seconds_per_sample = _positive("seconds per sample", seconds_per_sample)
        bandwidth = _positive("bandwidth in bytes per second", bandwidth_bytes_per_s)
        self._num_examples = _positive("number of examples", num_examples)
        _require_same_length(self._seconds_per_sample, bandwidth, self._num_examples)
        if model_bytes < 1 or epochs < 1:
            raise ConfigError(
                f"model_bytes and epochs must be at least 1, not {model_bytes} and {epochs}: "
                "give the size of the model and the default number of local epochs"
            )
        self._network_s = 2 * model_bytes / bandwidth
        self._default = Plan(epochs=epochs)
        self._jitter = _checked_jitter(jitter)
        self._seed = seed

    def profile(self, client: int) -> float:
        """Seconds of the default number of epochs, without jitter."""
        return self._seconds(client, self._default)

    def draw(self, client: int, turn: int, task: Task) -> float:
        """Seconds of the task's own plan, times the factor of this turn."""
        factor = _factor(self._jitter, self._seed, client, turn)
        return self._seconds(client, task.plan) * factor

    def _seconds(self, client: int, plan: Plan) -> float:
        num_samples = self._num_examples[client] * plan.epochs
        if plan.max_steps is not None:
            num_samples = min(num_samples, plan.max_steps * plan.batch_size)
        compute_s = num_samples * self._seconds_per_sample[client]
        return float(compute_s + self._network_s[client])


# --- base latencies, one per client ---------------------------------------------------------------


def zipf(num: int, a: float, min_s: float, max_s: float, rng: np.random.Generator) -> Floats:
    """Few slow clients and many fast ones: k^-a for ranks k = 1 .. num, stretched to the bounds.

    The distribution of the Pisces paper (Jiang et al., SoCC 2022, section 8.1). The slowest client
    takes `max_s`, the fastest `min_s`; who is who is drawn. A single client takes `max_s`.
    """
    _require_num(num)
    _require_bounds(min_s, max_s)
    if not 0 < a < math.inf:
        raise ConfigError(f"the Zipf exponent must be positive, not {a}: the paper uses 1.2")
    shares = np.arange(1, num + 1, dtype=np.float64) ** -a
    span = shares[0] - shares[-1]
    if span == 0:  # one client, or an exponent too small to tell them apart
        return constant(num, max_s)
    return rng.permutation(min_s + (shares - shares[-1]) / span * (max_s - min_s))


def constant(num: int, seconds: float) -> Floats:
    """Everyone takes the same time."""
    _require_num(num)
    _require_bounds(seconds, seconds)
    return np.full(num, seconds, np.float64)


def uniform(num: int, min_s: float, max_s: float, rng: np.random.Generator) -> Floats:
    """Anything between the bounds, equally likely."""
    _require_num(num)
    _require_bounds(min_s, max_s)
    return rng.uniform(min_s, max_s, num)


def lognormal(
    num: int,
    median_s: float,
    sigma: float,
    rng: np.random.Generator,
    min_s: float = 1e-3,
    max_s: float = 1e9,
) -> Floats:
    """A long tail of slow clients around a median; what falls outside the bounds is cut to them."""
    _require_num(num)
    _require_bounds(min_s, max_s)
    if not min_s <= median_s <= max_s:
        raise ConfigError(
            f"the median latency must lie within [{min_s}, {max_s}] s, not at {median_s}: "
            "move it or the bounds"
        )
    if not 0 <= sigma <= MAX_JITTER:
        raise ConfigError(f"sigma must be between 0 and {MAX_JITTER:g}, not {sigma}: try 0.5")
    seconds: Floats = median_s * np.exp(sigma * rng.standard_normal(num))
    return seconds.clip(min_s, max_s)


def from_trace(path: str | PathLike[str], num: int) -> Floats:
    """Measured latencies of clients `0 .. num - 1`; further clients in the file are left out.

    A CSV file has the header `client,latency_s`. A JSON file holds a list of seconds, or an object
    from client to seconds.
    """
    _require_num(num)
    base_s = np.full(num, np.nan)
    for where, client, (value,) in read_trace(path, ("client", "latency_s")):
        seconds = trace_number(where, "latency_s", value)
        if not 0 < seconds < math.inf:
            raise DataError(f"{where}: a latency must be positive and finite, not {value}; mend it")
        if client < num and not np.isnan(base_s[client]):
            raise DataError(f"{where}: client {client} has two latencies; leave one of them out")
        if client < num:
            base_s[client] = seconds
    missing = np.flatnonzero(np.isnan(base_s))
    if len(missing):
        raise DataError(
            f"{path}: {len(missing)} of {num} clients have no latency, the first is client "
            f"{missing[0]}; add them or ask for fewer clients"
        )
    return base_s


# --- rules ----------------------------------------------------------------------------------------


def _factor(jitter: float, seed: int, client: int, turn: int) -> float:
    if jitter == 0:
        return 1.0
    return math.exp(jitter * generator(seed, "latency", client, turn).standard_normal())


def _checked_jitter(jitter: float) -> float:
    if not 0 <= jitter <= MAX_JITTER:
        raise ConfigError(
            f"the latency jitter must be between 0 (none) and {MAX_JITTER:g}, not {jitter}; "
            "0.3 makes two of three draws fall within a third of the client's usual latency"
        )
    return float(jitter)


def _positive(name: str, values: ArrayLike) -> Floats:
    array = np.array(values, np.float64)  # a copy: nobody changes latencies behind our back
    if array.ndim != 1 or len(array) == 0:
        raise ConfigError(f"there must be one {name} per client, not an array of {array.shape}")
    wrong = np.flatnonzero(~((array > 0) & (array < np.inf)))
    if len(wrong):
        raise ConfigError(
            f"every {name} must be positive and finite, but client {wrong[0]} has "
            f"{array[wrong[0]]}; give it a positive one"
        )
    return array


def _require_same_length(*arrays: Floats) -> None:
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise ConfigError(
            f"there must be one speed, one bandwidth and one size per client, not {lengths}; "
            "give arrays of one length"
        )


def _require_num(num: int) -> None:
    if num < 1:
        raise ConfigError(f"there must be at least one client, not {num}")


def _require_bounds(min_s: float, max_s: float) -> None:
    if not 0 < min_s <= max_s < math.inf:
        raise ConfigError(
            f"latencies must be positive and finite, the least no more than the most, "
            f"not from {min_s} to {max_s} s; mend the bounds"
        )

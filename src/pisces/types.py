"""The frozen values every room shares: tasks, reports, updates, and what happened when.

Nothing here imports torch at run time, so a client without torch stays light.

Two families of values travel through the house:

* **events** come from an executor and say what the world did: `Joined`, `Arrived`, `Failed` and
  `Left`;
* **entries** go to the recorder and say what the server made of it: the events (an accepted
  `Update` in place of the unchecked `Arrived`), and `Picked`, `Started`, `Dropped`, `Ignored`,
  `Aggregated`, `Evaluated`, `Outlier`, `Distrusted` and `Stopped`.

Instants end in ``_at`` (or are plain ``at``), durations in ``_s``, counts start with ``num_``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from pisces.errors import ConfigError

if TYPE_CHECKING:
    import torch

# Reasons by which readers of a log tell what became of something.
AT_THE_END = "the run stopped"  # of what ran or waited then
CALLED_OFF = "called off"  # of a task, by the pace; why follows
DOUBTED = "its loss is doubted"
NOT_FINITE = "the model would not be finite"
FULL = "no more updates fit in memory"

Role: TypeAlias = Literal["parameter", "buffer"]
Objective: TypeAlias = Literal["labels", "next_word"]  # what is learned of a dataset
Scores: TypeAlias = tuple[tuple[float, ...], ...]  # a row of terms for each client; NaN: unknown
MOST_CLIENTS = 10_000_000  # of one run: some tables have a row for each


@dataclass(frozen=True, slots=True)
class Slice:
    """Where one named tensor of a model lies in the flat vector."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How a flat vector maps back to a model: parameters first, then float buffers.

    `aliases` are further names of tied tensors; `counters` are integer buffers, which are not
    averaged and therefore stay out of the vector.
    """

    slices: tuple[Slice, ...]
    aliases: tuple[tuple[str, str], ...] = ()
    counters: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return self.slices[-1].stop if self.slices else 0

    @property
    def dtype(self) -> Literal["float32", "float64"]:
        """Of the flat vector: float64 where one tensor is, which float32 may not hold."""
        return "float64" if any(s.dtype == "float64" for s in self.slices) else "float32"

    @property
    def num_parameters(self) -> int:
        """Length of the leading part that optimisers, clipping and noise may touch."""
        return sum(s.stop - s.start for s in self.slices if s.role == "parameter")


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A model's weights: one flat float vector and its layout. Never changed in place."""

    flat: torch.Tensor
    layout: Layout

    @property
    def parameters(self) -> torch.Tensor:
        """The leading part, without buffers: what optimisers, clipping and noise may touch."""
        return self.flat[: self.layout.num_parameters]


@dataclass(frozen=True, slots=True)
class Plan:
    """The local work a client is asked to do."""

    epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 0.01
    proximal: float = 0.0
    max_steps: int | None = None

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or (self.max_steps or 0) < 0:
            raise ConfigError(
                f"a plan needs at least 1 epoch and 1 sample per batch, no negative steps: {self}"
            )
        if not (self.learning_rate > 0 and self.proximal >= 0):
            raise ConfigError(f"a plan needs a learning rate > 0 and a proximal term >= 0: {self}")


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One piece of local training: this client, from these weights, by this plan."""

    id: int
    client: int
    version: int
    weights: Weights
    plan: Plan
    seed: int
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a client says of its training; `None` means it did not say.

    `loss` is the mean and `loss_rms` the root mean square of the per-sample training losses over
    the first local epoch (the square root in Eq. 2 of the Pisces paper); `loss_left` is the mean
    over as many steps at the end, what training could not bring down; told from two epochs on.
    """

    num_examples: int
    loss: float | None = None
    loss_rms: float | None = None
    num_steps: int = 0
    loss_left: float | None = None


# --- events: what the world did -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    """A client is there (again) and may be given work."""

    at: float
    client: int
    num_examples: int


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """A client's result reached the server; nothing in it has been checked yet."""

    at: float
    task_id: int
    client: int
    weights: Weights
    report: Report


@dataclass(frozen=True, slots=True)
class Failed:
    """A task ended without a usable result; its client is still there."""

    at: float
    client: int
    reason: str
    task_id: int | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """A client is gone (and its task with it) until it joins again."""

    at: float
    client: int
    reason: str
    task_id: int | None = None


Event: TypeAlias = Joined | Arrived | Failed | Left

# --- entries: what the server made of it ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picked:
    """Who was chosen, out of how many, and why: a row of `scores` for each of `clients`.

    `terms` name the columns, the score itself last; there are none where clients are drawn by lot.
    `others` are free clients that were not chosen and have reported since they were last scored.
    """

    at: float
    version: int
    slots: int
    num_free: int
    clients: tuple[int, ...]
    terms: tuple[str, ...] = ()
    scores: Scores = ()
    others: tuple[int, ...] = ()
    other_scores: Scores = ()


@dataclass(frozen=True, slots=True)
class Started:
    """A task was handed to the executor; `num_steps` where its plan says how many."""

    at: float
    task_id: int
    client: int
    version: int
    num_steps: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """A result that passed the checks, with what is needed to combine it.

    `base` holds the weights of `version`, the version it was trained from. Keeping it here keeps a
    base version alive exactly as long as somebody needs it.
    """

    task_id: int
    client: int
    version: int
    base: Weights
    weights: Weights
    report: Report
    arrived_at: float
    latency_s: float

    def staleness(self, version: int) -> int:
        """Versions made since the one it was trained from."""
        return version - self.version


@dataclass(frozen=True, slots=True)
class Dropped:
    """An update arrived but was not wanted."""

    at: float
    task_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """Word of a task that is not running (any more) on that client: late, repeated or made up."""

    at: float
    client: int
    task_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Updates became a new version; `coefficients` are the factors applied to each.

    `reason` is why, where the pacer did not ask for it; `pace` is what the pacer went by.
    """

    at: float
    version: int
    task_ids: tuple[int, ...]
    staleness: tuple[int, ...]
    coefficients: tuple[float, ...]
    reason: str | None = None
    pace: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Metrics of a version; `at` is the instant the version was looked at."""

    at: float
    version: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Outlier:
    """The judge doubts a client's loss; `credits` are what the client has left."""

    at: float
    client: int
    task_id: int
    credits: int


@dataclass(frozen=True, slots=True)
class Distrusted:
    """A client ran out of credits and is not selected again."""

    at: float
    client: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run is over."""

    at: float
    reason: str


Entry: TypeAlias = (
    Joined
    | Picked
    | Started
    | Update
    | Failed
    | Left
    | Dropped
    | Ignored
    | Aggregated
    | Evaluated
    | Outlier
    | Distrusted
    | Stopped
)


@dataclass(slots=True)
class State:
    """What an object must remember to go on later: JSON-able values and named arrays."""

    values: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)  # torch tensors and numpy arrays

    def add(self, name: str, part: State) -> None:
        """Put another object's state below `name`."""
        self.values[name] = part.values
        self.arrays.update({f"{name}/{key}": array for key, array in part.arrays.items()})

    def part(self, name: str) -> State:
        """The state put below `name`."""
        prefix = f"{name}/"
        arrays = {k.removeprefix(prefix): a for k, a in self.arrays.items() if k.startswith(prefix)}
        return State(self.values[name], arrays)


class Stateful(Protocol):
    """Whatever keeps state can hand it over and take it back. The default keeps none."""

    def state(self) -> State:
        """All that must be remembered to go on later."""
        return State()

    def restore(self, state: State) -> None:
        """Take up what `state` handed over."""
        del state  # nothing was kept

"""Serving a model of your own to clients with data of their own, whatever they train with.

    from pisces.server import serve

    served = serve("pisces", weights={"w": np.zeros((784, 10), np.float32)}, evaluate=accuracy_of,
                   listen="0.0.0.0:8440", certs="certs", stop=pisces.Stop(versions=100), out="run")

Clients take part with `pisces.client.join`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pisces import build, tracking
from pisces.clients.checks import Limits
from pisces.errors import ConfigError
from pisces.evaluate import Schedule
from pisces.execute.network.server.terms import Terms
from pisces.federation import MOST_CLIENTS, Federation, Yardstick
from pisces.hosting import BY_WHOM, MADE, Host, Place
from pisces.models.flat import named_tensors
from pisces.policy import Policies
from pisces.record.checkpoint import Checkpoints
from pisces.record.lines import TAKEN
from pisces.running import made_here, run
from pisces.stop import Stop
from pisces.types import Layout, Plan, Role, Slice, Weights

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Evaluate: TypeAlias = Callable[[Arrays], Mapping[str, float]]


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """What a run came to: the last version, its summary, and where it is written."""

    weights: dict[str, NDArray[Any]]
    summary: Mapping[str, Any]
    folder: Path | None


def serve(
    protocol: str | Policies,
    *,
    weights: Arrays,
    listen: str,
    stop: Stop,
    evaluate: Evaluate | None = None,
    certs: str | Path | None = None,
    insecure: bool = False,
    buffers: Collection[str] = (),
    concurrency: int = 20,
    settings: Mapping[str, Any] | None = None,
    plan: Plan | Callable[[int], Plan] = Plan(),  # noqa: B008 (frozen)
    told: Mapping[str, Any] | None = None,
    schedule: Schedule | None = None,
    seed: int = 1,
    tick_s: float = 0.0,
    deadline_s: float | None = None,
    limits: Limits | None = None,
    terms: Terms | None = None,
    metrics: str | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    checkpoints: Checkpoints = Checkpoints(),  # noqa: B008 (frozen)
    resume: bool = False,
    ready: Callable[[str], None] = lambda _address: None,
    trackers: tracking.Trackers = (),
    progress: bool = False,
) -> Served:
    """Train `weights` with whoever joins, by one protocol, until `stop`.

    `protocol`, `settings`, `concurrency`, `plan`, `limits`, `out`, `name`, `checkpoints`, `resume`,
    `trackers` and `progress` are those of `pisces.simulate`; so is what Ctrl-C does. With `resume`
    clients that are still there go on, and nothing they hold is lost. Without `limits` there may be
    100 000 clients.
    `weights` are float32 or float64. Those named in `buffers` are statistics (running means), not
    parameters: mixed, but not moved by optimisers of the server. `evaluate` is given weights of
    that kind and tells numbers by name; it is called once before the run, so that a mistake shows
    at once, then in a thread beside it as `schedule` says (every version). Without it nothing is
    evaluated.
    `listen` is HOST:PORT; `certs` the folder that `pisces certs` keeps (./certs). `insecure` goes
    without, on this machine only. `ready` is told the address, with the port if that was 0.
    `told` is for clients to read, as JSON. `terms` say what the server puts up with; `metrics` is a
    port (or HOST:PORT) for Prometheus. Clients that TLS itself keeps out are not counted here, and
    logged by gRPC alone: unlike `pisces serve` this leaves the process's standard error as it is.
    """
    start, settings = weights_of(weights, buffers), dict(settings or {})
    called = protocol if isinstance(protocol, str) else name or "my policies"
    federation = Federation(
        policies=copy.deepcopy(build.named_policies(protocol, concurrency, settings)),
        weights=start,
        stop=stop,
        yardstick=None if evaluate is None else yardstick_of(evaluate, start),
        seed=seed,
        plans=plan if callable(plan) else lambda _version: plan,
        schedule=schedule or Schedule(every_versions=1),
        tick_s=tick_s,
        deadline_s=deadline_s,
        limits=limits or Limits(max_clients=MOST_CLIENTS),
    )
    place = Place(listen, certs, insecure, metrics)
    host = Host(place, start.layout, federation.limits, terms or Terms(), json.dumps(told or {}))
    with host.watched() as watching:
        ran = run(
            federation,
            host.opens,
            protocol=called,
            by_whom=BY_WHOM,
            made={"concurrency": concurrency, "settings": repr(settings), **MADE},
            about=made_here(
                federation, called, tables=build.tables_of(protocol, concurrency, settings)
            ),
            out=out,
            listener=watching,
            checkpoints=None if out is None else checkpoints,
            resume=resume,
            recall=watching.add,
            ready=lambda: ready(host.address),
            trackers=tracking.made(trackers, out=out),
            progress=progress,
        )
    return Served(arrays_of(ran.weights), ran.summary, ran.folder)


def weights_of(arrays: Arrays, buffers: Collection[str] = ()) -> Weights:
    """Named arrays as one vector: parameters first, then those said to be buffers."""
    unknown = sorted(set(buffers) - set(arrays))
    if unknown:
        raise ConfigError(f"buffers: {unknown[0]!r} is none of the weights: {', '.join(arrays)}")
    if not arrays:
        raise ConfigError("weights: must be at least one named array, not none")
    named = {name: _checked(name, array) for name, array in arrays.items()}
    slices, start = list[Slice](), 0
    for name in [*(n for n in named if n not in buffers), *(n for n in named if n in buffers)]:
        array, role = named[name], _role(name, buffers)
        stop = start + array.size
        slices.append(Slice(name, array.shape, array.dtype.name, role, start, stop))
        start = stop
    layout = Layout(tuple(slices))
    flat = np.concatenate([named[s.name].reshape(-1) for s in slices]).astype(layout.dtype)
    return Weights(torch.from_numpy(flat), layout)


def _role(name: str, buffers: Collection[str]) -> Role:
    return "buffer" if name in buffers else "parameter"


def _checked(name: object, array: object) -> NDArray[Any]:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"weights: names must be text, not {name!r}")
    if not isinstance(array, np.ndarray) or array.dtype.name not in ("float32", "float64"):
        kind = getattr(array, "dtype", type(array).__name__)
        raise ConfigError(
            f"weights: {name} must be a numpy array of float32 or float64, not {kind}; convert it, "
            "or leave it out if it is no number to be averaged"
        )
    if not np.isfinite(array).all():
        raise ConfigError(f"weights: {name} must be finite; mend it")
    return array


def arrays_of(weights: Weights) -> dict[str, NDArray[Any]]:
    """The weights by name, each of its own kind, as copies."""
    return {name: tensor.numpy().copy() for name, tensor in named_tensors(weights).items()}


def yardstick_of(evaluate: Evaluate, start: Weights) -> Yardstick:
    """What a hook measures, found out by asking it."""

    def measure(_version: int, weights: Weights) -> dict[str, float]:
        return _numbers(evaluate(arrays_of(weights)))

    names = tuple(measure(0, start))
    for taken in TAKEN:
        if taken in names:
            raise ConfigError(f"evaluate: a metric may not be called {taken!r}: rename it")
    return Yardstick(names, lambda: measure)


def _numbers(measured: Mapping[str, float]) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in measured.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            "evaluate: must tell numbers by name, such as {'accuracy': 0.9}, not "
            f"{shortened(measured)}"
        ) from error

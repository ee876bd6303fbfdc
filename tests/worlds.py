"""Small worlds built by hand: a `View` out of plain lists, and updates to put in its buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from pisces.clients.table import ClientTable
from pisces.clients.view import Running, View
from pisces.types import Evaluated, Layout, Report, Slice, Update, Weights

NAN = float("nan")
Started = tuple[int, int, float]  # client, version, started_at


def view(
    num_examples: Sequence[int] = (100, 100, 100),
    *,
    loss_rms: Sequence[float] | None = None,
    latency_s: Sequence[float] | None = None,
    staleness: Mapping[int, Sequence[int]] | None = None,
    running: Sequence[Started] = (),
    max_steps: Sequence[int] | None = None,
    buffer: Sequence[Update] = (),
    now: float = 0.0,
    version: int = 0,
    last_aggregated_at: float = 0.0,
    history: Sequence[Evaluated] = (),
    **columns: Sequence[Any],
) -> View:
    """One instant, where client `i` is row `i` of every list.

    `staleness` maps a client to the staleness of its last updates, the newest last. Everybody is
    present and trusted; who has a loss or a latency has reported once, from version 0. `running`
    and `buffer` also mark their clients; `max_steps` are those of the running tasks. Other
    `columns` (`num_reports=[...]`, `last_version=[...]`, `present=[...]`) are taken as they are.
    """
    table = ClientTable()
    table.ensure(len(num_examples) - 1)
    state = table.state()
    rows = state.arrays
    rows["present"][:] = True
    rows["num_examples"][:] = num_examples
    for name, values in (("loss_rms", loss_rms), ("loss", loss_rms), ("latency_s", latency_s)):
        if values is not None:
            rows[name][:] = values
    reported = ~np.isnan(rows["loss_rms"]) | ~np.isnan(rows["latency_s"])
    rows["num_reports"][reported] = rows["num_picks"][reported] = 1
    rows["last_version"][reported] = 0
    rows["running"][[client for client, _, _ in running]] = True
    rows["buffered"][[u.client for u in buffer]] = True
    for client, values in (staleness or {}).items():
        ring = rows["recent_staleness"][client]
        ring[:] = [*ring, *values][-len(ring) :]
    for name, values in columns.items():
        rows[name][:] = values
    table.restore(state)
    return View(
        now,
        version,
        last_aggregated_at,
        table.facts,
        table.free,
        table.unseen,
        table.changes,
        partial(_running, running, max_steps),
        tuple(buffer),
        history,
    )


def _running(tasks: Sequence[Started], max_steps: Sequence[int] | None) -> Running:
    return Running(
        task_ids=np.arange(len(tasks)),
        clients=np.array([client for client, _, _ in tasks], np.int64),
        versions=np.array([version for _, version, _ in tasks], np.int64),
        started_at=np.array([started_at for _, _, started_at in tasks], np.float64),
        max_steps=np.full(len(tasks), -1) if max_steps is None else np.array(max_steps),
    )


def weights(values: Sequence[float], num_buffers: int = 0) -> Weights:
    """A model of one parameter vector, followed by `num_buffers` values of one buffer."""
    end = len(values) - num_buffers
    slices = [Slice("w", (end,), "float32", "parameter", 0, end)]
    if num_buffers:
        slices.append(Slice("b", (num_buffers,), "float32", "buffer", end, len(values)))
    return Weights(torch.tensor(values, dtype=torch.float32), Layout(tuple(slices)))


def update(
    client: int,
    values: Sequence[float] = (1.0,),
    *,
    base: Sequence[float] | None = None,
    version: int = 0,
    num_examples: int = 100,
    loss: float | None = None,
    loss_left: float | None = None,
    num_steps: int = 0,
    latency_s: float = 1.0,
    arrived_at: float = 0.0,
    num_buffers: int = 0,
    task_id: int | None = None,
) -> Update:
    """An update of `client` to weights `values`, trained from `base` (zeros unless given)."""
    start = [0.0] * len(values) if base is None else base
    return Update(
        task_id=client if task_id is None else task_id,
        client=client,
        version=version,
        base=weights(start, num_buffers),
        weights=weights(values, num_buffers),
        report=Report(num_examples, loss, loss, num_steps, loss_left),
        arrived_at=arrived_at,
        latency_s=latency_s,
    )


def random_view(seed: int, num_clients: int, version: int = 7) -> View:
    """Anything may be the case: clients away, distrusted or new; losses zero or untold."""
    rng = np.random.default_rng(seed)
    reports = rng.integers(0, 4, num_clients)
    known = reports > 0
    return view(
        rng.integers(1, 300, num_clients).tolist(),
        loss_rms=np.where(known, rng.choice([0.0, 0.5, 2.0, NAN], num_clients), NAN).tolist(),
        latency_s=np.where(known, rng.uniform(0.1, 90.0, num_clients), NAN).tolist(),
        staleness={int(c): rng.integers(0, 20, 3).tolist() for c in np.flatnonzero(known)},
        version=version,
        num_reports=reports.tolist(),
        num_picks=(reports + rng.integers(0, 3, num_clients)).tolist(),
        last_version=np.where(known, rng.integers(0, version + 1, num_clients), -1).tolist(),
        present=(rng.random(num_clients) < 0.8).tolist(),
        trusted=(rng.random(num_clients) < 0.9).tolist(),
        num_steps=np.where(known, rng.integers(0, 30, num_clients), 0).tolist(),
    )

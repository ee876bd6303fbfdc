"""Latencies: the makers of base latencies, jitter, and compute plus network."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.errors import ConfigError, DataError
from pisces.execute import latency
from pisces.execute.latency import ComputeAndNetwork, Latency, PerClient
from pisces.seeds import generator
from pisces.types import Layout, Plan, Task, Weights


def task(client: int = 0, id: int = 0, **plan: int) -> Task:
    weights = Weights(torch.zeros(1), Layout(()))
    return Task(id, client, 0, weights, Plan(**plan), seed=0)


def compute(**changes: object) -> ComputeAndNetwork:
    settings: dict[str, object] = {
        "seconds_per_sample": [0.1, 0.2],
        "bandwidth_bytes_per_s": [100.0, 50.0],
        "num_examples": [10, 100],
        "model_bytes": 200,
        "epochs": 2,
    }
    return ComputeAndNetwork(**(settings | changes))  # type: ignore[arg-type]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


# --- PerClient ------------------------------------------------------------------------------------


def test_without_jitter_every_task_takes_the_base_latency() -> None:
    model: Latency = PerClient(np.array([15.0, 180.0]), seed=1)
    assert [model.profile(0), model.profile(1)] == [15.0, 180.0]
    assert [model.draw(1, turn, task(1)) for turn in range(3)] == [180.0] * 3


def test_jitter_multiplies_by_the_exponential_of_its_own_draw() -> None:
    model = PerClient([10.0, 20.0], 0.3, 7)
    normal = generator(7, "latency", 1, 4).standard_normal()
    assert model.draw(1, 4, task(1)) == pytest.approx(20.0 * math.exp(0.3 * normal))
    assert model.profile(1) == 20.0


def test_jitter_has_median_one() -> None:
    model = PerClient([10.0], 0.5, 3)
    draws = [model.draw(0, turn, task()) for turn in range(1000)]
    # the median of 1000 draws errs by 0.5 x 1.25 / sqrt(1000) = 2 % (one sigma)
    assert np.median(draws) == pytest.approx(10.0, rel=0.08)
    assert np.std(np.log(draws)) == pytest.approx(0.5, rel=0.1)


def test_draws_depend_on_seed_client_and_turn_but_not_on_order_or_task_id() -> None:
    model, again = PerClient([9.0, 9.0], 0.3, 1), PerClient([9.0, 9.0], 0.3, 1)
    forward = [model.draw(0, turn, task(id=turn)) for turn in range(4)]
    backward = [again.draw(0, turn, task(id=99)) for turn in reversed(range(4))]
    assert forward == backward[::-1]
    assert len({*forward, model.draw(1, 0, task(1))}) == 5
    assert PerClient([9.0], 0.3, 2).draw(0, 0, task()) != forward[0]


def test_base_latencies_are_copied() -> None:
    base = np.array([10.0])
    model = PerClient(base)
    base[0] = 99.0
    assert model.profile(0) == 10.0


@pytest.mark.parametrize("base", [[1.0, 0.0], [-1.0], [math.nan], [math.inf]])
def test_a_latency_must_be_positive_and_finite(base: list[float]) -> None:
    with pytest.raises(ConfigError, match=f"client {len(base) - 1} has {base[-1]}"):
        PerClient(base)


@pytest.mark.parametrize("base", [[], [[1.0]], 3.0])
def test_there_must_be_one_latency_per_client(base: object) -> None:
    with pytest.raises(ConfigError, match="one base latency per client"):
        PerClient(base)  # type: ignore[arg-type]


@pytest.mark.parametrize("jitter", [-0.1, 11.0, math.nan, math.inf])
def test_jitter_is_bounded(jitter: float) -> None:
    with pytest.raises(ConfigError, match="jitter"):
        PerClient([1.0], jitter)


# --- ComputeAndNetwork ----------------------------------------------------------------------------


def test_compute_and_network_add_up() -> None:
    model = compute()
    # client 0: 10 samples x 2 epochs x 0.1 s + 2 x 200 / 100 = 2 + 4
    # client 1: 100 x 2 x 0.2 + 2 x 200 / 50 = 40 + 8
    assert [model.profile(0), model.profile(1)] == pytest.approx([6.0, 48.0])


@pytest.mark.parametrize(
    ("plan", "seconds"),
    [
        ({"epochs": 1}, 20 + 8),  # 100 samples
        ({"epochs": 3}, 60 + 8),  # 300 samples
        ({"epochs": 3, "max_steps": 5, "batch_size": 10}, 10 + 8),  # 50 samples
        ({"epochs": 1, "max_steps": 99, "batch_size": 10}, 20 + 8),  # no more than the epoch has
    ],
)
def test_a_task_costs_what_its_plan_asks_for(plan: dict[str, int], seconds: float) -> None:
    assert compute().draw(1, 0, task(1, **plan)) == pytest.approx(seconds)


def test_jitter_scales_the_whole_of_it() -> None:
    model = compute(jitter=0.5, seed=4)
    factor = math.exp(0.5 * generator(4, "latency", 1, 2).standard_normal())
    assert model.draw(1, 2, task(1, epochs=1)) == pytest.approx(28 * factor)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seconds_per_sample": [0.1, 0.0]}, "seconds per sample"),
        ({"bandwidth_bytes_per_s": [1.0, -1.0]}, "bandwidth"),
        ({"num_examples": [0, 5]}, "number of examples"),
        ({"num_examples": [5]}, "one length"),
        ({"model_bytes": 0}, "model_bytes"),
        ({"epochs": 0}, "epochs"),
        ({"jitter": -1.0}, "jitter"),
    ],
)
def test_compute_and_network_refuses(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        compute(**changes)


# --- makers ---------------------------------------------------------------------------------------


def test_zipf_by_hand() -> None:
    # a = 1: shares 1, 1/2, 1/3, 1/4, stretched from [1/4, 1] to [10, 100]:
    # 100; 10 + 90 (1/4) / (3/4) = 40; 10 + 90 (1/12) / (3/4) = 20; 10
    base = latency.zipf(4, 1.0, 10.0, 100.0, generator(0))
    assert sorted(base) == pytest.approx([10.0, 20.0, 40.0, 100.0])


def test_zipf_shuffles_who_is_slow() -> None:
    slowest = {int(latency.zipf(10, 1.2, 1, 9, generator(s)).argmax()) for s in range(10)}
    assert len(slowest) > 3


@pytest.mark.parametrize(("num", "a"), [(1, 1.2), (3, 1e-300)])
def test_zipf_without_differences_is_slow(num: int, a: float) -> None:
    assert latency.zipf(num, a, 10.0, 100.0, generator(0)).tolist() == [100.0] * num


@given(st.integers(2, 300), st.floats(0.1, 5), st.floats(0.01, 50), st.floats(0, 500))
@settings(max_examples=40, deadline=None)
def test_zipf_spans_its_bounds(num: int, a: float, min_s: float, extra_s: float) -> None:
    base = latency.zipf(num, a, min_s, min_s + extra_s, generator(0))
    assert base.shape == (num,)
    assert base.min() == pytest.approx(min_s)
    assert base.max() == pytest.approx(min_s + extra_s)


def test_constant_and_uniform() -> None:
    assert latency.constant(3, 2.5).tolist() == [2.5, 2.5, 2.5]
    base = latency.uniform(1000, 10.0, 20.0, generator(0))
    assert 10.0 <= base.min() <= base.max() <= 20.0
    assert base.mean() == pytest.approx(15.0, abs=0.5)  # sd of the mean: 2.9 / sqrt(1000) = 0.09


def test_lognormal_has_its_median_and_keeps_to_its_bounds() -> None:
    base = latency.lognormal(2000, 30.0, 0.8, generator(0), min_s=10.0, max_s=100.0)
    assert np.median(base) == pytest.approx(30.0, rel=0.1)
    # both cuts lie 1.4 and 1.5 sigma out, so that about 8 and 7 % are cut
    assert (base == 10.0).mean() == pytest.approx(0.085, abs=0.03)
    assert (base == 100.0).mean() == pytest.approx(0.066, abs=0.03)
    assert latency.lognormal(2, 30.0, 0.0, generator(0)).tolist() == [30.0, 30.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: latency.zipf(0, 1.2, 1, 2, rng),
        lambda rng: latency.zipf(2, 0.0, 1, 2, rng),
        lambda rng: latency.zipf(2, math.inf, 1, 2, rng),
        lambda rng: latency.zipf(2, 1.2, 0, 2, rng),
        lambda rng: latency.zipf(2, 1.2, 3, 2, rng),
        lambda rng: latency.constant(1, 0.0),
        lambda rng: latency.constant(0, 1.0),
        lambda rng: latency.uniform(2, 1, math.inf, rng),
        lambda rng: latency.lognormal(2, 0.0, 0.5, rng),
        lambda rng: latency.lognormal(2, 5.0, 0.5, rng, max_s=4.0),
        lambda rng: latency.lognormal(2, 5.0, -0.5, rng),
        lambda rng: latency.lognormal(2, 5.0, math.nan, rng),
    ],
)
def test_makers_refuse(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError):
        make(generator(0))


# --- traces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "client,latency_s\n1,7.5\n\n0,20\n2,1\n"),
        ("a.csv", '\ufeff"client", "latency_s"\r\n0, 20\r\n1, 7.5\r\n'),
        ("a.json", "[20, 7.5, 1]"),
        ("a.json", '{"1": 7.5, "0": 20, "7": 3}'),
    ],
)
def test_a_trace_gives_the_latencies_of_its_first_clients(
    tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    assert latency.from_trace(path, 2).tolist() == [20.0, 7.5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "header is not client,latency_s"),
        ("client,seconds\n0,1\n", "header is not client,latency_s"),
        ("client,latency_s\n0,1\n", "1 of 2 clients have no latency, the first is client 1"),
        ("client,latency_s\n0,1\n1,fast\n", r"a.csv, line 3: latency_s must be a number.*'fast'"),
        ("client,latency_s\n0,1\n1,0\n", "a.csv, line 3: a latency must be positive"),
        ("client,latency_s\n0,1\n1,inf\n", "a.csv, line 3: a latency must be positive"),
        ("client,latency_s\n0,1\n1,nan\n", "a.csv, line 3: a latency must be positive"),
        ("client,latency_s\n0,1\n0,2\n", "a.csv, line 3: client 0 has two latencies"),
        ("client,latency_s\n\n0,1,2\n", "a.csv, line 3: there must be 2 values"),
        ("client,latency_s\n-1,1\n", "a.csv, line 2: a client is a number from 0 on, not '-1'"),
        ("client,latency_s\nann,1\n", "a.csv, line 2: a client is a number from 0 on, not 'ann'"),
        ("client,latency_s\n0," + "1" * 200_000, "cannot be read as a trace"),
    ],
)
def test_a_wrong_csv_trace_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        latency.from_trace(written(tmp_path, "a.csv", text), 2)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (3, "neither a list nor an object"),
        ([1.0], "1 of 2 clients"),
        ([1.0, -1.0], "client 1: a latency must be positive"),
        ([1.0, True], "client 1: latency_s must be a number, not True"),
        ([1.0, None], "client 1: latency_s must be a number, not None"),
        ([1.0, 10**400], "client 1: latency_s must be a number"),
        ([[1.0, 2.0], 3.0], "client 0: client 0 has two latencies"),
        ([1.0, [[2.0, 3.0]]], "client 1: there must be 2 values"),
        ({"0": 1.0, "b": 1.0}, "not 'b'"),
    ],
)
def test_a_wrong_json_trace_is_named(tmp_path: Path, document: object, words: str) -> None:
    with pytest.raises(DataError, match=words):
        latency.from_trace(written(tmp_path, "a.json", json.dumps(document)), 2)


def test_an_unreadable_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv cannot be read"):
        latency.from_trace(tmp_path / "none.csv", 1)
    with pytest.raises(DataError, match=r"a\.json cannot be read"):
        latency.from_trace(written(tmp_path, "a.json", "[1, "), 1)
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"b\.csv cannot be read"):
        latency.from_trace(tmp_path / "b.csv", 1)
    with pytest.raises(ConfigError, match="at least one client, not 0"):
        latency.from_trace(tmp_path / "b.csv", 0)

"""`pisces evaluate`: the final model on the test set and on every client's own data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pisces as package
from pisces import config, world
from pisces.cli.evaluate import _spread


def test_spread_by_hand() -> None:
    # 20 clients at 0.0, 0.05 ... 0.95. The worst tenth are two: (0.0 + 0.05) / 2. The mean and the
    # median are 0.475; the variance of 0 .. n-1 is (n^2 - 1) / 12, here 33.25 x 0.05^2.
    found = _spread(np.arange(20) / 20)
    assert found == pytest.approx(
        {
            "mean": 0.475,
            "sd": 0.05 * 33.25**0.5,
            "min": 0.0,
            "worst_decile": 0.025,
            "median": 0.475,
        }
    )


def test_the_worst_tenth_of_few_is_the_worst() -> None:
    assert _spread(np.array([0.5, 0.7, 0.9]))["worst_decile"] == 0.5


def test_test_set_and_clients(pisces: Callable[..., Any], finished: Path) -> None:
    found = json.loads(pisces("evaluate", finished, "--json").out)
    assert (found["folder"], found["dataset"]) == (str(finished), "digits")
    assert found["metric"] == "accuracy"  # of the clients
    summary = json.loads((finished / "summary.json").read_text())
    assert found["test"]["accuracy"] == pytest.approx(summary["final"]["accuracy"])
    assert found["test"]["loss"] == pytest.approx(summary["final"]["loss"])
    # The same by hand: 12 clients, so the worst tenth is one of them.
    settings = config.load(finished / "config.toml")
    data = world.federated_data(settings)
    model = world.initial_model(settings, data)
    model.load_state_dict(package.load(finished).state_dict())
    right = []
    for client in range(12):
        inputs, targets = data.client(client)
        right.append(float((model(inputs).argmax(dim=1) == targets).float().mean()))
    assert found["clients"]["mean"] == pytest.approx(sum(right) / 12)
    assert found["clients"]["min"] == found["clients"]["worst_decile"] == pytest.approx(min(right))


def test_clients_of_a_network_keep_their_data(pisces: Callable[..., Any], finished: Path) -> None:
    (finished / "clients.jsonl").touch()
    found = json.loads(pisces("evaluate", finished, "--json").out)
    assert found["test"]["accuracy"] > 0
    assert found["clients"] is None
    assert "is theirs" in pisces("evaluate", finished).out


def test_the_table(pisces: Callable[..., Any], finished: Path) -> None:
    ran = pisces("evaluate", finished)
    assert (ran.code, ran.err) == (0, "")
    assert "pisces (seed 1) on digits" in ran.out
    for label in ("test accuracy", "worst tenth of clients, mean", "worst client"):
        assert label in ran.out


def test_a_run_that_started_from_weights_since_deleted(
    pisces: Callable[..., Any], small: str, finished: Path
) -> None:
    changes = ("--set", f"model.weights={finished}", "--set", "stop.time_s=5")
    assert pisces("run", small, *changes, "--out", "second", "-q").code == 0
    (finished / "model.safetensors").unlink()
    assert pisces("evaluate", "second").code == 0


def test_another_dataset(pisces: Callable[..., Any], finished: Path) -> None:
    ran = pisces("evaluate", finished, "--data", "mnist")
    assert ran.code == 2
    assert "mnist is not there" in ran.err
    ran = pisces("evaluate", finished, "--data", "digit")
    assert "data.dataset: must be one of digits," in ran.err


def test_a_run_without_a_model(pisces: Callable[..., Any], finished: Path) -> None:
    (finished / "model.safetensors").unlink()
    ran = pisces("evaluate", finished)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error: runs/first has no model.safetensors, which a run writes at its end: finish it\n"
    )


def test_a_run_made_from_python(pisces: Callable[..., Any], folder: Path) -> None:
    pair = (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
    package.simulate(
        "fedavg",
        model=torch.nn.Linear(2, 2),
        clients=[pair, pair],
        test=pair,
        concurrency=2,
        stop=package.Stop(versions=1),
        out=folder / "r",
    )
    ran = pisces("evaluate", "r")
    assert ran.code == 2
    assert "r was made from Python, with a model of its own: load it there with" in ran.err

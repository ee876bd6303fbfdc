"""Training and whole runs over two nodes. Run by `test_cluster.py`, in a network of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest
import ray
from cluster_nodes import (
    CONFIG,
    RECIPE,
    actors,
    assert_as_in_sequence,
    begun,
    layers,
    nodes,
    pisces,
    some_data,
    tasks_of,
    until,
)
from torch import nn

from pisces.cluster.ray import RayCluster
from pisces.errors import ConfigError
from pisces.train.ray import RayTrainer

LONG = "stop.versions=100000"


@pytest.fixture(scope="module", autouse=True)
def two_nodes() -> Iterator[Any]:
    with nodes(1, 1) as made:
        yield made


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "fl.toml"
    path.write_text(CONFIG)
    return path


@ray.remote
class Keeper:
    """Owns what it puts into the cluster."""

    def put(self, thing: Any) -> list[Any]:
        return [ray.put(thing)]


def log_of(run: Path) -> bytes:
    return (run / "events.jsonl").read_bytes()


def test_results_are_the_sequential_trainers_though_workers_die_and_objects_are_lost(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    own = nn.CrossEntropyLoss(reduction="none")
    data = some_data()
    cluster = RayCluster("auto")
    # What no other process could find by its name.
    trainer = RayTrainer(cluster, layers(), data, lambda *both: own(*both), RECIPE)
    try:
        tasks = tasks_of(12)
        assert_as_in_sequence(list(trainer.train(tasks)), data, tasks)
        assert len(cluster.nodes()) == len(actors()) == 2
        tasks = tasks_of(1000, shift=0.5)
        found = trainer.train(tasks)
        some = [next(found)]
        victim = actors()[0]
        os.kill(victim, signal.SIGKILL)
        assert_as_in_sequence([*some, *found], data, tasks)
        until(lambda: victim not in actors())
        assert "a worker process died while training client" in caplog.text
        tasks = tasks_of(500, shift=0.25)
        keeper = Keeper.options(num_cpus=0).remote()
        monkeypatch.setattr(cluster, "put", lambda thing: ray.get(keeper.put.remote(thing))[0])
        found = trainer.train(tasks)
        some = [next(found)]
        monkeypatch.undo()
        ray.kill(keeper)  # and what it owned is lost
        assert_as_in_sequence([*some, *found], data, tasks)
        assert "something was lost in the cluster, and is put there again" in caplog.text
    finally:
        trainer.close()
    assert not ray.is_initialized()
    until(lambda: not actors(), "all of them end")
    assert capfd.readouterr().out == ""  # is for what a command has to say


def test_a_run_is_the_same_as_by_a_pool_byte_by_byte(config: Path, tmp_path: Path) -> None:
    on_ray, here = tmp_path / "ray", tmp_path / "pool"
    pisces("run", config, "-q", "--set", "train.backend=ray", "--out", on_ray)
    pisces("run", config, "-q", "--set", "train.backend=pool", "--out", here)
    assert log_of(on_ray) == log_of(here)
    model = "model.safetensors"
    assert (on_ray / model).read_bytes() == (here / model).read_bytes()
    assert '"trained_by": "ray (one by one on cpu)"' in (on_ray / "summary.json").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_however_a_run_ends_no_worker_is_left_and_it_goes_on(
    config: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    settings = ["--set", "train.backend=ray", "--set", LONG, "--set", "stop.time_s=none"]
    saving = ["--set", "checkpoint.every_s=0.2"]
    with begun("run", config, "-q", *settings, *saving, "--out", run) as process:
        checkpoints = run / "checkpoints"
        until(lambda: checkpoints.exists() and any(checkpoints.iterdir()), "it is saved")
        assert len(actors()) == 2
        os.kill(process.pid, number)
        code = process.wait(60)
    assert code == {signal.SIGINT: 130, signal.SIGKILL: -9}[number]
    until(lambda: not actors(), "all workers end")
    versions = 1 + max(log_of(run).count(b'"kind":"aggregated"'), 1)
    again = ["--set", "train.backend=pool", "--set", f"stop.versions={versions}"]
    pisces("resume", run, "-q", *again)  # by other hands
    whole = tmp_path / "whole"
    changes = ["--set", "stop.time_s=none", *saving]
    pisces("run", config, "-q", *again, *changes, "--out", whole)
    assert log_of(run) == log_of(whole)


def test_whole_runs_are_made_on_the_cluster(config: Path, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    words = ["compare", config, "--protocols", "pisces,fedbuff", "--seeds", "1"]
    told = pisces(*words, "--json", "--ray", "auto", "--out", there)
    pisces(*words, "-q", "--out", here)
    runs = ["pisces-seed1", "fedbuff-seed1"]
    assert [log_of(there / run) for run in runs] == [log_of(here / run) for run in runs]
    files = [sorted(p.name for p in (at / runs[0]).iterdir()) for at in (there, here)]
    assert files[0] == files[1]
    assert '"pisces"' in told.stdout
    until(lambda: not actors(), "all workers end")
    assert not list(Path(gettempdir()).glob("pisces-run-*")), "what a worker wrote is gone"
    with pytest.raises(AssertionError, match="leave out one of the two"):
        pisces(*words, "--ray", "auto", "--set", "train.backend=ray")


def test_what_cannot_be_reached_is_said() -> None:
    with pytest.raises(ConfigError, match="must be auto, local, HOST:PORT or ray://HOST:PORT"):
        RayCluster("nowhere")
    with pytest.raises(ConfigError, match=r"no Ray cluster at '127.0.0.1:9' \(Connection refused"):
        RayCluster("127.0.0.1:9")
    assert not ray.is_initialized()

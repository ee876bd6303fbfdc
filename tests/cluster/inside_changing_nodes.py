"""Nodes that die and join. Run by `test_cluster.py`, in a network of its own."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from cluster_nodes import (
    CONFIG,
    RECIPE,
    actors,
    add,
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

from pisces.cluster.base import Share
from pisces.cluster.ray import RayCluster
from pisces.train.base import Outcome
from pisces.train.ray import RayTrainer

per_sample = nn.CrossEntropyLoss(reduction="none")


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    yield
    until(lambda: not actors(), "all workers end")


def log_of(run: Path) -> bytes:
    return (run / "events.jsonl").read_bytes()


def test_what_a_lost_node_had_is_done_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    data = some_data()
    with nodes(1) as made:
        other = add(made, 2)
        cluster = RayCluster("auto")
        trainer = RayTrainer(cluster, layers(), data, per_sample, RECIPE)
        warm = tasks_of(6)
        assert_as_in_sequence(list(trainer.train(warm)), data, warm)
        tasks = tasks_of(1500, shift=0.5)
        found: list[Outcome] = []
        for outcome in trainer.train(tasks):
            found.append(outcome)
            if len(found) == 50:
                threading.Thread(
                    target=made.remove_node, args=(other,), kwargs={"allow_graceful": False}
                ).start()
        assert_as_in_sequence(found, data, tasks)
        until(lambda: len(cluster.nodes()) == 1)
        list(trainer.train(warm))  # it looks who is there
        trainer.close()
    assert "of the cluster is lost" in caplog.text


def test_a_node_that_joins_is_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pisces")
    data = some_data()
    with nodes(1) as made:
        trainer = RayTrainer(RayCluster("auto"), layers(), data, per_sample, RECIPE)
        warm = tasks_of(6)
        list(trainer.train(warm))
        assert len(actors()) == 1
        add(made, 2)
        tasks = tasks_of(20, shift=0.5)
        assert_as_in_sequence(list(trainer.train(tasks)), data, tasks)
        until(lambda: list(trainer.train(warm)) and len(actors()) == 3, "three workers")
        assert "has joined the cluster" in caplog.text
        assert len({hired.node for hired in trainer._staff.hired}) == 2
        trainer.close()


def test_over_rays_client(tmp_path: Path) -> None:
    data = some_data()
    config = tmp_path / "fl.toml"
    config.write_text(CONFIG)
    with nodes(2) as made:
        server = ["--address", made.address, "--host", "127.0.0.1", "--port", "10001"]
        command = [sys.executable, "-m", "ray.util.client.server", *server]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: _listens(10001), "the client's server listens")
            trainer = RayTrainer(
                RayCluster("ray://127.0.0.1:10001"), layers(), data, per_sample, RECIPE
            )
            tasks = tasks_of(20)
            assert_as_in_sequence(list(trainer.train(tasks)), data, tasks)
            trainer.close()
            until(lambda: not actors(), "all workers end")
            on_ray, here = tmp_path / "ray", tmp_path / "pool"
            far = ["--set", "train.backend=ray", "--set", "train.ray.address=ray://127.0.0.1:10001"]
            pisces("run", config, "-q", *far, "--out", on_ray)
            pisces("run", config, "-q", "--out", here)
            assert log_of(on_ray) == log_of(here)
        finally:
            process.terminate()
            process.wait(30)


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_a_whole_run_begins_anew_where_its_node_is_lost(tmp_path: Path) -> None:
    config = tmp_path / "fl.toml"
    config.write_text(CONFIG.replace("versions = 30", "versions = 1500"))
    there, here = tmp_path / "there", tmp_path / "here"
    words = ["compare", config, "--protocols", "fedbuff", "--seeds", "1-2", "-q"]
    words += ["--set", "stop.time_s=none"]
    pisces(*words, "--out", here)
    with nodes(1) as made:
        other = add(made, 1)
        with begun(*words, "--ray", "auto", "--out", there) as process:
            logs = [there / f"fedbuff-seed{seed}" / "events.jsonl" for seed in (1, 2)]
            until(lambda: all(log.exists() for log in logs), "both are under way")
            made.remove_node(other, allow_graceful=False)
            assert process.wait(120) == 0
    for log in logs:
        assert log.read_bytes() == log_of(here / log.parent.name)


def test_a_comparison_on_the_cluster_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    config = tmp_path / "fl.toml"
    config.write_text(CONFIG.replace("versions = 30", "versions = 3000"))
    there, here = tmp_path / "there", tmp_path / "here"
    words = ["compare", config, "--protocols", "fedbuff", "--seeds", "1-3", "-q"]
    words += ["--set", "stop.time_s=none"]
    with nodes(2):
        with begun(*words, "--ray", "auto", "--out", there) as process:
            log = there / "fedbuff-seed1" / "events.jsonl"
            until(lambda: log.exists() and log.stat().st_size > 0, "a run is under way")
            os.kill(process.pid, signal.SIGINT)
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 130, said
        summary = json.loads((log.parent / "summary.json").read_text())
        assert summary["reason"] == "interrupted"
        until(lambda: not actors(), "all workers end")
        pisces(*words, "--ray", "auto", "--out", there)
    pisces(*words, "--out", here)
    for seed in (1, 2, 3):
        assert log_of(there / f"fedbuff-seed{seed}") == log_of(here / f"fedbuff-seed{seed}")


def test_one_cluster_for_two_and_a_share_that_is_too_large() -> None:
    data = some_data()
    with nodes(2):
        ray.init("auto", log_to_driver=False)  # somebody else's
        try:
            cluster = RayCluster("auto")
            assert cluster.room(Share()) == 2
            assert cluster.room(Share(cpus=0.5)) == 4
            assert cluster.room(Share(cpus=3)) == 0
            assert cluster.room(Share(gpus=1)) == 0
            trainer = RayTrainer(cluster, layers(), data, per_sample, RECIPE, workers=1)
            tasks = tasks_of(5)
            assert_as_in_sequence(list(trainer.train(tasks)), data, tasks)
            trainer.close()
            assert ray.is_initialized()  # and is left open
            until(lambda: not actors(), "ours have ended")
        finally:
            ray.shutdown()

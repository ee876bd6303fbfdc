"""`pisces.server.serve`: weights and a hook of one's own, clients over a real socket."""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import safetensors.numpy
from guests import STEP, Guest, guests

from pisces import build, hosting
from pisces.errors import ConfigError, RunError
from pisces.execute.network.server.terms import Terms
from pisces.execute.network.trust.certs import create
from pisces.record.reader import Run
from pisces.record.writer import CLIENTS
from pisces.replaying import replay
from pisces.resuming import Job
from pisces.server import Served, arrays_of, serve, weights_of
from pisces.stop import Stop
from pisces.tables import Network

START = {
    "layer.w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "norm.running_mean": np.full(2, 5.0, np.float32),
    "layer.b": np.zeros(2, np.float32),
}
FAST = Terms(linger_s=1.0, at_least=2)


def served(num: int = 2, **how: Any) -> tuple[Served, list[Guest]]:
    """A run of FedBuff with clients that join when it listens."""
    crowds: list[list[Guest]] = []
    told = {"weights": START, "stop": Stop(versions=3), "concurrency": 2, "terms": FAST}
    told |= {"settings": {"buffer_size": 2}, "listen": "127.0.0.1:0", "insecure": True}
    with ExitStack() as stack:

        def come(address: str) -> None:
            crowds.append(stack.enter_context(guests(address, num, how.get("certs"))))

        came = serve("fedbuff", ready=come, **{**told, **how})
    return came, crowds[0]


def mean(weights: Mapping[str, np.ndarray]) -> Mapping[str, float]:
    return {"mean": float(weights["layer.b"].mean())}


def test_weights_go_out_and_come_back(tmp_path: Path) -> None:
    came, crowd = served(
        evaluate=mean, out=tmp_path / "run", told={"hello": "you"}, buffers=["norm.running_mean"]
    )
    assert [*came.weights] == ["layer.w", "layer.b", "norm.running_mean"]
    for name, array in START.items():
        assert came.weights[name].shape == array.shape
        assert came.weights[name].dtype == np.float32
    # Three versions, each an eighth further on, but for what stale updates count less.
    assert STEP <= came.weights["layer.b"].max() <= 3 * STEP
    run = Run.open(tmp_path / "run")
    assert run.summary["reason"] == "versions"
    assert run.summary["trained_by"] == "clients over the network"
    assert run.summary["final"] == {"mean": pytest.approx(came.weights["layer.b"].mean())}
    assert came.folder == tmp_path / "run"
    saved = safetensors.numpy.load_file(tmp_path / "run" / "model.safetensors")
    assert {name: array.tolist() for name, array in saved.items()} == {
        name: array.tolist() for name, array in came.weights.items()
    }
    for guest in crowd:
        assert guest.welcome is not None
        assert guest.welcome.settings == '{"hello": "you"}'
        assert guest.over is not None
        assert not guest.over.again  # the run is over for good


def test_its_folder_says_what_a_config_says(tmp_path: Path) -> None:
    served(out=tmp_path / "run", deadline_s=60.0)
    config = Run.open(tmp_path / "run").config
    assert config["clients"] == {"concurrency": 2, "deadline_s": 60.0}
    assert config["protocols"]["fedbuff"]["buffer_size"] == 2
    replayed = replay(tmp_path / "run", ["pace.buffer_size=3"])
    assert replayed.recorded.num_aggregations == 3


def test_it_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first, _ = served(out=out)
    again, crowd = served(out=out, resume=True, stop=Stop(versions=5))
    assert (first.summary["versions"], again.summary["versions"]) == (3, 5)
    assert again.summary["num_updates"] >= 2 * 5
    assert all(guest.tasks for guest in crowd)
    with pytest.raises(RunError, match="concurrency was 2, and is 3"):
        served(0, out=out, resume=True, stop=Stop(versions=6), concurrency=3)


@pytest.mark.parametrize("by_server", [True, False])  # `pisces serve --resume`, `pisces resume`
def test_others_are_told_what_goes_on_with_it(tmp_path: Path, by_server: bool) -> None:
    served(out=tmp_path / "run")
    with pytest.raises(RunError, match=r"by pisces\.server\.serve\(\.\.\., resume=True\)"):
        Job.of(tmp_path / "run", served=by_server)


def test_with_certificates_names_are_those_of_the_certificates(tmp_path: Path) -> None:
    authority = create(tmp_path / "certs", "us", 30)
    authority.server(["127.0.0.1"], 30)
    authority.clients(["guest-0", "guest-1"], 30)
    out = tmp_path / "run"
    came, _ = served(certs=tmp_path / "certs", insecure=False, out=out)
    assert came.summary["reason"] == "versions"
    told = [json.loads(line) for line in (out / CLIENTS).read_text().splitlines()]
    assert {line["name"] for line in told if "name" in line} == {"guest-0", "guest-1"}


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="others hear no signals"
)
def test_an_interruption_saves_it_and_clients_hear_that_it_may_come_back(tmp_path: Path) -> None:
    main, seen = threading.get_ident(), list[Guest]()

    def evaluate(weights: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        if weights["layer.b"].any():
            signal.pthread_kill(main, signal.SIGINT)
        return mean(weights)

    how: dict[str, Any] = {"out": tmp_path / "run", "stop": Stop(time_s=60.0)}
    with ExitStack() as stack, pytest.raises(KeyboardInterrupt):
        serve(
            "fedbuff",
            weights=START,
            evaluate=evaluate,
            listen="127.0.0.1:0",
            insecure=True,
            concurrency=2,
            settings={"buffer_size": 2},
            terms=FAST,
            ready=lambda address: seen.extend(stack.enter_context(guests(address, 2))),
            **how,
        )
    assert Run.open(tmp_path / "run").summary["reason"] == "interrupted"
    assert [guest.over and guest.over.again for guest in seen] == [True, True]
    how |= {"stop": Stop(versions=4), "resume": True, "evaluate": mean}
    assert served(**how)[0].summary["reason"] == "versions"


def test_metrics_of_a_run_that_is_served(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def evaluate(weights: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        if weights["layer.b"].any():
            (url,) = [m.split()[-1] for m in caplog.messages if m.startswith("metrics at")]
            told.append(urlopen(url, timeout=10).read().decode())
        return mean(weights)

    with caplog.at_level(logging.INFO, "pisces"):
        served(evaluate=evaluate, metrics="0")
    found = dict(line.rsplit(" ", 1) for line in told[-1].splitlines())
    assert float(found["pisces_version"]) >= 1
    assert float(found["pisces_arrived_total"]) >= 2
    assert float(found["pisces_received_bytes_total"]) > 0


def test_numbers_keep_their_names_and_kinds() -> None:
    arrays = {"a": np.array(1.5), "b": np.zeros((2, 0, 3), np.float32), "c": np.ones(2, np.float32)}
    weights = weights_of(arrays, buffers=("a",))
    assert [(s.name, s.shape, s.dtype, s.role) for s in weights.layout.slices] == [
        ("b", (2, 0, 3), "float32", "parameter"),
        ("c", (2,), "float32", "parameter"),
        ("a", (), "float64", "buffer"),
    ]
    assert weights.flat.tolist() == [1.0, 1.0, 1.5]
    back = arrays_of(weights)
    assert {name: (a.shape, a.dtype) for name, a in back.items()} == {
        name: (a.shape, a.dtype) for name, a in arrays.items()
    }
    back["c"][:] = 7  # a copy
    assert weights.flat.tolist() == [1.0, 1.0, 1.5]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"weights": {}}, "at least one named array"),
        ({"weights": {"w": [1.0]}}, "w must be a numpy array of float32 or float64, not list"),
        ({"weights": {"n": np.arange(3)}}, "n must be a numpy array .*, not int64"),
        ({"weights": {"w": np.full(2, np.nan, np.float32)}}, "w must be finite"),
        ({"weights": {1: np.zeros(2, np.float32)}}, "names must be text, not 1"),
        ({"buffers": ("running_mean",)}, "'running_mean' is none of the weights: layer.w"),
        ({"evaluate": lambda _w: 0.9}, "must tell numbers by name, .* not 0.9"),
        ({"evaluate": lambda _w: {"at": 1.0}}, "may not be called 'at'"),
        ({"stop": Stop(versions=1, target=0.5)}, "nothing is: say how"),
        ({"certs": "certs"}, "exclude each other"),
        ({"listen": "0.0.0.0:0"}, "without certificates a server listens on this machine only"),
        ({"insecure": False, "certs": "nowhere"}, "nowhere"),
        ({"settings": {"buffer": 3}}, "buffer"),
    ],
)
def test_refuses_what_cannot_be(wrong: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=reason):
        served(out=tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def test_policies_of_ones_own_are_left_as_they_were() -> None:
    mine = build.protocol("fedbuff", 2, buffer_size=2)
    with ExitStack() as stack:
        came = serve(
            mine,
            weights=START,
            listen="127.0.0.1:0",
            insecure=True,
            stop=Stop(versions=1),
            terms=FAST,
            ready=lambda address: stack.enter_context(guests(address, 2)),
        )
    assert came.summary["protocol"] == "my policies"
    assert came.folder is None


def test_a_config_without_a_network_table_asks_what_a_server_from_python_does() -> None:
    assert hosting.terms_of(Network()) == Terms()

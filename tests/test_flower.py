"""`pisces.flower` on Flower's own grid in this process: nodes are threads, ClientApps are plain."""

from __future__ import annotations

import logging
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flowerbed import Bed, flowerbed
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg as TheirFedAvg
from postbox import record, reply
from runs import Books

import pisces
from pisces import build, flower
from pisces.errors import ConfigError, FinishedError, PiscesError, RunError
from pisces.execute.flower import courier, evaluation, nodes
from pisces.flower import FedAsync, FedAvg, FedBuff, Losses, Oort, Pisces, Strategy
from pisces.names import PROTOCOLS
from pisces.record.checkpoint import Checkpoints
from pisces.record.reader import Run
from pisces.replaying import replay
from pisces.stop import Stop

# Each task moves the weights by 1/8, so a version is at most that much further.
STEP = 0.125
START = {
    "norm.running_mean": np.full(2, 5.0, np.float32),
    "layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "norm.num_batches_tracked": np.array(3, np.int64),
    "layer.bias": np.zeros(2, np.float32),
}
in_main = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="others hear no signals"
)
METRICS = {"num-examples": 10, "train_loss": 1.0, "loss-rms": 1.25, "loss-left": 0.25}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "LOOK_S", 0.05)
    monkeypatch.setattr(courier, "QUICKEST_S", 0.005)
    monkeypatch.setattr(nodes, "REST_S", 0.3)
    monkeypatch.setattr(evaluation, "ASK_S", 0.01)


def app(delay_s: float = 0.005, seen: list[Message] | None = None, **metrics: Any) -> ClientApp:
    """A ClientApp that knows nothing of Pisces."""
    made = ClientApp()

    @made.train()
    def train(message: Message, _context: Any) -> Message:
        if seen is not None:
            seen.append(message)
        time.sleep(delay_s)
        told = {**METRICS, **metrics}
        return Message(reply(message, by=STEP, metrics=told), reply_to=message)

    @made.evaluate()
    def evaluate(message: Message, _context: Any) -> Message:
        if seen is not None:
            seen.append(message)
        told = {"num-examples": metrics.get("num-examples", 10), "accuracy": delay_s}
        content = reply(message, metrics=told)
        del content["arrays"]
        return Message(content, reply_to=message)

    return made


def bias(version: int, arrays: ArrayRecord) -> MetricRecord:
    """How far it is: what every test can foretell."""
    return MetricRecord({"accuracy": float(arrays["layer.bias"].numpy().mean()), "v": version})


def start(strategy: Strategy, bed: Bed, num_rounds: int = 4, **more: Any) -> Any:
    return strategy.start(bed.grid, record(**START), num_rounds=num_rounds, **more)


@pytest.fixture
def bed() -> Iterator[Bed]:
    with flowerbed(app(), app(), app()) as made:
        yield made


def plain(metrics: dict[int, MetricRecord]) -> dict[int, dict[str, Any]]:
    return {version: dict(record) for version, record in metrics.items()}


def lawful(out: Path, concurrency: int) -> list[dict[str, Any]]:
    """The log, which obeys the laws of every run; evaluations come when they are done."""
    lines, books = list(Run.open(out).events()), Books(concurrency)
    for line in lines:
        if line["kind"] != "evaluated":
            assert line["at"] >= books.now, f"time ran backwards: {line}"
            books.now = line["at"]
            getattr(books, line["kind"])(line)
    assert not books.running
    assert not books.buffer
    assert len(books.ends) == 1
    return lines


# --- Result ---------------------------------------------------------------------------------------


def test_a_result_as_flowers_own_strategies_give_it(bed: Bed) -> None:
    asked: list[int] = []

    def evaluate(version: int, arrays: ArrayRecord) -> MetricRecord:
        asked.append(version)
        return bias(version, arrays)

    result = start(Pisces(2), bed, 4, evaluate_fn=evaluate)
    assert [*result.arrays] == [*START]  # in the app's own order
    for name, array in START.items():
        found = result.arrays[name].numpy()
        assert (found.shape, found.dtype) == (array.shape, array.dtype)
    assert result.arrays["norm.num_batches_tracked"].numpy() == 3
    gained = result.arrays["layer.bias"].numpy()
    assert STEP <= gained.max() <= 4 * STEP
    assert np.allclose(result.arrays["layer.weight"].numpy(), START["layer.weight"] + gained[0])
    assert asked == sorted({*asked})  # once each; where it is slow, some are left out
    assert (asked[0], asked[-1]) == (0, 4)
    served = plain(result.evaluate_metrics_serverapp)
    assert [*served] == asked
    assert served[0] == {"accuracy": 0.0, "v": 0}
    assert served[4] == {"accuracy": pytest.approx(gained.mean()), "v": 4}
    trained = plain(result.train_metrics_clientapp)
    assert [*trained] == [1, 2, 3, 4]
    assert trained[1] == {"train_loss": 1.0, "loss-rms": 1.25, "loss-left": 0.25}
    assert result.evaluate_metrics_clientapp == {}


def learning(number: int, num_examples: int) -> ClientApp:
    """A node whose results nobody can tell from another's by chance."""
    made = ClientApp()

    @made.train()
    def train(message: Message, _context: Any) -> Message:
        rng, sent = np.random.default_rng(number), message.content["arrays"]
        arrays = {
            name: array.numpy() * 0.9 + rng.normal(size=array.shape)
            if array.dtype.startswith("float")
            else array.numpy()
            for name, array in sent.items()
        }
        made = {n: Array(np.asarray(v, sent[n].dtype)) for n, v in arrays.items()}
        told = {
            "num-examples": num_examples,
            "train_loss": 0.1 * number,
            "each": [1.0, float(number)],
        }
        content = {"arrays": ArrayRecord(made), "metrics": MetricRecord(told)}
        return Message(RecordDict(content), reply_to=message)

    return made


def test_rounds_are_flowers_own() -> None:
    """FedAvg by them and by us: the same arrays, metrics and questions, round by round."""
    initial = record(
        **{name: array for name, array in START.items() if array.dtype.kind == "f"},
        double=np.linspace(0, 1, 3),
        none=np.zeros((0, 2), np.float32),
        one=np.array(1.5, np.float32),
    )
    results, asked = list[Any](), list[dict[int, float]]()
    for strategy in (TheirFedAvg(fraction_evaluate=0.0), FedAvg(3)):
        questions: dict[int, float] = {}

        def evaluate(version: int, arrays: ArrayRecord, to: Any = questions) -> MetricRecord:
            assert version not in to  # once each
            to[version] = float(arrays["layer.weight"].numpy().sum())
            return MetricRecord({"sum": to[version]})

        with flowerbed(*[learning(number, 10 * number) for number in (1, 2, 3)]) as bed:
            results.append(strategy.start(bed.grid, initial, num_rounds=3, evaluate_fn=evaluate))
        asked.append(questions)
    theirs, ours = results
    assert type(theirs) is type(ours)
    assert [*theirs.arrays] == [*ours.arrays]
    for name, array in theirs.arrays.items():
        assert (array.dtype, array.shape) == (ours.arrays[name].dtype, ours.arrays[name].shape)
        np.testing.assert_allclose(array.numpy(), ours.arrays[name].numpy(), rtol=1e-5)
    assert [*asked[0]] == [0, 1, 2, 3]
    assert {0, 3} <= asked[1].keys() <= {0, 1, 2, 3}  # on a busy machine one may be left out
    assert asked[1] == pytest.approx({version: asked[0][version] for version in asked[1]}, rel=1e-5)
    assert {v: m["sum"] for v, m in ours.evaluate_metrics_serverapp.items()} == asked[1]
    expected, found = plain(theirs.train_metrics_clientapp), plain(ours.train_metrics_clientapp)
    assert [*expected] == [*found] == [1, 2, 3]
    for version, metrics in expected.items():
        assert [*metrics] == [*found[version]]
        for name, value in metrics.items():
            assert found[version][name] == pytest.approx(value)
    assert theirs.evaluate_metrics_clientapp == ours.evaluate_metrics_clientapp == {}


def test_train_metrics_are_weighted() -> None:
    with flowerbed(
        app(**{"num-examples": 10, "acc": 0.2}), app(**{"num-examples": 30, "acc": 0.6})
    ) as bed:
        result = start(FedAvg(2), bed, 1)
        # (10 * 0.2 + 30 * 0.6) / 40; so are the weights, but both moved alike
        assert plain(result.train_metrics_clientapp)[1]["acc"] == pytest.approx(0.5)


def test_metrics_can_be_put_together_by_the_app(bed: Bed) -> None:
    def count(contents: list[Any], _key: str) -> MetricRecord:
        return MetricRecord({"num": len(contents)})

    strategy = FedAvg(
        3, train_metrics_aggr_fn=count, evaluate_metrics_aggr_fn=count, fraction_evaluate=1.0
    )
    result = start(strategy, bed, 2)
    assert plain(result.train_metrics_clientapp) == {1: {"num": 3}, 2: {"num": 3}}
    assert plain(result.evaluate_metrics_clientapp) == {2: {"num": 3}}


def test_an_app_may_have_nothing_to_put_together(bed: Bed) -> None:
    def nothing(_contents: list[Any], _key: str) -> None:
        return None

    strategy: Any = FedAvg(
        3, train_metrics_aggr_fn=nothing, evaluate_metrics_aggr_fn=nothing, fraction_evaluate=1.0
    )
    result = start(strategy, bed, 2)  # as Flower's own: there is no entry
    assert (result.train_metrics_clientapp, result.evaluate_metrics_clientapp) == ({}, {})


def test_nodes_evaluate_the_last_version_if_asked() -> None:
    seen: list[Message] = []
    with flowerbed(app(0.0, seen), app(0.02, seen, **{"num-examples": 30})) as bed:
        result = start(
            FedBuff(2, fraction_evaluate=1.0),
            bed,
            3,
            train_config=ConfigRecord({"lr": 0.1}),
            evaluate_config=ConfigRecord({"batch": 8}),
        )
    # (10 * 0.0 + 30 * 0.02) / 40
    assert plain(result.evaluate_metrics_clientapp) == {3: {"accuracy": pytest.approx(0.015)}}
    trained = [m for m in seen if m.metadata.message_type == "train"]
    asked = [m for m in seen if m.metadata.message_type == "evaluate"]
    assert {(*dict(m.content["config"]),) for m in trained} == {("lr", "server-round")}
    assert [dict(m.content["config"]) for m in asked] == [{"batch": 8, "server-round": 3}] * 2
    assert trained[0].content["config"]["server-round"] == 1


def test_evaluate_fn_may_have_nothing_to_say(bed: Bed) -> None:
    def now_and_then(version: int, arrays: ArrayRecord) -> MetricRecord | None:
        return bias(version, arrays) if version % 2 else None

    result = start(Pisces(2), bed, 3, evaluate_fn=now_and_then)
    served = {*result.evaluate_metrics_serverapp}
    assert 3 in served  # the last is asked for in any case
    assert served <= {1, 3}
    result = start(Pisces(2), bed, 2, evaluate_fn=lambda _v, _a: None)
    assert result.evaluate_metrics_serverapp == {}


def test_how_often_is_evaluated_can_be_said(bed: Bed) -> None:
    asked: list[int] = []

    def evaluate(version: int, arrays: ArrayRecord) -> MetricRecord:
        asked.append(version)
        return bias(version, arrays)

    start(Pisces(2, schedule=pisces.Schedule(every_versions=100)), bed, 5, evaluate_fn=evaluate)
    assert asked == [0, 5]


def test_trackers_and_progress_are_those_of_every_run(
    bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strategy = Pisces(2, out=tmp_path / "run", trackers=["csv"], progress=True)
    start(strategy, bed, 3, evaluate_fn=bias)
    assert [*(tmp_path / "run").glob("**/*.csv")]
    said = capsys.readouterr()
    assert "finished (versions)" in said.out + said.err


def test_its_folder_says_what_a_config_says(bed: Bed, tmp_path: Path) -> None:
    told = {"lr": 0.1, "key": b"\x00\xff", "keys": [b"a", b"b"], "a.b": 'it\'s "so"\n'}
    strategy = FedBuff(2, settings={"buffer_size": 2}, out=tmp_path / "run")
    start(strategy, bed, 3, timeout=60.0, train_config=ConfigRecord(told))
    run = Run.open(tmp_path / "run")
    assert run.config["clients"] == {"concurrency": 2, "deadline_s": 60.0}
    assert run.config["protocols"]["fedbuff"]["buffer_size"] == 2
    assert run.config["train_config"] == {**told, "key": "00ff", "keys": ["61", "62"]}
    assert run.config["stop"]["versions"] == 3
    replayed = replay(run, ["pace.buffer_size=3"])
    assert replayed.replayed.num_aggregations < replayed.recorded.num_aggregations == 3


def test_the_folder_of_policies_of_ones_own_says_how_many_run_at_once(
    bed: Bed, tmp_path: Path
) -> None:
    own = build.protocol("fedbuff", 2, buffer_size=2)
    start(Strategy(2, protocol=own, out=tmp_path / "run"), bed, 2)
    config = Run.open(tmp_path / "run").config
    assert (config["protocol"], config["clients"]["concurrency"]) == ("my policies", 2)
    assert "protocols" not in config


def test_keys_are_the_apps_own() -> None:
    made = ClientApp()

    @made.train()
    def train(message: Message, _context: Any) -> Message:
        assert [*message.content] == ["model", "settings"]
        content = reply(message, arrays=message.content["model"], metrics={"n": 4, "l": 2.0})
        return Message(content, reply_to=message)

    @made.evaluate()
    def evaluate(message: Message, _context: Any) -> Message:
        told = {"n": 4, "found": len([*message.content["model"]]), "num": len(message.content)}
        assert [*message.content["settings"]] == ["server-round"]
        return Message(RecordDict({"any": MetricRecord(told)}), reply_to=message)

    keys: Any = {"arrayrecord_key": "model", "configrecord_key": "settings", "weighted_by_key": "n"}
    with flowerbed(made, made) as bed:
        result = start(Pisces(2, loss="l", fraction_evaluate=1.0, **keys), bed, 2)
    assert plain(result.train_metrics_clientapp)[2] == {"l": 2.0}
    assert plain(result.evaluate_metrics_clientapp) == {2: {"found": len(START), "num": 2}}


# --- when it is over ------------------------------------------------------------------------------


def reason(out: Path) -> str:
    return str(Run.open(out).summary["reason"])


@pytest.mark.parametrize(
    ("stop", "why"),
    [
        (Stop(target=2 * STEP), "target"),
        (Stop(time_s=0.5), "time"),
        (Stop(updates=7), "updates"),
        (Stop(patience=3, metric="still"), "patience"),
        (Stop(), "versions"),
    ],
)
def test_stops(bed: Bed, tmp_path: Path, stop: Stop, why: str) -> None:
    def evaluate(version: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({**bias(version, arrays), "still": 1.0})

    num_rounds = 5 if why == "versions" else 100_000
    result = start(
        Pisces(2, stop=stop, out=tmp_path / "run"), bed, num_rounds, evaluate_fn=evaluate
    )
    assert reason(tmp_path / "run") == why
    reached = max(m["accuracy"] for m in result.evaluate_metrics_serverapp.values())
    if why == "target":
        assert reached >= 2 * STEP
    if why == "versions":
        assert max(result.evaluate_metrics_serverapp) == 5


# --- any protocol ---------------------------------------------------------------------------------

# They ask running clients for what there is, which Flower's cannot be asked for.
IMPOSSIBLE = {"port"}


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_any_protocol_by_name(protocol: str, tmp_path: Path) -> None:
    with flowerbed(*[app(0.003 * (n + 1)) for n in range(4)]) as bed:
        strategy = Strategy(2, protocol=protocol, stop=Stop(time_s=60.0), out=tmp_path / "run")
        if protocol in IMPOSSIBLE:
            with pytest.raises(ConfigError, match="choose another protocol"):
                start(strategy, bed, 2, evaluate_fn=bias)
            assert not (tmp_path / "run").exists()
            return
        result = start(strategy, bed, 2, evaluate_fn=bias)
    assert result.arrays["layer.bias"].numpy().max() > 0
    assert reason(tmp_path / "run") == "versions"
    lawful(tmp_path / "run", 4 if protocol in ("fedavg", "oort") else 2)  # some over-select


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (Pisces, "pisces"),
        (FedBuff, "fedbuff"),
        (FedAsync, "fedasync"),
        (Oort, "oort"),
        (FedAvg, "fedavg"),
    ],
)
def test_those_with_a_name_of_their_own(made: type[Strategy], name: str) -> None:
    assert made().protocol == name
    assert made(7).concurrency == made(concurrency=7).concurrency == 7
    assert Strategy().protocol == "pisces"


def test_settings_and_policies_of_ones_own(bed: Bed, tmp_path: Path) -> None:
    start(FedBuff(3, settings={"buffer_size": 3}, out=tmp_path / "run"), bed, 2)
    lines = Run.open(tmp_path / "run").events()
    made = [line for line in lines if line["kind"] == "aggregated"]
    assert [len(line["tasks"]) for line in made] == [3, 3]
    mine = pisces.protocol("fedbuff", 2, buffer_size=1)
    strategy = Strategy(2, protocol=mine)
    for _ in range(2):
        start(strategy, bed, 2)


def test_what_policies_remember_of_one_run_is_not_the_next_ones(bed: Bed) -> None:
    mine = pisces.protocol("fadas", 2)
    before = dict(mine.aggregator.state().arrays)
    start(Strategy(2, protocol=mine), bed, 3)
    assert mine.aggregator.state().arrays.keys() == before.keys()


def test_the_seed_is_the_runs(bed: Bed, tmp_path: Path) -> None:
    start(Pisces(2, seed=7, out=tmp_path / "run"), bed, 1)
    assert Run.open(tmp_path / "run").summary["seed"] == 7


def test_plans_are_told(tmp_path: Path) -> None:
    seen: list[Message] = []
    with flowerbed(app(0.0, seen), app(0.0, seen)) as bed:
        start(Pisces(2, plan=pisces.Plan(proximal=0.5, max_steps=9)), bed, 1)
    told = dict(seen[0].content["config"])
    assert told == {"server-round": 1, "proximal-mu": 0.5, "max-steps": 9}


# --- run folders ----------------------------------------------------------------------------------


def test_a_run_folder_as_everywhere(bed: Bed, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    start(Pisces(2, out=out), bed, 3, evaluate_fn=bias)
    run = Run.open(out)
    assert run.summary["trained_by"] == "nodes of a Flower federation"
    assert run.summary["versions"] == 3
    assert {line["kind"] for line in run.events()} >= {"joined", "started", "arrived", "aggregated"}
    assert any((out / "checkpoints").iterdir())
    loaded = pisces.load(out)
    assert loaded.summary["protocol"] == "pisces"
    done = subprocess.run(
        [sys.executable, "-m", "pisces", "report", str(out)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "pisces" in done.stdout


def test_a_finished_folder_says_so_and_goes_on_with_more_rounds(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "run"
    start(Pisces(2, out=out), bed, 2, evaluate_fn=bias)
    with pytest.raises(
        FinishedError, match=r"is finished \(versions\); .* or num_rounds, or take another"
    ):
        start(Pisces(2, out=out), bed, 2, evaluate_fn=bias)
    result = start(Pisces(2, out=out), bed, 4, evaluate_fn=bias)
    served = [*result.evaluate_metrics_serverapp]
    assert (served[0], served[-1]) == (0, 4)
    assert 2 in served  # also what was before
    with pytest.raises(RunError, match="concurrency was 2, and is 3"):
        start(Pisces(3, out=out), bed, 9, evaluate_fn=bias)
    assert [*start(Pisces(2, out=out), bed, 5).train_metrics_clientapp] == [5]


def test_a_folder_that_is_something_else_is_left_alone(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty"):
        start(Pisces(2, out=tmp_path), bed, 2)
    assert (tmp_path / "precious.txt").read_text() == "mine"


class Killed(BaseException):
    """The ServerApp's process is gone."""


def killed(bed: Bed, out: Path, after: int, how: Any, **more: Any) -> None:
    """A ServerApp that does not come to its end: `how` happens when so many versions are there."""

    def evaluate(version: int, arrays: ArrayRecord) -> MetricRecord:
        if version >= after:
            how()
        return bias(version, arrays)

    strategy = Pisces(2, out=out, **more)
    strategy.start(bed.grid, record(**START), num_rounds=100_000, evaluate_fn=evaluate)


def raise_killed() -> None:
    raise Killed


@in_main
def test_ctrl_c_then_a_new_run_of_flowers_goes_on(bed: Bed, tmp_path: Path) -> None:
    out, main = tmp_path / "run", threading.get_ident()
    with pytest.raises(KeyboardInterrupt):
        killed(bed, out, 3, lambda: signal.pthread_kill(main, signal.SIGINT))
    at_first = Run.open(out).summary["versions"]
    assert at_first >= 3
    bed.grid = bed.new_run()  # of the messages before it nothing is known
    other = {
        name: array + 100 if array.dtype.kind == "f" else array for name, array in START.items()
    }
    result = Pisces(2, out=out).start(
        bed.grid, record(**other), num_rounds=at_first + 3, evaluate_fn=bias
    )
    assert result.arrays["layer.bias"].numpy().max() < 100  # it went on, and did not begin anew
    served = [*result.evaluate_metrics_serverapp]
    assert (served[0], served[-1]) == (0, at_first + 3)
    lines = lawful(out, 2)
    versions = [line["version"] for line in lines if line["kind"] == "aggregated"]
    assert versions == list(range(1, at_first + 4))


@in_main
def test_ctrl_c_before_there_are_nodes_enough(tmp_path: Path) -> None:
    out, main = tmp_path / "run", threading.get_ident()
    with flowerbed(app()) as bed:
        timer = threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            start(Pisces(2, out=out), bed, 3)
        timer.join()
        bed.add(app())
        bed.grid = bed.new_run()
        result = start(Pisces(2, out=out), bed, 3)
    assert [*result.train_metrics_clientapp] == [1, 2, 3]
    lawful(out, 2)


@in_main
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_flower_hears_of_a_signal_when_all_is_safe(bed: Bed, tmp_path: Path, number: int) -> None:
    out, main, heard = tmp_path / "run", threading.get_ident(), list[Any]()

    def exit_gracefully(signum: int, _frame: Any) -> None:  # as Flower's own handler does
        heard.append((signum, reason(out)))
        raise SystemExit

    before = signal.signal(number, exit_gracefully)
    try:
        with pytest.raises(SystemExit):
            killed(bed, out, 3, lambda: signal.pthread_kill(main, number))
        assert signal.getsignal(number) is exit_gracefully
    finally:
        signal.signal(number, before)
    assert heard == [(number, "interrupted")]


@pytest.mark.parametrize("every_s", [0.05, 1e6])  # with checkpoints on the way, and without any
def test_a_killed_server_app_goes_on_and_loses_nothing(
    bed: Bed, tmp_path: Path, every_s: float
) -> None:
    out = tmp_path / "run"
    with pytest.raises(Killed):
        killed(bed, out, 5, raise_killed, checkpoints=Checkpoints(every_s))
    before = [line for line in Run.open(out).events() if line["kind"] == "arrived"]
    assert len(before) >= 3
    bed.grid = bed.new_run()
    other = {
        name: array + 100 if array.dtype.kind == "f" else array for name, array in START.items()
    }
    result = Pisces(2, out=out).start(bed.grid, record(**other), num_rounds=12, evaluate_fn=bias)
    assert STEP <= result.arrays["layer.bias"].numpy().max() < 100  # its own weights
    lines = lawful(out, 2)
    arrived = [(line["task"], line["client"]) for line in lines if line["kind"] == "arrived"]
    told = [(line["task"], line["client"]) for line in before]
    assert arrived[: len(told) - 1] == told[:-1]  # what was heard stays heard


def test_a_server_app_that_goes_on_finds_nodes_gone(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with flowerbed(app(), app(), app(0.2)) as bed:
        with pytest.raises(Killed):
            killed(bed, out, 4, raise_killed)
        bed.nodes[2].leave()
        bed.grid = bed.new_run()
        Pisces(2, out=out).start(bed.grid, record(**START), num_rounds=10, evaluate_fn=bias)
    lines = lawful(out, 2)
    assert any(line["kind"] == "left" for line in lines)


@pytest.mark.parametrize("is_killed", [False, True])  # by a checkpoint, and by the journal alone
def test_how_many_examples_nodes_have_is_known_to_who_goes_on(
    tmp_path: Path, is_killed: bool
) -> None:
    out, clients = tmp_path / "run", [app(**{"num-examples": num}) for num in (30, 10)]

    def joined() -> list[int]:
        return [line["num_examples"] for line in Run.open(out).events() if line["kind"] == "joined"]

    with flowerbed(*clients) as bed:
        if is_killed:
            with pytest.raises(Killed):
                killed(bed, out, 8, raise_killed, checkpoints=Checkpoints(1e6))
        else:
            start(Pisces(2, out=out), bed, 8, evaluate_fn=bias)
        before = joined()
        assert {10, 30} <= {*before}
        bed.grid = bed.new_run()
        start(Pisces(2, out=out), bed, 30, evaluate_fn=bias)
    assert joined() == before  # nobody had to be told of anew


def test_a_node_keeps_its_number_across_server_apps(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with flowerbed(app(), app()) as bed:
        start(Pisces(2, out=out), bed, 2)
        names = (out / "clients.jsonl").read_text()
        bed.add(app())
        bed.grid = bed.new_run()
        start(Pisces(2, out=out), bed, 8)
        assert (out / "clients.jsonl").read_text().startswith(names)
        assert len((out / "clients.jsonl").read_text().splitlines()) == 4


# --- trouble --------------------------------------------------------------------------------------


def failing(how: Any) -> ClientApp:
    made = ClientApp()

    @made.train()
    def train(message: Message, _context: Any) -> Message:
        return Message(how(message), reply_to=message)

    return made


def raising(_message: Message) -> Any:
    raise RuntimeError("no data here")


def test_where_every_node_fails_the_run_is_over_also_when_it_goes_on(tmp_path: Path) -> None:
    strategy = Pisces(2, out=tmp_path / "run", stop=Stop(time_s=20.0))
    with flowerbed(failing(raising), failing(raising)) as bed:
        for _ in range(2):  # whoever starts it again without mending anything
            with pytest.raises(ConfigError, match="every node has failed 3 tasks and more"):
                start(strategy, bed, 3)
            bed.grid = bed.new_run()


@pytest.mark.parametrize("every_s", [0.01, 1e6])  # by a checkpoint, and by the journal alone
def test_nodes_that_answered_before_may_fail_for_a_while(tmp_path: Path, every_s: float) -> None:
    does = {"fails": False}

    def how(message: Message) -> Any:
        if does["fails"]:
            raise RuntimeError("for a while")
        return reply(message, by=STEP, metrics=METRICS)

    out = tmp_path / "run"
    with flowerbed(failing(how), failing(how)) as bed:
        with pytest.raises(Killed):
            killed(bed, out, 4, raise_killed, checkpoints=Checkpoints(every_s))
        at_first = len([x for x in Run.open(out).events() if x["kind"] == "aggregated"])
        does["fails"], bed.grid = True, bed.new_run()
        mended = threading.Timer(1.0, does.update, ({"fails": False},))
        mended.start()
        strategy = Pisces(2, out=out, stop=Stop(time_s=60.0))
        start(strategy, bed, at_first + 8, evaluate_fn=bias)
        mended.join()
    assert reason(out) == "versions"
    failed = [line for line in Run.open(out).events() if line["kind"] == "failed"]
    assert len([line for line in failed if "for a while" in line["reason"]]) >= 2 * 3


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (raising, "no data here"),
        (lambda m: reply(m, by=math.nan, metrics=METRICS), "weights that are not finite"),
        (lambda m: reply(m, arrays=record(w=[1.0]), metrics=METRICS), "its reply cannot be used"),
        (lambda m: reply(m, metrics={"train_loss": 1.0}), "no metric 'num-examples'"),
        (lambda m: reply(m, metrics={**METRICS, "num-examples": 0}), "0 examples, outside"),
        (lambda m: reply(m, metrics={**METRICS, "num-examples": 10**12}), "examples, outside"),
        (lambda m: reply(m, metrics={**METRICS, "train_loss": math.nan}), "loss nan, not a finite"),
    ],
)
def test_one_bad_node_does_not_keep_the_others(tmp_path: Path, how: Any, says: str) -> None:
    with flowerbed(app(), failing(how), app()) as bed:
        bed.add(app())
        result = start(Pisces(3, out=tmp_path / "run"), bed, 12)
    assert np.isfinite(result.arrays["layer.bias"].numpy()).all()
    lines = lawful(tmp_path / "run", 3)
    failed = [line["reason"] for line in lines if line["kind"] == "failed" and "task" in line]
    assert any(says in reason for reason in failed), failed
    joined = {line["client"] for line in lines if line["kind"] == "joined"}
    assert joined == {0, 1, 2, 3}


def test_a_run_of_which_nothing_can_be_used_ends_with_the_reason(tmp_path: Path) -> None:
    """Rather than wait for ever, for nodes that would do better."""
    bad = failing(lambda m: reply(m, by=math.nan, metrics=METRICS))
    with flowerbed(bad, bad) as bed:
        strategy = Pisces(2, out=tmp_path / "run", stop=Stop(time_s=60.0))
        for _ in range(2):  # also where it goes on
            with pytest.raises(ConfigError, match=r"every update .* by: update refused: weights"):
                start(strategy, bed, 3)
            bed.grid = bed.new_run()


def test_whom_a_server_app_that_goes_on_trusts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    does = {"bad": False}

    def how(message: Message) -> Any:
        return reply(message, by=math.nan if does["bad"] else STEP, metrics=METRICS)

    with flowerbed(app(), app(), failing(how)) as bed:
        start(Pisces(3, out=tmp_path / "run"), bed, 6)
        does["bad"], bed.grid = True, bed.new_run()
        start(Pisces(3, out=tmp_path / "run"), bed, 60)
    assert [said for said in caplog.messages if "is not asked any more: it has no" in said]
    assert not [said for said in caplog.messages if "nobody is left who is trusted" in said]


def test_late_nodes_are_not_waited_for(tmp_path: Path) -> None:
    with flowerbed(app(), app(), app(3.0)) as bed:
        began = time.monotonic()
        late = Pisces(3, out=tmp_path / "run", stop=Stop(time_s=2.0))
        start(late, bed, 100_000, timeout=0.3)
        assert time.monotonic() - began < 20.0
    left = [line for line in Run.open(tmp_path / "run").events() if line["kind"] == "left"]
    assert {line["reason"] for line in left} <= {"deadline passed"}
    assert left


def test_a_run_that_flower_stopped_is_no_result(bed: Bed, tmp_path: Path) -> None:
    class Stopped(BaseException):
        """As Flower says it."""

    asked: list[int] = []
    pull = bed.grid.pull_messages

    def pulled(message_ids: Any) -> Any:
        asked.append(1)
        if len(asked) > 20:
            raise Stopped
        return pull(message_ids)

    bed.grid.pull_messages = pulled  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        start(Pisces(2, out=tmp_path / "run"), bed, 100_000)
    bed.grid = bed.new_run()
    start(Pisces(2, out=tmp_path / "run"), bed, 30)  # and it goes on
    lawful(tmp_path / "run", 2)


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"concurrency": 0}, "concurrency: must be a whole number of at least 1, not 0"),
        ({"concurrency": 2.0}, "concurrency: must be a whole number of at least 1, not 2.0"),
        ({"concurrency": True}, "concurrency: must be a whole number of at least 1, not True"),
        ({"min_available_nodes": 0}, "min_available_nodes: must be a whole number of at least 1"),
        ({"fraction_evaluate": 1.5}, "fraction_evaluate: must be a share from 0 to 1, not 1.5"),
        ({"fraction_evaluate": None}, "fraction_evaluate: must be a share from 0 to 1, not None"),
        ({"stop": 3}, "stop: must be a pisces.Stop, not 3"),
        ({"seed": -1}, "seed: must be a whole number of at least 0, not -1"),
        ({"seed": "x"}, "seed: must be a whole number of at least 0, not 'x'"),
        ({"settings": "pace"}, "settings: must be a dict by name, not 'pace'"),
        ({"plan": {}}, "plan: must be a pisces.Plan, not {}"),
        ({"loss": 3}, "loss: must be the name of a record or metric, not 3"),
        ({"weighted_by_key": ""}, "weighted_by_key: must be the name of a record or metric"),
        ({"buffers": "norm.mean"}, "buffers: must be a list of names, not 'norm.mean' alone"),
        ({"out": "runs/here"}, "out: must be a whole path, such as /srv/runs/digits, not 'runs/"),
        ({"out": "~/here"}, "out: must be a whole path"),
        ({"buffer_size": 4}, "buffer_size: no option of Strategy: settings of the protocol go "),
        ({"fraction_train": 0.5}, "fraction_train: no option of Strategy: there are no rounds"),
        ({"min_train_nodes": 2}, "min_train_nodes: no option of Strategy: a run goes on"),
        ({"min_evaluate_nodes": 2}, "min_evaluate_nodes: no option of Strategy: at least one"),
        ({"stop": Stop(versions=3)}, "stop.versions: is what num_rounds says; leave it out"),
        ({"train_metrics_aggr_fn": 3}, "train_metrics_aggr_fn: must be a function, not 3"),
        ({"evaluate_metrics_aggr_fn": 3}, "evaluate_metrics_aggr_fn: must be a function, not 3"),
    ],
)
def test_a_strategy_that_cannot_be(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Strategy(**wrong)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"concurency": 3}, "concurency: no option of FedBuff; did you mean concurrency?"),
        ({"stops": Stop()}, "stops: no option of FedBuff; did you mean stop?"),
        ({"buffer_size": 4}, "buffer_size: no option of FedBuff: settings of the protocol go "),
        ({"protocol": "oort"}, "protocol: no option of FedBuff: is what the class is called"),
    ],
)
def test_what_is_no_option_is_said_of_the_class_that_was_named(
    wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        FedBuff(**wrong)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("strategy", "given", "says"),
    [
        ({}, {"num_rounds": 0}, "num_rounds: must be a whole number of at least 1, not 0"),
        ({}, {"num_rounds": 2.5}, "num_rounds: must be a whole number of at least 1, not 2.5"),
        ({}, {"num_rounds": "3"}, "num_rounds: must be a whole number of at least 1, not '3'"),
        ({}, {"num_rounds": True}, "num_rounds: must be a whole number of at least 1, not True"),
        ({}, {"timeout": 0}, "timeout: must be a number of seconds greater than 0, not 0"),
        ({}, {"timeout": None}, "timeout: must be a number of seconds greater than 0, not None"),
        ({}, {"timeout": math.inf}, "timeout: must be a number of seconds greater than 0, not inf"),
        ({}, {"timeout": math.nan}, "timeout: must be a number of seconds greater than 0, not nan"),
        ({}, {"evaluate_fn": 3}, "evaluate_fn: must be a function, not 3"),
        ({}, {"evaluate_fn": lambda _v, _a: 0.5}, "evaluate_fn: must return a MetricRecord"),
        ({}, {"train_config": {"lr": object()}}, "train_config: must be a ConfigRecord, not "),
        ({}, {"evaluate_config": {"lr": {}}}, "evaluate_config: must be a ConfigRecord, not "),
        ({}, {"initial_arrays": ArrayRecord()}, "initial_arrays: must hold at least one array"),
        ({}, {"initial_arrays": [np.zeros(3)]}, "initial_arrays: must be an ArrayRecord"),
        ({"protocol": "pisce"}, {}, "protocol"),
        ({"settings": {"beta": 1}}, {}, "protocols.pisces"),
        ({"protocol": "fedbuff", "settings": {"buffer_size": 0}}, {}, "protocols.fedbuff"),
        ({"buffers": ["nothing"]}, {}, "buffers: 'nothing' is none of what is averaged"),
        ({"stop": Stop(target=0.9)}, {}, "stop: target and patience are about 'accuracy' as "),
        ({"stop": Stop(patience=3)}, {}, "stop: target and patience are about 'accuracy' as "),
        ({"stop": Stop(metric="f1")}, {}, "stop: target and patience are about 'f1' as evaluate"),
        (
            {"stop": Stop(metric="f1")},
            {"evaluate_fn": bias},
            "stop.metric: must be one of what evaluate_fn tells of version 0 (accuracy, v), not",
        ),
        ({"limits": 3}, {}, "limits: must be a pisces.Limits, not 3"),
        ({"schedule": 60}, {}, "schedule: must be a pisces.Schedule, not 60"),
        ({"checkpoints": 5}, {}, "checkpoints: must be a pisces.Checkpoints, not 5"),
        (
            {"stop": Stop(target=0.9, metric="f1")},
            {"evaluate_fn": bias},
            "stop.metric: must be one of what evaluate_fn tells of version 0 (accuracy, v), not",
        ),
        (
            {"stop": Stop(target=0.9)},
            {"evaluate_fn": lambda _v, _a: None},
            "stop.metric: must be one of what evaluate_fn tells of version 0 (nothing)",
        ),
    ],
)
def test_mistakes_are_said_before_anything_begins(
    tmp_path: Path, strategy: dict[str, Any], given: dict[str, Any], says: str
) -> None:
    made = Strategy(**{"concurrency": 2, "out": tmp_path / "run", **strategy})
    told = {"grid": None, "initial_arrays": record(**START), **given}
    with pytest.raises(ConfigError) as caught:
        made.start(**told)
    assert str(caught.value).startswith(says)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("at", [0, 2])
def test_an_evaluation_that_raises_is_the_apps_own_mistake(bed: Bed, at: int) -> None:
    def evaluate(version: int, arrays: ArrayRecord) -> MetricRecord:
        if version == at:
            raise ZeroDivisionError("mine")
        return bias(version, arrays)

    with pytest.raises(ZeroDivisionError, match="mine"):
        start(Pisces(2), bed, 50, evaluate_fn=evaluate)


def test_an_evaluation_that_tells_nonsense_later_is_refused_then(bed: Bed) -> None:
    def evaluate(version: int, arrays: ArrayRecord) -> Any:
        return bias(version, arrays) if version < 2 else {"accuracy": 1.0}

    with pytest.raises(ConfigError, match="evaluate_fn: must return a MetricRecord"):
        start(Pisces(2), bed, 50, evaluate_fn=evaluate)


def test_a_model_beyond_the_limits_is_refused(bed: Bed, tmp_path: Path) -> None:
    limits = pisces.Limits(max_update_bytes=8)
    with pytest.raises(ConfigError, match="max_update_bytes"):
        start(Pisces(2, limits=limits, out=tmp_path / "run"), bed, 2)
    assert not (tmp_path / "run").exists()


# --- what it says ---------------------------------------------------------------------------------


def test_it_says_a_line_for_each_version_and_things_once(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pisces")
    start(Pisces(2), bed, 3)
    said = [message for name, _, message in caplog.record_tuples if name == "pisces"]
    assert said[0] == "begins when 2 nodes are there"
    assert "nodes that are there: 3" in said
    assert [" ".join(m.split()[1:3]) for m in said if m.startswith("t=")] == [
        *("version 1", "version 2", "version 3"),
        "stopped: versions",
    ]


def test_where_nobody_listens_it_speaks_to_standard_error() -> None:
    code = """
import logging
from pisces import grid
with grid._spoken():
    grid.log.info("hello")
    assert len(grid.log.handlers) == 1
assert not grid.log.handlers and not grid.log.isEnabledFor(logging.INFO)
logging.basicConfig(format="mine %(message)s", level=logging.INFO)
with grid._spoken():
    grid.log.info("again")
    assert not grid.log.handlers
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["INFO pisces: hello", "mine again"]


# --- light ----------------------------------------------------------------------------------------


def test_importing_it_is_quick_and_light() -> None:
    code = """
import sys, time
began = time.perf_counter()
import pisces.flower
print(time.perf_counter() - began)
heavy = {"torch", "sklearn", "flwr", "grpc", "scipy", "pandas", "matplotlib"}
print(sorted(heavy & set(sys.modules)))
pisces.flower.Pisces(20), pisces.flower.Losses().metrics()
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    took_s, imported, made = done.stdout.splitlines()
    assert (imported, made) == ("[]", "[]")
    assert float(took_s) < 5.0


def test_without_flower_it_says_what_to_install() -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "flwr":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from pisces.errors import MissingPackageError
from pisces.flower import Pisces
try:
    Pisces(2).start(None, None)
except MissingPackageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pisces.flower needs packages that are not all here (flwr")
    assert "pip install 'pisces-fl[flower]'" in done.stdout


def test_it_needs_no_package_of_the_networks() -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("zstandard", "prometheus_client"):
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import pisces.grid
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- losses ---------------------------------------------------------------------------------------


def test_losses_by_hand() -> None:
    losses = Losses()
    assert losses.metrics() == {}
    losses.add([1.0, 2.0])
    losses.add(np.array([[3.0], [4.0]]))
    # mean of 1 2 3 4, root of (1 + 4 + 9 + 16) / 4
    assert losses.metrics() == {"train_loss": 2.5, "loss-rms": pytest.approx(math.sqrt(7.5))}
    assert losses.num == 4


def test_losses_of_torch_may_have_gradients_and_no_shape() -> None:
    losses = Losses()
    each = torch.tensor([3.0, 4.0], requires_grad=True) * 1.0
    losses.add(each)
    losses.add(torch.tensor(5.0, dtype=torch.bfloat16))
    assert losses.metrics()["train_loss"] == 4.0
    losses.add([])
    losses.add(torch.empty(0))
    assert losses.num == 3


def test_what_is_left_is_told_from_the_second_epoch_on() -> None:
    losses = Losses()
    for epoch, each in enumerate([[4.0, 2.0], [9.0, 9.0], [1.0, 0.5]], start=1):
        for loss in each:
            losses.add([loss], epoch)
    told = losses.metrics()
    assert told == {"train_loss": 3.0, "loss-rms": pytest.approx(math.sqrt(10)), "loss-left": 0.75}
    MetricRecord({"num-examples": 6, **told})  # as Flower takes it


def test_losses_are_told_to_the_judge(tmp_path: Path) -> None:
    with flowerbed(app(), app()) as bed:
        start(Pisces(2, out=tmp_path / "run"), bed, 2)
    arrived = [line for line in Run.open(tmp_path / "run").events() if line["kind"] == "arrived"]
    assert {(a["loss"], a["loss_rms"], a["loss_left"]) for a in arrived} == {(1.0, 1.25, 0.25)}


def test_everything_public_is_named() -> None:
    assert {name for name in flower.__all__ if not hasattr(flower, name)} == set()
    assert issubclass(ConfigError, PiscesError)

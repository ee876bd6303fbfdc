"""`pisces.simulate`: one's own model, data, loss, metric, plan and policies, from Python."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pisces
from pisces import build
from pisces.data.federated import FederatedData
from pisces.errors import ConfigError, DataError, RunError
from pisces.execute.availability import Always, Late
from pisces.execute.failures import Failures
from pisces.execute.latency import PerClient
from pisces.replaying import replay
from pisces.report.figures.judging import judge_of
from pisces.report.goal import Goal
from pisces.report.ledger import Ledger
from pisces.report.ledger.overview import overview
from pisces.report.sentences import about_run
from pisces.simulation import Result
from pisces.types import Plan, State

Pair = tuple[torch.Tensor, torch.Tensor]
NUM_CLIENTS = 6


def lines_of_data(number: int, num: int) -> Pair:
    """Points of y = 2 x0 - x1, each client's its own."""
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(num, 2, generator=generator)
    return inputs, 2 * inputs[:, :1] - inputs[:, 1:]


def clients(num: int = NUM_CLIENTS) -> list[Pair]:
    return [lines_of_data(number, 8 + number) for number in range(num)]


TEST = lines_of_data(99, 50)


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).square().mean(dim=1)


def worst(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float((outputs - targets).abs().max())


def line_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(2, 1)


def simulated(protocol: str | pisces.Policies = "pisces", **changes: Any) -> Result:
    """A run that ends after ten versions or so."""
    settings: dict[str, Any] = {
        "model": line_model(),
        "clients": clients(),
        "test": TEST,
        "concurrency": 3,
        "loss": squared_error,
        "metrics": {"worst": worst},
        "plan": Plan(epochs=2, batch_size=4, learning_rate=0.05),
        "latency": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "stop": pisces.Stop(time_s=20.0),
    }
    return pisces.simulate(protocol, **(settings | changes))


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


# --- what comes out -------------------------------------------------------------------------------


def test_a_model_of_ones_own_learns() -> None:
    result = simulated(stop=pisces.Stop(time_s=60.0))
    weight = result.model.weight.detach()  # type: ignore[union-attr]
    assert torch.allclose(weight, torch.tensor([[2.0, -1.0]]), atol=0.05)
    assert result.summary["reason"] == "time"
    assert result.folder is None


def test_the_model_passed_in_is_left_alone() -> None:
    model = line_model()
    model.train()
    before = flat(model).clone()
    result = simulated(model=model)
    assert torch.equal(flat(model), before)
    assert model.training
    assert not torch.equal(flat(result.model), before)
    assert not result.model.training


def test_the_curve_is_that_of_the_record() -> None:
    result = simulated()
    evaluated = [line for line in result.lines if line["kind"] == "evaluated"]
    assert result.curve("worst") == [(line["at"], line["worst"]) for line in evaluated]
    assert result.curve("loss")[0][0] == 0.0
    assert result.summary["final"]["worst"] == result.curve("worst")[-1][1]
    assert result.curve("accuracy") == []  # nobody asked for it


def test_metrics_are_measured_on_the_test_set() -> None:
    result = simulated()
    with torch.no_grad():
        outputs = result.model(TEST[0])
    assert result.summary["final"]["worst"] == pytest.approx(worst(outputs, TEST[1]))
    expected = float(squared_error(outputs, TEST[1]).mean())
    assert result.summary["final"]["loss"] == pytest.approx(expected)


def test_accuracy_is_the_metric_unless_another_is_given() -> None:
    def labelled(pair: Pair) -> Pair:
        return pair[0], (pair[1][:, 0] > 0).long()

    result = simulated(
        model=nn.Linear(2, 2),
        clients=[labelled(pair) for pair in clients()],
        test=labelled(TEST),
        loss=nn.functional.cross_entropy,
        metrics=None,
    )
    inputs, labels = labelled(TEST)
    right = (result.model(inputs).argmax(dim=1) == labels).float().mean()
    assert result.summary["final"]["accuracy"] == pytest.approx(float(right))
    assert set(result.summary["final"]) == {"accuracy", "loss"}


# --- the same again -------------------------------------------------------------------------------


def test_the_same_seed_is_the_same_run() -> None:
    one, again, other = simulated(), simulated(), simulated(seed=2)
    assert one.lines == again.lines
    assert torch.equal(flat(one.model), flat(again.model))
    assert one.lines != other.lines


def test_policies_remember_nothing_from_one_run_to_the_next() -> None:
    # Its selector explores less and less, its judge keeps losses.
    policies = pisces.protocol("pisces", 3)
    one, again = simulated(policies), simulated(policies)
    assert one.lines == again.lines
    assert one.lines == simulated("pisces").lines


# --- loss, plan and recipe ------------------------------------------------------------------------


def test_a_scalar_loss_trains_the_same_model() -> None:
    # Only what clients report of their losses differs, which a random selection does not look at.
    per_sample = simulated("fedbuff")
    scalar = simulated("fedbuff", loss=nn.functional.mse_loss)
    assert torch.allclose(flat(scalar.model), flat(per_sample.model), atol=1e-6)
    arrived = [line for line in scalar.lines if line["kind"] == "arrived"]
    assert all(line["loss_rms"] >= line["loss"] > 0 for line in arrived)


def test_a_plan_may_depend_on_the_version() -> None:
    asked: list[int] = []

    def plan(version: int) -> Plan:
        asked.append(version)
        return Plan(learning_rate=0.1 if version == 0 else 1e-9)

    result = simulated(plan=plan)
    assert set(asked) == {line["version"] for line in result.lines if line["kind"] == "started"}
    # From version 1 on nothing is learned, so only the first three tasks move the model.
    assert not torch.allclose(flat(result.model), flat(simulated().model), atol=1e-3)


def test_clipping_bounds_a_step() -> None:
    # One client, one step of rate 1 with a gradient of norm at most 0.01: that far it moves.
    start = line_model()
    result = simulated(
        "fedavg",
        model=start,
        clients=clients(1),
        latency=1.0,
        concurrency=1,
        plan=Plan(batch_size=100, learning_rate=1.0),
        recipe=pisces.Recipe(clip_norm=0.01),
        stop=pisces.Stop(versions=1),
    )
    assert float((flat(result.model) - flat(start)).norm()) == pytest.approx(0.01, rel=1e-3)


def test_threads_are_set_and_may_be_left() -> None:
    simulated(threads=2, stop=pisces.Stop(versions=1))
    assert torch.get_num_threads() == 2
    simulated(threads=None, stop=pisces.Stop(versions=1))
    assert torch.get_num_threads() == 2
    simulated(stop=pisces.Stop(versions=1))
    assert torch.get_num_threads() == 1


# --- who, and how long ----------------------------------------------------------------------------


class InTurn(pisces.Selector):
    """Whoever was picked least, by number."""

    def pick(
        self, view: pisces.View, slots: int, rng: np.random.Generator
    ) -> Sequence[pisces.Assignment]:
        free = view.selectable
        order = np.argsort(view.clients.num_picks[free], kind="stable")[:slots]
        return [pisces.Assignment(int(client)) for client in free[order]]


def test_a_selector_of_ones_own(tmp_path: Path) -> None:
    policies = replace(pisces.protocol("fedavg", 2), selector=InTurn())
    result = simulated(
        policies, latency=1.0, stop=pisces.Stop(versions=4), out=tmp_path / "r", name="in turn"
    )
    started = [line["client"] for line in result.lines if line["kind"] == "started"]
    assert started == [0, 1, 2, 3, 4, 5, 0, 1]
    assert result.summary["protocol"] == "in turn"
    assert pisces.load(tmp_path / "r").protocol == "in turn"


def test_settings_of_a_protocol() -> None:
    seconds = [1.01, 2.03, 3.07, 4.11, 5.13, 6.17]  # no two arrive at the same instant
    result = simulated("fedbuff", settings={"buffer_size": 2}, latency=seconds)
    sizes = {len(line["tasks"]) for line in result.lines if line["kind"] == "aggregated"}
    assert sizes == {2}


@pytest.mark.parametrize(
    "latency", [2.0, 2, [2.0] * 6, (2,) * 6, np.full(6, 2.0), PerClient([2.0] * 6)]
)
def test_latencies_are_numbers_or_a_model(latency: Any) -> None:
    result = simulated("fedavg", latency=latency, stop=pisces.Stop(versions=3))
    assert result.summary["at"] == 6.0


def test_latencies_are_a_zipf_spread_unless_given() -> None:
    result = simulated("fedavg", latency=None, concurrency=6, stop=pisces.Stop(versions=1))
    seconds = [line["latency_s"] for line in result.lines if line["kind"] == "arrived"]
    assert min(seconds) == pytest.approx(15.0)
    assert max(seconds) == pytest.approx(180.0)


def test_trouble_and_latecomers() -> None:
    late = Late(Always(), over_s=10.0, share=1.0, seed=1)
    result = simulated(failures=Failures(crash=0.5, seed=3), availability=late)
    assert result.summary["num_failed"] > 3
    assert all(line["at"] > 0 for line in result.lines if line["kind"] == "joined")


def test_clients_may_come_as_federated_data() -> None:
    pooled = FederatedData.from_clients(clients(), TEST)
    assert simulated(clients=pooled, test=None).lines == simulated().lines


# --- the run folder -------------------------------------------------------------------------------


def test_a_run_folder(tmp_path: Path) -> None:
    result = simulated(out=tmp_path / "r")
    assert result.folder == tmp_path / "r"
    run = pisces.load(tmp_path / "r")
    assert (run.protocol, run.seed) == ("pisces", 1)
    assert list(run.events()) == list(result.lines) == list(simulated().lines)
    assert json.loads((tmp_path / "r" / "summary.json").read_text()) == result.summary
    fresh = nn.Linear(2, 1)
    fresh.load_state_dict(run.state_dict(), strict=True)
    assert torch.equal(flat(fresh), flat(result.model))


@pytest.mark.parametrize(
    ("protocol", "changes", "bounds", "is_judged"),
    [
        ("pisces-paper", {"settings": {"outlier_window": 4}}, [4.0, 2.0], True),
        ("pisces", {"settings": {"staleness_bound": 3}, "tick_s": 2.5}, [3.0, 2.0], False),
    ],
)
def test_the_folder_of_a_protocol_by_name_is_read_as_one_of_a_config(
    protocol: str, changes: dict[str, Any], bounds: list[float], is_judged: bool, tmp_path: Path
) -> None:
    simulated(protocol, out=tmp_path / "r", deadline_s=30.0, **changes)
    run = pisces.load(tmp_path / "r")
    assert run.config["clients"] == {"concurrency": 3, "deadline_s": 30.0}
    told, given = run.config["protocols"][protocol], changes["settings"]
    assert told == build.settings_of(protocol, given).model_dump(exclude_none=True)
    ledger = Ledger(run.path)
    ledger.read()
    assert overview(ledger).concurrency == 3
    assert (judge_of(ledger) is not None) == is_judged
    assert "at most 3 at a time" in next(about_run(run, Goal("worst", None)))
    replayed = replay(run, ["pace.policy=buffered", "pace.buffer_size=4"])
    assert replayed.check.is_same
    assert replayed.recorded.num_aggregations > replayed.replayed.num_aggregations


def test_the_folder_of_policies_of_ones_own_says_how_many_run_at_once(tmp_path: Path) -> None:
    own = build.protocol("fedbuff", 3, buffer_size=2)
    simulated(own, name="fedbuff", out=tmp_path / "r")  # however one calls them
    config = pisces.load(tmp_path / "r").config
    assert (config["protocol"], config["clients"]) == ("fedbuff", {"concurrency": 3})
    assert "protocols" not in config
    with pytest.raises(ConfigError, match="does not say which pace it had"):
        replay(tmp_path / "r")
    assert replay(tmp_path / "r", pacer=own.pacer, own=own.pacer).check.is_same


class Tied(nn.Module):
    """Two names for one weight, BatchNorm's statistics and its integer counter."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.last = nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(torch.tanh(self.first(self.norm(x)))))


def test_a_state_dict_loads_whatever_the_model_is_made_of(tmp_path: Path) -> None:
    whole = Plan(batch_size=100, learning_rate=0.05)  # BatchNorm refuses a last batch of one
    result = simulated(model=Tied(), plan=whole, out=tmp_path / "r", stop=pisces.Stop(versions=3))
    state = pisces.load(tmp_path / "r").state_dict()
    fresh = Tied()
    fresh.load_state_dict(state, strict=True)
    assert torch.equal(state["first.weight"], state["second.weight"])
    assert not torch.equal(state["norm.running_mean"], torch.zeros(2))
    with torch.no_grad():
        assert torch.equal(fresh.eval()(TEST[0]), result.model(TEST[0]))


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    simulated(out=tmp_path / "r", stop=pisces.Stop(versions=1))
    before = (tmp_path / "r" / "events.jsonl").read_bytes()
    with pytest.raises(RunError, match="is not empty: choose another folder"):
        simulated(out=tmp_path / "r")
    assert (tmp_path / "r" / "events.jsonl").read_bytes() == before


# --- going on -------------------------------------------------------------------------------------


def test_a_run_made_in_python_goes_on_there(tmp_path: Path) -> None:
    whole = simulated(out=tmp_path / "whole", stop=pisces.Stop(time_s=40.0))
    simulated(out=tmp_path / "r", resume=True)  # nothing is there yet: it begins
    later = simulated(out=tmp_path / "r", resume=True, stop=pisces.Stop(time_s=40.0))
    assert list(later.lines) == list(whole.lines)
    assert torch.equal(flat(later.model), flat(whole.model))
    summaries = [{**result.summary, "wall_s": 0} for result in (later, whole)]
    assert summaries[0] == summaries[1]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"seed": 2}, "seed was 1, and is 2"),
        ({"protocol": "fedbuff"}, "protocol was 'pisces', and is 'fedbuff'"),
        ({"clients": clients(5), "latency": 1.0}, "number of clients was 6, and is 5"),
        ({"model": nn.Linear(2, 1, bias=False)}, "model's weights was"),
        ({"backend": "batched"}, "training was 'one by one on cpu', and is 'batched on cpu'"),
    ],
)
def test_another_run_cannot_go_on_from_there(
    other: dict[str, Any], why: str, tmp_path: Path
) -> None:
    simulated(out=tmp_path / "r", device="cpu")
    with pytest.raises(RunError, match=f"it is of another run: {why}"):
        simulated(**{"out": tmp_path / "r", "resume": True, "device": "cpu", **other})


def test_what_saved_a_run_is_told_whatever_it_calls_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as then:
        then.setattr("pisces.keeping.software", lambda: "half of a character, \ud800")
        simulated(out=tmp_path / "r")
    simulated(out=tmp_path / "r", resume=True, stop=pisces.Stop(time_s=40.0))
    assert "saved by half of a character, \\ud800, and this is pisces" in caplog.text
    caplog.text.encode()  # or no file could hold it


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ray": {"address": "local"}}, "with backend = 'auto'"),
        ({"ray": "auto", "backend": "ray"}, "not 'auto' with backend = 'ray'"),
        ({"ray": {"adress": "local"}, "backend": "ray"}, "ray: adress: unknown key; did you mean"),
    ],
)
def test_settings_of_a_cluster_are_checked(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        simulated(**settings)


def test_to_go_on_one_must_say_where() -> None:
    with pytest.raises(ConfigError, match="resume: say with `out` in which folder the run is"):
        simulated(resume=True)


def test_a_policy_whose_state_cannot_be_saved_is_no_reason_to_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Sloppy(InTurn):
        def state(self) -> Any:
            return State({"something": object()})

    policies = replace(pisces.protocol("fedavg", 2), selector=Sloppy())
    result = simulated(policies, out=tmp_path / "r", stop=pisces.Stop(versions=2))
    assert result.summary["versions"] == 2
    assert "some state is neither JSON nor an array of numbers" in caplog.text


# --- refusals -------------------------------------------------------------------------------------

EMPTY = (torch.zeros(0, 2), torch.zeros(0, 1))
REFUSALS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no clients": ({"clients": []}, DataError, "no clients: give at least one"),
    "empty client": (
        {"clients": [*clients(), EMPTY]},
        DataError,
        "client 6 has 0 inputs and 0 targets; each client needs at least one sample",
    ),
    "targets missing": (
        {"clients": [(torch.zeros(3, 2), torch.zeros(2, 1))]},
        DataError,
        "client 0 has 3 inputs and 2 targets",
    ),
    "inputs of another shape": (
        {"clients": [*clients(), (torch.zeros(3, 5), torch.zeros(3, 1))]},
        DataError,
        r"client 6 has samples of shape \(\(5,\), \(1,\)\), the test set of \(\(2,\), \(1,\)\)",
    ),
    "targets of another shape": (
        {"clients": [(torch.zeros(3, 2), torch.zeros(3))]},
        DataError,
        r"client 0 has samples of shape \(\(2,\), \(\)\)",
    ),
    "no test set": ({"test": None}, ConfigError, "test: give .inputs, targets. that no client"),
    "empty test set": ({"test": EMPTY}, DataError, "test has 0 inputs and 0 targets"),
    "uneven test set": (
        {"test": (torch.zeros(3, 2), torch.zeros(2, 1))},
        DataError,
        "test has 3 inputs and 2 targets",
    ),
    "latencies of others": (
        {"latency": [1.0, 2.0]},
        ConfigError,
        "latency: there must be one per client, not 2 for 6 clients",
    ),
    "no latency": ({"latency": 0.0}, ConfigError, "positive and finite"),
    "endless": ({"stop": pisces.Stop(target=0.5)}, ConfigError, "the run would never end"),
    "metric": (
        {"stop": pisces.Stop(time_s=5.0, target=0.5)},  # of accuracy, which is not measured
        ConfigError,
        "stop.metric: must be one of worst, loss, not 'accuracy'",
    ),
    "patience": (
        {"stop": pisces.Stop(time_s=5.0, patience=2, metric="f1")},
        ConfigError,
        "stop.metric: must be one of worst, loss, not 'f1'",
    ),
    "metric of nothing": (
        {"stop": pisces.Stop(time_s=5.0, metric="perplexity")},  # nothing stops by it: it is shown
        ConfigError,
        "stop.metric: must be one of worst, loss, not 'perplexity'",
    ),
    "device": ({"device": "quantum"}, ConfigError, "train.device: must be auto, cpu, cuda"),
    "protocol": ({"protocol": "piscs"}, ConfigError, "did you mean 'pisces'?"),
    "setting": (
        {"settings": {"staleness_bund": 3}},
        ConfigError,
        "staleness_bund: unknown key; did you mean staleness_bound?",
    ),
    "settings of one's own policies": (
        {"protocol": pisces.protocol("fedavg", 3), "settings": {"over_selection": 1.3}},
        ConfigError,
        "settings are for protocols by name",
    ),
    "buffer": (
        {"protocol": "fedbuff", "settings": {"buffer_size": 7}},
        ConfigError,
        "waits for 7 updates at once, but there are only 6 clients",
    ),
    "strict pace": ({"settings": {"pace": "strict"}}, ConfigError, "needs clients.deadline_s"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_work_is_refused_before_it_begins(case: str, tmp_path: Path) -> None:
    changes, error, message = REFUSALS[case]
    with pytest.raises(error, match=message):
        simulated(**changes, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_ctrl_c_saves_what_there_is_and_is_not_swallowed(tmp_path: Path) -> None:
    def interrupted(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        calls.append(len(outputs))
        return 0.0

    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        simulated("fedavg", metrics={"accuracy": interrupted}, out=tmp_path / "r")
    run = pisces.load(tmp_path / "r")
    assert run.summary["reason"] == "interrupted"
    assert run.state_dict()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"concurrency": 0}, "concurrency: must be from 1"),
        ({"concurrency": 7}, "concurrency: must be from 1 to the number of clients, 6, not 7"),
        ({"tick_s": -1.0}, "tick_s must be at least 0"),
        ({"seed": -1}, "seed and tick_s must be at least 0"),
        ({"deadline_s": -1.0}, "deadline_s: must be greater than 0"),
        ({"failures": Failures(vanish=0.5)}, "failures.vanish needs clients.deadline_s"),
    ],
)
def test_impossible_numbers_are_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        simulated("fedavg", **wrong)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: pisces.Stop(time_s=-5), "stop.time_s: must be greater than 0"),
        (lambda: pisces.Plan(epochs=0), "at least 1 epoch"),
        (lambda: pisces.Plan(learning_rate=0), "learning rate > 0"),
        (lambda: pisces.Recipe(optimizer="foo"), "must be one of sgd, adam, adamw, not 'foo'"),
        (lambda: pisces.Recipe(momentum=1.0), "momentum in"),
    ],
)
def test_impossible_parts_are_refused_when_they_are_made(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make()


def test_a_batchnorm_model_meets_odd_sizes() -> None:
    # 33 samples in batches of 32 would leave a last batch of one, which BatchNorm1d refuses.
    torch.manual_seed(0)
    shards = [(torch.randn(33, 4), torch.randint(0, 2, (33,))) for _ in range(3)]
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    result = pisces.simulate(
        "fedbuff",
        model=model,
        clients=shards,
        test=shards[0],
        concurrency=2,
        settings={"buffer_size": 1},
        stop=pisces.Stop(versions=4),
    )
    assert result.summary["versions"] == 4


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "num"), [("fedbuff", 3), ("fedavg", 3), ("oort", 3), ("pisces", 1)]
)
def test_a_buffer_that_would_not_fit_is_refused_before_the_run(protocol: str, num: int) -> None:
    settings = {"buffer_size": 3} if protocol == "fedbuff" else {}
    needed = num * 12  # two weights and a bias of four bytes each
    limits = pisces.Limits(max_buffered_bytes=needed)
    simulated(protocol, settings=settings, limits=limits)
    with pytest.raises(ConfigError, match=f"max_buffered_bytes: the pace lets {num} updates wait"):
        simulated(protocol, settings=settings, limits=pisces.Limits(max_buffered_bytes=needed - 1))

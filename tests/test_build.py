"""Wiring: from a config to the parts of a run, and what is refused on the way."""

from __future__ import annotations

import inspect
import math
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import datafiles
import numpy as np
import pytest
import safetensors.torch
import torch
from worlds import view

from pisces import build, parts, protocols
from pisces.build import resolved, settings_of, simulated, simulation
from pisces.clients.checks import Limits
from pisces.config import FREE, Config, check, described, parse
from pisces.errors import ConfigError, DataError, MissingDataError, PiscesError
from pisces.evaluate import Schedule
from pisces.execute.availability import Always, Diurnal, Late, Markov, Trace
from pisces.execute.failures import Failures
from pisces.execute.latency import ComputeAndNetwork
from pisces.models.flat import flatten
from pisces.models.mlp import mlp
from pisces.names import PROTOCOLS
from pisces.pace.fedbuff import Buffered
from pisces.parts import Simulation
from pisces.record.lines import Memory
from pisces.stop import Stop
from pisces.train.base import Recipe
from pisces.types import Plan
from pisces.world import load_weights

EXPLORING = ("exploration", "exploration_decay", "min_exploration")
SMALL = ("clients.count=10", "clients.concurrency=5", "train.device=cpu", "model.hidden=[]")


def config_of(*changes: str) -> Config:
    return parse("", [*SMALL, *changes])


def built(*changes: str) -> Simulation:
    return simulation(config_of(*changes))


# --- refusals -------------------------------------------------------------------------------------

TRACE = ("latency.kind=trace", "latency.path=nowhere.csv")
REFUSALS = {
    "protocol": (["protocol=pisce"], "protocol: must be one of pisces, fedbuff,", "'pisces'?"),
    "settings of no protocol": (
        ["protocols.fedbuf.x=1"],
        "protocols: must be one of",
        "'fedbuff'?",
    ),
    "model": (["model.name=lenet"], "model.name: must be one of mlp,", "not 'lenet'"),
    "dataset": (["data.dataset=digit"], "data.dataset: must be one of digits,", "'digits'?"),
    "buffer larger than the federation": (
        ["protocol=fedbuff", "protocols.fedbuff.buffer_size=11"],
        "waits for 11 updates at once, but there are only 10 clients",
        "lower buffer_size",
    ),
    "empty buffer": (
        ["protocol=fedbuff", "protocols.fedbuff.buffer_size=0"],
        "protocols.fedbuff: buffer_size: must be greater than or equal to 1, not 0",
        "",
    ),
    "misspelt setting": (
        ["protocol=fedbuff", "protocols.fedbuff.bufer_size=4"],
        "protocols.fedbuff: bufer_size: unknown key",
        "did you mean buffer_size?",
    ),
    "setting of another protocol": (
        ["protocols.pisces-paper.full_share=0.5"],
        "protocols.pisces-paper: full_share: unknown key; it is a setting of pisces",
        "",
    ),
    "setting of a variant": (
        ["protocols.pisces.buffer_size=4"],
        "buffer_size: unknown key; it is a setting of fedbuff, papaya, ca2fl, fadas, port, "
        "pisces-without-adaptive-pace",
        "",
    ),
    "steps that take no time": (
        ["protocol=fedcompass"],
        "latency: the protocol gives clients as many steps as they have time for, but these "
        "latencies do not grow with steps: use latency.kind = 'compute'",
        "",
    ),
    "a pull without a deadline": (
        ["protocol=port"],
        "protocols.port: a strict pace needs clients.deadline_s",
        "",
    ),
    "bound below 1": (
        ["protocols.pisces.staleness_bound=0"],
        "protocols.pisces: staleness_bound: must be greater than or equal to 1, not 0",
        "",
    ),
    "no such pace": (
        ["protocols.pisces.pace=slow"],
        "protocols.pisces: pace: must be 'remaining', 'paper', 'elapsed' or 'strict', not 'slow'",
        "",
    ),
    "strict without a deadline": (
        ["protocols.pisces.pace=strict"],
        "protocols.pisces: a strict pace needs clients.deadline_s",
        "",
    ),
    "no guard by its name": (
        ["protocols.pisces.guard=none"],
        "protocols.pisces: guard: must be 'learning' or 'clusters'; without any it is "
        "pisces-without-guard",
        "",
    ),
    "nothing where there must be something": (
        ["protocols.pisces.pace=none"],
        "protocols.pisces: pace: must be 'remaining', 'paper', 'elapsed' or 'strict', not none",
        "",
    ),
    "negative guess": (
        ["protocols.pisces.unseen_latency_s=-1"],
        "protocols.pisces: unseen_latency_s: must be greater than or equal to 0, not -1",
        "",
    ),
    "guess for a pace that needs none": (
        ["protocols.pisces.unseen_latency_s=180"],
        "protocols.pisces: unseen_latency_s: 180.0 would do nothing: the pace remaining needs no",
        "leave it out",
    ),
    "sizes larger than the data": (
        ["data.size=1000"],
        "sizes ask for 10000 rows, but there are 1438",
        "overlap",
    ),
    "more clients than samples": (["clients.count=5000"], "1438 rows over 5000 clients", "fewer"),
    "sizes of other clients": (["data.sizes=[9, 9]"], "data.sizes: 2 sizes for 10 clients", ""),
    "sizes and latencies from each other": (
        ["data.sizes=coupled", "latency.kind=compute"],
        "data.sizes: 'coupled' derives sizes from latencies",
        "change one of them",
    ),
    "no natural clients": (
        ["data.partition=natural"],
        "data.partition: digits has no",
        "dirichlet",
    ),
    "words from pictures": (
        ["model.name=lstm"],
        "model.name: lstm predicts words, but the dataset asks for labels; use mlp or",
        "resnet18",
    ),
    "layers of another model": (
        ["model.name=small_cnn", "model.hidden=[9]"],
        "model.hidden: [9] would do nothing: small_cnn has no such setting, mlp has",
        "leave it out",
    ),
    "units of another model": (
        ["model.units=9"],
        "model.units: 9 would do nothing: mlp has no such setting, lstm has",
        "leave it out",
    ),
    "words of pictures": (
        ["data.vocabulary=999"],
        "data.vocabulary: 999 would do nothing: digits is no text",
        "leave it out",
    ),
    "lengths of pictures": (
        ["data.sequence_length=9"],
        "data.sequence_length: 9 would do nothing: digits is no text",
        "leave it out",
    ),
    "trace that is not there": ([*TRACE], "nowhere.csv cannot be read as a trace", ""),
    "weights that are not there": (["model.weights=nowhere"], "model.weights: cannot read", ""),
    "data that is not there": (["data.dataset=mnist"], "mnist is not there", "PISCES_DATA"),
}


@pytest.mark.parametrize(("changes", "rule", "remedy"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_cannot_work_is_refused_in_one_line(
    changes: list[str], rule: str, remedy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PISCES_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(PiscesError) as error:
        built(*changes)
    message = str(error.value)
    assert rule in message
    assert remedy in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "trainer"),
    [
        (("train.workers=1",), "SequentialTrainer"),
        (("train.workers=2",), "PoolTrainer"),
        (("train.backend=sequential", "train.workers=1"), "SequentialTrainer"),
        (("train.backend=pool", "train.workers=1"), "PoolTrainer"),
        (("train.backend=batched",), "BatchedTrainer"),
    ],
)
def test_the_backend_is_chosen(settings: tuple[str, ...], trainer: str) -> None:
    simulation = built(*settings)
    chosen = simulation.trainer(torch.device("cpu"))
    assert type(chosen).__name__ == trainer
    assert type(chosen).__name__.lower().startswith(simulation.trained_by().split()[0])
    chosen.close()


def test_who_trained_is_said() -> None:
    assert built("train.workers=2").trained_by() == "pool of 2 processes on cpu"
    assert built("train.workers=1").trained_by() == "sequential on cpu"
    assert built("train.backend=pool", "train.workers=1").trained_by() == "pool of 1 process on cpu"


def test_where_processes_cannot_be_forked_there_is_a_pool_only_if_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts, "can_fork", lambda: False)
    cpu = torch.device("cpu")
    assert built("train.workers=2")._backend(cpu) == "sequential"
    assert built("train.workers=2", "train.backend=pool")._backend(cpu) == "pool"


def test_on_a_gpu_clients_are_batched() -> None:
    assert built()._backend(torch.device("cuda")) == "batched"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (("train.precision=bf16",), "train.precision: bf16 is for batched training on a GPU"),
        (("train.precision=bf16", "train.backend=batched"), "use float32 here"),
        (
            ("train.workers=2", "train.backend=sequential"),
            "train.workers: only a pool or a cluster has workers",
        ),
        (("train.workers=2", "train.backend=batched"), "but the backend is batched"),
        (
            ("train.device=meta",),
            r"train\.device: must be auto, cpu, cuda or cuda:NUMBER, not 'meta'",
        ),
    ],
)
def test_a_backend_that_cannot_do_it_is_refused(settings: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        built(*settings)


def test_a_pool_is_not_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "device_of", torch.device)
    with pytest.raises(ConfigError, match=r"train\.backend: a pool trains on the CPU, not on cuda"):
        built("train.backend=pool", "train.device=cuda")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"precision": "fp16"}, "train.precision: must be one of"),
        ({"workers": 1.5}, r"train\.workers: must be from 1 to 1024, not 1\.5"),
        ({"workers": True}, "train.workers"),
        ({"workers": 0}, "train.workers"),
        ({"workers": "two"}, "not 'two'"),
        ({"threads": 0}, r"train\.threads: must be from 1 to 1024, not 0"),
        ({"backend": None}, "train.backend"),
    ],
)
def test_what_only_python_can_get_wrong_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        replace(built(), **wrong)


def test_the_backend_changes_nothing_but_the_speed() -> None:
    logs = {}
    for backend in ("sequential", "pool", "batched"):
        workers = 2 if backend == "pool" else 1
        settings = (f"train.backend={backend}", f"train.workers={workers}", "stop.time_s=120")
        memory = Memory()
        with closing(simulated(built(*settings), memory)) as coordinator:
            coordinator.run()
        logs[backend] = memory.lines
    assert logs["pool"] == logs["sequential"]
    # Batched training rounds differently: the same decisions, losses that agree to many digits.
    for one, other in zip(logs["batched"], logs["sequential"], strict=True):
        assert [one[k] for k in ("kind", "at")] == [other[k] for k in ("kind", "at")]
        assert one.get("client") == other.get("client")
        if "loss" in other:
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.device: 'cuda:99' cannot be used here"):
        built("train.device=cuda:99")


def test_strict_with_a_deadline_is_fine() -> None:
    assert built("protocols.pisces.pace=strict", "clients.deadline_s=60").deadline_s == 60.0


# --- protocols ------------------------------------------------------------------------------------


def test_every_protocol_of_the_house_has_a_name() -> None:
    files = [import_module(f.name) for f in iter_modules(protocols.__path__, "pisces.protocols.")]
    made = {thing for file in files for thing in vars(file).values() if makes_policies(thing)}
    assert made == set(PROTOCOLS.values())


def makes_policies(thing: object) -> bool:
    is_ours = inspect.isfunction(thing) and not thing.__name__.startswith("_")
    return is_ours and thing.__annotations__.get("return") == "Policies"


def test_a_protocol_by_its_name_to_go_on_from() -> None:
    assert build.protocol("fedbuff", 20, buffer_size=7).pacer.min_clients == 7
    with pytest.raises(ConfigError, match=r"protocols\.fedbuff: bufer_size: unknown key"):
        build.protocol("fedbuff", 20, bufer_size=7)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_can_be_named(name: str) -> None:
    policies = build.policies_of(config_of(f"protocol={name}", "clients.deadline_s=60"))
    assert policies.pacer.slots(view([10] * 9)) == 5


def test_settings_of_other_protocols_may_stand_in_the_file() -> None:
    config = config_of("protocols.fedbuff.buffer_size=3", "protocols.pisces.staleness_bound=7")
    world = view([10], latency_s=[16.0], running=[(0, 0, 0.0)])  # seven versions and its own
    assert build.policies_of(config).pacer.next_check(world) == 2.0
    fedbuff = build.policies_of(config.model_copy(update={"protocol": "fedbuff"}))
    assert isinstance(fedbuff.pacer, Buffered)
    assert fedbuff.pacer.min_clients == 3


def test_settings_of_other_protocols_are_checked_too() -> None:
    with pytest.raises(ConfigError, match="buffer_size"):
        build.policies_of(config_of("protocols.fedbuff.bufer_size=3"))


def test_policies_of_ones_own_stay_as_they_are() -> None:
    own = PROTOCOLS["fedavg"](3)
    assert build.named_policies(own, 20, {}) is own


def test_settings_come_with_their_defaults() -> None:
    settings = settings_of("fedbuff", {"buffer_size": 3}).model_dump()
    assert settings["buffer_size"] == 3
    assert settings["staleness_penalty"] == 0.5
    assert settings["max_staleness"] is None


@pytest.mark.parametrize(
    ("variant", "removed", "added"),
    [
        ("selection", {"selection_penalty", *EXPLORING}, set()),
        ("staleness", {"selection_penalty"}, set()),
        ("adaptive-pace", {"pace", "staleness_bound", "unseen_latency_s"}, {"buffer_size"}),
        ("guard", {"guard"}, set()),
    ],
)
def test_variants_have_the_settings_of_the_whole_but_for_the_part_removed(
    variant: str, removed: set[str], added: set[str]
) -> None:
    whole = settings_of("pisces", {}).model_dump()
    kept = {key: value for key, value in whole.items() if key not in removed}
    assert settings_of(f"pisces-without-{variant}", {}).model_dump() == kept | dict.fromkeys(added)


def test_a_variant_leaves_out_what_is_set_of_the_part_it_does_without() -> None:
    config = config_of("protocol=pisces-without-guard", "protocols.pisces.guard=clusters")
    assert "guard" not in resolved(config).protocols["pisces-without-guard"]
    with pytest.raises(ConfigError, match="guard: unknown key"):
        settings_of("pisces-without-guard", {"guard": "clusters"})


def test_a_resolved_config_spells_out_its_protocol_and_no_other() -> None:
    config = config_of("protocols.fedbuff.buffer_size=3", "protocols.pisces.pace=elapsed")
    done = resolved(config)
    assert list(done.protocols) == ["pisces"]
    assert done.protocols["pisces"]["pace"] == "elapsed"
    assert done.protocols["pisces"]["selection_penalty"] == 0.5
    assert resolved(done) == done


def test_none_is_a_setting_left_out() -> None:
    given = parse("[protocols.pisces]\nfull_share = 0.5", ["protocols.pisces.full_share=none"])
    assert resolved(given) == resolved(parse(""))


# --- the parts ------------------------------------------------------------------------------------


def test_settings_reach_their_parts() -> None:
    s = built(
        "seed=9",
        "tick_s=5",
        "clients.deadline_s=60",
        "clients.credits=2",
        "clients.staleness_window=3",
        "train.optimizer=adamw",
        "train.momentum=0.5",
        "train.weight_decay=0.1",
        "train.clip_norm=1",
        "failures.crash=0.25",
        "failures.return_after_s=7",
        "evaluate.every_versions=4",
        "stop.updates=77",
        "stop.target=0.5",
    )
    assert (s.seed, s.tick_s, s.deadline_s, s.credits, s.staleness_window) == (9, 5.0, 60.0, 2, 3)
    assert s.recipe == Recipe("adamw", 0.5, 0.1, 1.0)
    assert s.failures == Failures(crash=0.25, return_after_s=7.0, seed=9)
    assert s.schedule == Schedule(every_s=20.0, every_versions=4)
    assert s.stop == Stop(time_s=1000.0, updates=77, target=0.5)


def test_the_learning_rate_decays_with_versions() -> None:
    # Halved every third version: 0.8 for 0 .. 2, 0.4 for 3 .. 5, 0.2 at 6.
    s = built(
        "train.learning_rate=0.8",
        "train.decay=0.5",
        "train.decay_every=3",
        "train.epochs=2",
        "train.batch_size=8",
        "train.proximal=0.1",
    )
    assert [s.plans(v).learning_rate for v in (0, 2, 3, 5, 6)] == [0.8, 0.8, 0.4, 0.4, 0.2]
    assert s.plans(0) == Plan(epochs=2, batch_size=8, learning_rate=0.8, proximal=0.1)


def test_equal_seeds_build_alike_and_others_do_not() -> None:
    def parts(*changes: str) -> tuple[list[float], list[list[int]], list[float]]:
        s = built(*changes)
        latencies = [s.latency.profile(c) for c in range(10)]
        return flatten(s.model).flat.tolist(), [r.tolist() for r in s.data.rows], latencies

    one, again, other = parts(), parts("protocol=fedavg"), parts("seed=2")
    assert one == again  # whatever the protocol
    assert all(a != b for a, b in zip(one, other, strict=True))


def test_building_leaves_torchs_own_generator_alone() -> None:
    before = torch.get_rng_state()
    built()
    assert torch.equal(torch.get_rng_state(), before)


# --- data -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        (["data.size=20"], [20] * 10),
        ([], [143] * 10),  # 1438 // 10
        (["data.partition=iid", "data.size=7"], [7] * 10),
        (["data.sizes=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"], list(range(1, 11))),
        # Everybody takes 4 s: 2.5 samples per second.
        (["data.sizes=coupled", "latency.kind=constant", "latency.seconds=4"], [10] * 10),
        (["data.size=1000", "data.overlap=true"], [1000] * 10),
        (["data.size=3000", "data.redraw=true"], [3000] * 10),
        (["data.size=7", "data.redraw=true", "data.partition=iid"], [7] * 10),
        (["data.sizes=lognormal", "data.size_median=12", "data.size_sigma=0"], [12] * 10),
    ],
)
def test_sizes_of_clients(changes: list[str], sizes: list[int]) -> None:
    assert built(*changes).data.num_examples.tolist() == sizes


@pytest.mark.parametrize("partition", ["iid", "dirichlet"])
def test_redrawn_samples_come_from_a_pool(partition: str) -> None:
    data = built("data.size=30", "data.redraw=true", f"data.partition={partition}").data
    assert [len(rows) for rows in data.rows] == [600] * 10  # 20 epochs' worth
    labels = [np.bincount(data.targets[rows], minlength=10) / 600 for rows in data.rows]
    assert (np.ptp(labels, axis=1).min() > 0.15) == (partition == "dirichlet")  # a mixture


def test_lognormal_sizes_need_not_shrink_to_data_that_is_redrawn() -> None:
    s = built(
        "data.sizes=lognormal", "data.size_median=500", "data.size_sigma=0", "data.redraw=true"
    )
    assert s.data.num_examples.tolist() == [500] * 10


def test_slow_clients_are_rich_when_coupled() -> None:
    s = built("data.sizes=coupled", "latency.kind=uniform", "latency.min_s=4", "latency.max_s=40")
    expected = [int(2.5 * s.latency.profile(c)) for c in range(10)]
    assert s.data.num_examples.tolist() == expected
    assert len(set(expected)) > 1


def test_lognormal_sizes_shrink_to_the_data() -> None:
    # 10 clients around 500 would need 5000 rows; there are 1438.
    s = built("data.sizes=lognormal", "data.size_median=500", "data.size_sigma=0.1")
    assert 1400 <= s.data.num_examples.sum() <= 1438


def test_corruption_flips_labels_of_some_clients() -> None:
    clean, spoilt = built().data, built("data.corrupted=0.3").data
    wrong = [
        bool((clean.targets[rows] != spoilt.targets[rows]).all())
        for rows in map(torch.from_numpy, clean.rows)
    ]
    assert sum(wrong) == 3
    untouched = [r for r, w in zip(clean.rows, wrong, strict=True) if not w]
    assert all(torch.equal(clean.targets[r], spoilt.targets[r]) for r in untouched)
    assert torch.equal(clean.test_targets, spoilt.test_targets)


def test_fewer_test_samples_are_the_same_for_every_seed_and_part_of_more() -> None:
    every = built().data
    assert len(every.test_targets) == 359
    few, other = (built("data.test_samples=20", f"seed={seed}").data for seed in (1, 2))
    assert torch.equal(few.test_inputs, other.test_inputs)
    assert torch.equal(few.test_targets, other.test_targets)
    assert few.test_inputs.shape == (20, 1, 8, 8)
    some = built("data.test_samples=50").data
    for smaller, larger in ((few, some), (some, every)):
        places = [
            (larger.test_inputs == x).flatten(1).all(1).nonzero()[0, 0] for x in smaller.test_inputs
        ]
        assert places == sorted(places)  # in their order
        assert torch.equal(larger.test_targets[torch.stack(places)], smaller.test_targets)
    assert not torch.equal(few.test_inputs, every.test_inputs[:20])  # drawn: files may be sorted
    assert torch.equal(built("data.test_samples=999").data.test_inputs, every.test_inputs)


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "num"),
    [
        (["model.hidden=[]"], 650),  # 64 x 10 + 10
        (["model.hidden=[5]"], 325 + 60),  # 64 x 5 + 5, 5 x 10 + 10
        (["model.name=small_cnn", "model.hidden=[64]"], 6090),
    ],
)
def test_models_fit_the_data(changes: list[str], num: int) -> None:
    s = built(*changes)
    assert flatten(s.model).layout.num_parameters == num
    assert s.model(s.data.inputs[:2]).shape == (2, 10)


@pytest.mark.parametrize("name", ["mlp", "small_cnn"])
def test_a_config_that_spells_every_default_out_is_none_too_many(name: str) -> None:
    spelled = check(config_of(f"model.name={name}", "model.hidden=[64]").model_dump())
    assert {"units", "norm", "size"} <= spelled.model.model_fields_set
    assert {"sequence_length", "vocabulary"} <= spelled.data.model_fields_set
    simulation(spelled)


def test_a_copy_of_mnist_without_writers_says_where_they_come_from(tmp_path: Path) -> None:
    datafiles.mnist_idx(tmp_path / "mnist")
    changes = ("data.dataset=mnist", f"data.folder={tmp_path}", "data.partition=natural")
    with pytest.raises(MissingDataError) as error:
        built("clients.count=2", "clients.concurrency=1", *changes)
    message = str(error.value)
    assert f"data.partition: the copy of mnist in {tmp_path / 'mnist'} names no writers" in message
    assert "qmnist-train-labels-idx2-int.gz" in message
    assert "pisces data get mnist --from FOLDER" in message
    assert not isinstance(error.value, ConfigError)


def test_datasets_that_never_have_natural_clients_are_a_mistake(tmp_path: Path) -> None:
    datafiles.mnist_npz(tmp_path / "fashion_mnist", "fashion_mnist", writer_train=None)
    changes = ("data.dataset=fashion_mnist", f"data.folder={tmp_path}", "data.partition=natural")
    with pytest.raises(ConfigError, match="fashion_mnist has no natural clients; use dirichlet"):
        built("clients.count=2", "clients.concurrency=1", *changes)


def test_a_run_can_start_from_given_weights(tmp_path: Path) -> None:
    source = mlp((1, 8, 8), 10, hidden=[])
    file = tmp_path / "model.safetensors"
    safetensors.torch.save_file(source.state_dict(), file)
    for path in (file, tmp_path):  # a file, or the folder of a run
        started = built(f"model.weights={path}").model
        assert torch.equal(flatten(started).flat, flatten(source).flat)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.safetensors"
    safetensors.torch.save_file(mlp((1, 8, 8), 10, hidden=[3]).state_dict(), file)
    with pytest.raises(DataError, match="does not fit the model"):
        load_weights(mlp((1, 8, 8), 10, hidden=[]), file)


def test_a_file_that_is_no_safetensors_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"not weights")
    with pytest.raises(DataError, match=r"model\.weights: cannot read"):
        load_weights(mlp((1, 8, 8), 10, hidden=[]), tmp_path)


# --- latencies and availability -------------------------------------------------------------------


def profiles(*changes: str) -> np.ndarray:
    s = built(*changes)
    return np.array([s.latency.profile(c) for c in range(10)])


def test_zipf_reaches_from_the_fastest_to_the_slowest() -> None:
    seconds = profiles("latency.kind=zipf", "latency.min_s=5", "latency.max_s=50")
    assert seconds.min() == pytest.approx(5.0)
    assert seconds.max() == pytest.approx(50.0)


def test_other_shapes_of_latency(tmp_path: Path) -> None:
    assert profiles("latency.kind=constant", "latency.seconds=3").tolist() == [3.0] * 10
    seconds = profiles("latency.kind=uniform", "latency.min_s=5", "latency.max_s=6")
    assert ((seconds >= 5) & (seconds <= 6)).all()
    lognormal = profiles("latency.kind=lognormal", "latency.median_s=7", "latency.sigma=0")
    assert lognormal == pytest.approx(np.full(10, 7.0))
    file = tmp_path / "phones.csv"
    file.write_text("client,latency_s\n" + "".join(f"{c},{c + 1}\n" for c in range(10)))
    trace = profiles("latency.kind=trace", f"latency.path={file}")
    assert trace.tolist() == [float(c + 1) for c in range(10)]


def test_jitter_moves_single_tasks() -> None:
    changes = ("latency.kind=constant", "latency.seconds=3")
    task = None  # a latency per client does not look at the task
    assert built(*changes).latency.draw(0, 0, task) == 3.0
    assert built(*changes, "latency.jitter=0.5").latency.draw(0, 0, task) != 3.0


def test_computed_latency_is_samples_and_two_transfers() -> None:
    # 20 samples x 3 epochs x 0.5 s, and 650 floats of 4 bytes twice at 1300 bytes/s: 30 + 4.
    s = built(
        "data.size=20",
        "train.epochs=3",
        "latency.kind=compute",
        "latency.seconds_per_sample=0.5",
        "latency.compute_sigma=0",
        "latency.bytes_per_s=1300",
        "latency.bandwidth_sigma=0",
    )
    assert isinstance(s.latency, ComputeAndNetwork)
    assert s.latency.profile(0) == pytest.approx(34.0)


def test_kinds_of_availability(tmp_path: Path) -> None:
    file = tmp_path / "sessions.csv"
    file.write_text("client,joins_at,leaves_at\n0,1,5\n")
    kinds = {
        "always": (Always, ()),
        "markov": (Markov, ()),
        "diurnal": (Diurnal, ()),
        "trace": (Trace, (f"availability.path={file}",)),
    }
    for name, (kind, more) in kinds.items():
        assert isinstance(built(f"availability.kind={name}", *more).availability, kind)


def test_latecomers() -> None:
    s = built("availability.late_share=1", "availability.late_over_s=9")
    assert isinstance(s.availability, Late)
    ((joins_at, leaves_at),) = islice(s.availability.sessions(0), 2)
    assert 0 < joins_at <= 9
    assert leaves_at == math.inf


# --- a whole run ----------------------------------------------------------------------------------


def test_what_is_wired_runs() -> None:
    memory = Memory()
    s = built(
        "data.size=16",
        "latency.kind=constant",
        "latency.seconds=2",
        "stop.versions=2",
        "train.learning_rate=0.5",
    )
    weights = simulated(s, memory).run()
    kinds = [line["kind"] for line in memory.lines]
    assert kinds.count("joined") == 10
    assert kinds.count("aggregated") == 2
    assert memory.lines[-1]["reason"] == "versions"
    start = flatten(simulation(config_of()).model)
    assert not torch.equal(weights.flat, start.flat)


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_the_test_set_is_measured_by_accuracy_and_loss(metric: str) -> None:
    memory = Memory()
    simulated(
        simulation(
            check(
                {
                    "clients": {"count": 4, "concurrency": 2},
                    "train": {"device": "cpu"},
                    "stop": {"time_s": 1.0},
                }
            )
        ),
        memory,
    ).run()
    evaluated = [line for line in memory.lines if line["kind"] == "evaluated"]
    assert evaluated[0]["version"] == 0
    # An untrained model guesses: one in ten right, a loss around ln 10 = 2.3.
    assert evaluated[0][metric] == pytest.approx({"accuracy": 0.1, "loss": 2.3}[metric], abs=0.4)


def test_limits_of_a_config_are_those_of_its_run() -> None:
    assert built("limits.max_loss=5", "limits.max_buffered_bytes=1000000").limits == Limits(
        max_loss=5.0, max_buffered_bytes=1_000_000
    )
    with pytest.raises(ConfigError, match=r"max_buffered_bytes: the pace lets .* raise it"):
        built("limits.max_buffered_bytes=1000", "protocol=fedbuff")


# --- a cluster ------------------------------------------------------------------------------------


def on_ray(**ray: Any) -> Simulation:
    return simulation(check({"train": {"backend": "ray", "ray": ray}}))


def test_what_a_cluster_trains_with_decides_over_the_last_bits() -> None:
    one_by_one = simulation(check({"train": {"backend": "sequential", "device": "cpu"}}))
    assert on_ray().rounded_by() == one_by_one.rounded_by() == "one by one on cpu"
    assert on_ray(gpus_per_worker=0.5).rounded_by() == "batched on cuda"
    assert on_ray(trainer="batched").rounded_by() == "batched on cpu"
    assert on_ray(trainer="sequential", gpus_per_worker=1.0).trained_by() == (
        "ray (one by one on cuda)"
    )


def test_settings_of_a_cluster_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="set cpus_per_worker or gpus_per_worker above 0"):
        on_ray(cpus_per_worker=0.0)
    with pytest.raises(ConfigError, match=r"train\.precision: bf16 is for batched training on a"):
        simulation(check({"train": {"backend": "ray", "precision": "bf16"}}))
    values = {"backend": "ray", "precision": "bf16", "ray": {"gpus_per_worker": 1.0}}
    assert simulation(check({"train": values})).precision == "bf16"


def test_where_a_run_is_trained_does_not_change_what_it_is() -> None:
    far = check({"train": {"backend": "ray", "ray": {"address": "ray://there:10001"}}})
    assert described(far, FREE) == described(Config(), FREE)

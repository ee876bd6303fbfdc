"""A client with PyTorch trains as a simulation does, and says what does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scripted import LAYOUT, Talk, serving

from pisces import build, config, local, world
from pisces.data.federated import FederatedData
from pisces.errors import ConfigError, DataError
from pisces.execute.network.client.work import CalledOff, Job, Work
from pisces.execute.network.messages import Bye, Failure, Pull, Welcome
from pisces.hosting import settings_of
from pisces.models.flat import flatten
from pisces.train.sequential import SequentialTrainer
from pisces.types import Layout, Plan, Task

TEXT = """
protocol = "pisces"
seed = 3
[clients]
count = 6
concurrency = 3
[data]
dataset = "digits"
{data}
[model]
name = "{model}"
[train]
epochs = 2
batch_size = 16
momentum = 0.5
weight_decay = 0.001
clip_norm = 2.0
[stop]
versions = 2
"""


def a_config(model: str = "mlp", data: str = "") -> config.Config:
    return config.parse(TEXT.format(model=model, data=data))


@pytest.mark.parametrize("model", ["mlp", "small_cnn"])
@pytest.mark.parametrize("data", ["", 'redraw = true\npartition = "iid"\nsize = 40'])
def test_the_same_task_gives_the_same_bits_as_a_simulation(model: str, data: str) -> None:
    made = a_config(model, data)
    simulation = build.simulation(made)
    began = flatten(simulation.model)
    plan = Plan(2, 16, 0.1, 0.01)
    task = Task(7, 4, 0, began, plan, 99)
    parts = (simulation.model, simulation.data, simulation.goal.loss, simulation.recipe)
    (outcome,) = SequentialTrainer(*parts).train([task])

    shard = local.shard_of(world.federated_data(made), 4)
    here = local.Local(shard, "cpu")
    here.prepare(Welcome(4, "run", began.layout, settings_of(made, simulation.data)))
    trained = here.train(Job("run", Work(7, 0, plan, 99), began.flat.numpy(), began.layout))
    assert (trained.flat == outcome.weights.flat.numpy()).all()
    assert not (trained.flat == began.flat.numpy()).all()
    assert trained.report == outcome.report
    assert trained.report.num_examples == shard.num_examples[0]


@pytest.fixture
def scene() -> tuple[config.Config, FederatedData, Layout]:
    made = a_config()
    data = world.federated_data(made)
    return made, local.shard_of(data, 0), flatten(world.initial_model(made, data)).layout


def test_called_off_it_ends_and_pulled_it_hands_in(
    scene: tuple[config.Config, FederatedData, Layout],
) -> None:
    made, data, layout = scene
    here = local.Local(data, "cpu")
    here.prepare(Welcome(0, "run", layout, settings_of(made, data)))
    work = Work(1, 0, Plan(5, 4), 1)
    job = Job("run", work, np.zeros(layout.size, np.float32), layout)
    work.pull()
    assert here.train(job).report.num_steps == 1
    work.call_off()
    with pytest.raises(CalledOff):
        here.train(job)


def test_training_that_diverges_is_a_failure(
    scene: tuple[config.Config, FederatedData, Layout],
) -> None:
    made, data, layout = scene
    here = local.Local(data, "cpu")
    here.prepare(Welcome(0, "run", layout, settings_of(made, data)))
    began = np.full(layout.size, 1e38, np.float32)
    with pytest.raises(DataError, match="diverged"):
        here.train(Job("run", Work(1, 0, Plan(1, 4), 1), began, layout))


def changed(settings: str, **changes: Any) -> str:
    return json.dumps({**json.loads(settings), **changes})


def test_what_does_not_fit_is_said(scene: tuple[config.Config, FederatedData, Layout]) -> None:
    made, data, layout = scene
    settings = settings_of(made, data)
    wrong = {
        "does not say which model": (settings_of(made, data)[:-1], layout),
        "not say which model": ("", layout),
        "the server's model takes": (changed(settings, input_shape=[9]), layout),
        "the server knows 0 to 1": (changed(settings, num_classes=2), layout),
        "is not known here": (changed(settings, model={"name": "huge"}), layout),
        "is not the server's: .* and w ": (settings, LAYOUT),
        "tensors here, 1 there": (settings, Layout(layout.slices[:1])),
    }
    for rule, (told, theirs) in wrong.items():
        with pytest.raises((ConfigError, DataError), match=rule):
            local.Local(data, "cpu").prepare(Welcome(0, "run", theirs, told))


def test_a_client_that_does_not_fit_gives_up(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.welcome()
        assert await talk.hear() == Bye()

    pair = torch.zeros(3, 4), torch.zeros(3)
    with serving(script) as server, pytest.raises(ConfigError, match="does not say which model"):
        local.join(server.address, pair, insecure=True, name="a", keep=tmp_path)


def test_over_the_network(
    scene: tuple[config.Config, FederatedData, Layout], tmp_path: Path
) -> None:
    made, data, layout = scene

    async def script(talk: Talk) -> None:
        hello = await talk.welcome(settings=settings_of(made, data))
        assert hello.num_examples == len(data.inputs)
        await talk.order(1, np.zeros(layout.size, np.float32), plan=Plan(50_000, 1))
        await talk.say(Pull(1))
        result = await talk.hear()
        assert not isinstance(result, Failure)
        await talk.over()

    with serving(script, layout=layout) as server:
        outcome = local.join(server.address, data, insecure=True, name="a", keep=tmp_path)
    assert outcome.num_tasks == 1


# --- data of one's own ----------------------------------------------------------------------------


class Samples(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> Any:
        return np.full(2, i, np.float64), i


def test_pairs_and_datasets() -> None:
    for samples in ((np.eye(3, 2), np.arange(3)), (torch.eye(3, 2), torch.arange(3)), Samples()):
        data = local.own_data(samples)
        assert data.inputs.shape == (3, 2)
        assert (data.inputs.dtype, data.targets.dtype) == (torch.float32, torch.int64)
        assert data.targets.tolist() == [0, 1, 2]
        assert data.num_examples.tolist() == [3]


@pytest.mark.parametrize(
    "samples",
    [
        None,
        3,
        (torch.zeros(2),),
        (torch.zeros(2), torch.zeros(3)),
        (torch.zeros(0), torch.zeros(0)),
    ],
)
def test_what_is_no_data_is_said(samples: Any) -> None:
    with pytest.raises(DataError, match="data: "):
        local.own_data(samples)


def test_shards_are_those_there_are() -> None:
    data = replace(local.own_data((torch.zeros(3, 2), torch.zeros(3))))
    assert local.shard_of(data, 0).num_clients == 1
    for number in (-1, 1):
        with pytest.raises(ConfigError, match="from 0 to 0"):
            local.shard_of(data, number)

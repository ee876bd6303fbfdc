"""What is found out about studies before anything of them is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datafiles
import pytest

from pisces import build
from pisces.cli.checks import Checked, check
from pisces.config import Config
from pisces.errors import ConfigError, MissingPackageError
from pisces.parts import Simulation
from pisces.study.runs import Wish
from pisces.study.work import Place, open_study

STUDY = """
title = "Speed"
paper = "Figure 0"
says = "Nothing."
reference = "pisces"

[[variant]]
name = "pisces"
protocol = "pisces"

[[variant]]
name = "last"
protocol = "fedbuff"
set = ["{change}"]

[[case]]
name = "small"
config = "../small.toml"
target = 0.5

[[case]]
name = "mnist"
target = 0.9
"""
MNIST = """
[clients]
count = 2
concurrency = 2
[data]
dataset = "mnist"
partition = "natural"
[model]
hidden = [4]
"""
Look = Callable[..., Checked]


@pytest.fixture
def look(folder: Path, small: str, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Check a study whose last variant changes something."""
    monkeypatch.setenv("PISCES_DATA", str(folder / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def checked(change: str = "tick_s=0", names: Sequence[str] = ("speed",)) -> Checked:
        for name in names:
            (folder / name).mkdir()
            (folder / name / "study.toml").write_text(STUDY.replace("{change}", change))
            (folder / name / "mnist.toml").write_text(MNIST)
        wish, place = Wish(build.resolved, lambda _config: ()), Place(folder / "runs", False)
        return check([open_study(folder / name, place, wish) for name in names])

    return checked


def cases(checked: Checked) -> set[str]:
    return {run.case for _, run in checked.runnable}


def test_a_case_without_its_data_is_lacking(look: Look) -> None:
    checked = look()
    assert (cases(checked), len(checked.runnable)) == ({"small"}, 2 * 5)
    assert checked.lacking.keys() == {"speed/mnist"}
    assert "pisces data get mnist" in checked.lacking["speed/mnist"]


def test_writers_whom_nobody_names_are_lacking(look: Look, folder: Path) -> None:
    datafiles.mnist_idx(folder / "data" / "mnist")  # as the hub has it, too
    checked = look()
    assert cases(checked) == {"small"}
    assert "names no writers" in checked.lacking["speed/mnist"]


def test_with_its_data_it_can_be_run(look: Look, folder: Path) -> None:
    datafiles.mnist_npz(folder / "data" / "mnist")
    checked = look()
    assert cases(checked) == {"small", "mnist"}
    assert (checked.lacking, checked.spoilt) == ({}, {})


def test_a_package_that_is_not_installed_is_lacking(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_it(config: Config) -> None:
        raise MissingPackageError(f"{config.model.name} needs it: pip install 'pisces-fl[x]'")

    monkeypatch.setattr(build, "simulation", without_it)
    checked = look()
    assert checked.runnable == []
    assert checked.lacking["speed/small"] == "mlp needs it: pip install 'pisces-fl[x]'"


def test_data_that_cannot_be_read_is_spoilt(look: Look, folder: Path) -> None:
    data = datafiles.mnist_idx(folder / "data" / "mnist")
    damaged = next(data.glob("train-images*"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    checked = look()
    assert cases(checked) == {"small"}
    assert checked.lacking == {}
    assert damaged.name in checked.spoilt["speed/mnist"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("data.size=100000", "the clients' sizes ask for"),
        ("stop.metric=f1", "stop.metric"),
        ("protocols.fedbuff.buffer_size=50", "lower buffer_size"),
    ],
)
def test_a_wrong_setting_of_any_variant_is_an_error(look: Look, wrong: str, message: str) -> None:
    with pytest.raises(ConfigError, match="speed/small, last: ") as error:
        look(wrong)
    assert message in str(error.value)


def test_a_world_is_built_once(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    simulation = build.simulation

    def counted(config: Config) -> Simulation:
        built.append(config.data.dataset)
        return simulation(config)

    monkeypatch.setattr(build, "simulation", counted)
    look("protocols.fedbuff.buffer_size=2", names=("speed", "again"))
    assert sorted(built) == ["digits", "mnist"]

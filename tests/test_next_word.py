"""Next-word prediction over authors, from a config to the report, on a little language."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from texts import NUM_WORDS, tiny_text
from typer.testing import CliRunner

import pisces
from pisces import world
from pisces.build import simulation
from pisces.cli.commands import app
from pisces.config import Config, parse
from pisces.data.federated import FederatedData
from pisces.errors import ConfigError
from pisces.models.catalogue import MODELS, Entry
from pisces.models.lstm import lstm
from pisces.simulation import Result, run

TEXT = """
[clients]
count = 5
concurrency = 3
[data]
dataset = "tiny_text"
partition = "natural"
[model]
name = "lstm"
embedding = 8
units = 16
[train]
optimizer = "adam"
learning_rate = 0.02
batch_size = 4
device = "cpu"
backend = "sequential"
[latency]
kind = "uniform"
min_s = 1
max_s = 4
[evaluate]
every_s = 10
[stop]
time_s = 60
metric = "perplexity"
target = 8.0
"""


@pytest.fixture(autouse=True)
def _a_little_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast(dict[str, Any], world.DATASETS), "tiny_text", lambda _: tiny_text())


def config_of(*changes: str) -> Config:
    return parse(TEXT, changes)


def ran(*changes: str) -> Result:
    return run(simulation(config_of(*changes)), protocol="pisces")


# What the text above sets of lstm, back to its default.
NO_LSTM = ("model.embedding=96", "model.units=670")
SMALL_ALBERT = ("model.name=albert", "model.size=small", "train.learning_rate=1e-3", *NO_LSTM)


# --- a run ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["lstm", "albert"])
def test_a_model_learns_to_foretell(model: str) -> None:
    result = ran(*((*SMALL_ALBERT, "train.epochs=2") if model == "albert" else ()))
    curve = [value for _, value in result.curve("perplexity")]
    # An untrained model has all 20 words to guess from; one that knows the language about
    # exp(0.1 ln 20 + ...) = 1.9 of them, one word in ten being anybody's guess.
    assert curve[0] == pytest.approx(NUM_WORDS, rel=0.15)
    assert curve[-1] < 8
    assert result.summary["reason"] == "target"


def test_perplexity_and_accuracy_go_with_the_loss() -> None:
    result = ran("stop.time_s=5")
    for line in (line for line in result.lines if line["kind"] == "evaluated"):
        assert line["perplexity"] == pytest.approx(math.exp(line["loss"]))
        assert 0 <= line["accuracy"] <= 1
    inputs, targets = tiny_text().test_inputs, tiny_text().test_targets
    with torch.no_grad():
        right = (result.model(inputs).argmax(dim=-1) == targets).float().mean()
    assert result.summary["final"]["accuracy"] == pytest.approx(float(right))


def test_guided_selection_sees_a_loss_per_sample() -> None:
    reports = [line for line in ran("stop.time_s=10").lines if line["kind"] == "arrived"]
    assert reports
    assert all(r["loss_rms"] > r["loss"] > 0 for r in reports)  # samples differ


def test_albert_s_results_depend_on_the_seed_alone() -> None:
    changes = (*SMALL_ALBERT, "stop.time_s=2")
    one, two, other = ran(*changes), ran(*changes), ran(*changes, "seed=2")
    assert one.lines == two.lines
    assert one.lines != other.lines


@pytest.mark.parametrize("model", ["lstm", "albert"])
def test_a_pool_of_processes_gives_the_same_bits(model: str) -> None:
    changes = SMALL_ALBERT if model == "albert" else ()
    one, two = (
        ran(*changes, "stop.time_s=3", f"train.backend={b}") for b in ("sequential", "pool")
    )
    assert one.lines == two.lines
    assert any(line["kind"] == "arrived" for line in one.lines)


def test_samples_of_text_may_be_redrawn() -> None:
    result = ran("data.partition=iid", "data.size=6", "data.redraw=true", "stop.time_s=5")
    arrived = [line for line in result.lines if line["kind"] == "arrived"]
    assert {line["num_examples"] for line in arrived} == {6}


def test_poor_authors_are_left_out() -> None:
    # Authors have 4, 8, 12, 16, 20 and 24 samples.
    data = simulation(config_of("clients.count=3", "data.min_samples=16")).data
    assert sorted(data.num_examples) == [16, 20, 24]
    with pytest.raises(ConfigError, match="only 3 have 16 rows or more; ask for fewer"):
        simulation(config_of("clients.count=4", "data.min_samples=16"))


def test_talkative_authors_are_cut_short() -> None:
    changes = ("clients.count=3", "data.min_samples=16")
    whole, cut = (
        simulation(config_of(*changes, *more)).data for more in ((), ("data.max_samples=18",))
    )
    assert sorted(cut.num_examples) == [16, 18, 18]
    for client in range(3):
        (all_of_it, _), (first, _) = whole.client(client), cut.client(client)
        assert first.equal(all_of_it[:18])


@pytest.mark.skipif(
    not (Path(os.environ.get("PISCES_DATA", "")) / "stackexchange").is_dir(),
    reason="PISCES_DATA names no folder with stackexchange",
)
def test_real_authors() -> None:
    result = ran(
        *("data.dataset=stackexchange", "data.min_samples=20", "data.vocabulary=200"),
        *("data.sequence_length=8", "stop.time_s=10", "stop.target=1"),
    )
    curve = [value for _, value in result.curve("perplexity")]
    assert curve[0] == pytest.approx(200, rel=0.1)  # nothing is known of 200 words
    assert curve[-1] < 150


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.name=mlp", "mlp predicts labels, but the dataset asks for words; use lstm or alb"),
        ("data.partition=dirichlet", "dirichlet divides by labels, .*; use natural or iid"),
        ("data.corrupted=0.5", "only integer labels, one per sample, can be flipped, not targets"),
        ("stop.metric=perplexit", "stop.metric: must be one of accuracy, loss, perplexity, not"),
    ],
)
def test_what_text_cannot_have_is_refused(change: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        simulation(config_of(change))


def test_a_new_model_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def little(shape: tuple[int, ...], words: int, units: int) -> torch.nn.Module:
        assert shape == (8,)
        return lstm(words, embedding=4, units=units)

    row = Entry(little, ("units",), "next_word")
    monkeypatch.setitem(cast(dict[str, Any], MODELS), "little", row)
    model = simulation(config_of("model.name=little", NO_LSTM[0])).model
    assert model.get_parameter("back.weight").shape == (4, 16)
    with pytest.raises(ConfigError, match="use lstm or albert or little"):
        simulation(config_of("model.name=mlp"))


def test_perplexity_is_taken() -> None:
    s = simulation(config_of())
    with pytest.raises(ConfigError, match="may not be called 'perplexity': rename it"):
        replace(s, metrics={"perplexity": lambda _outputs, _targets: 1.0})


def test_pictures_have_no_perplexity() -> None:
    changes = ("data.dataset=digits", "data.partition=iid", "model.name=mlp", *NO_LSTM)
    with pytest.raises(ConfigError, match="must be one of accuracy, loss, not 'perplexity'"):
        simulation(config_of(*changes))


# --- from Python ----------------------------------------------------------------------------------


def test_text_of_ones_own() -> None:
    text = tiny_text()
    owner = np.asarray(text.natural)
    authors = [(text.inputs[owner == a], text.targets[owner == a]) for a in range(4)]
    test = (text.test_inputs, text.test_targets)
    result = pisces.simulate(
        "fedavg",
        model=lstm(NUM_WORDS, 8, 16),
        clients=FederatedData.from_clients(authors, test, "next_word"),
        stop=pisces.Stop(versions=2),
        concurrency=2,
        backend="sequential",
        device="cpu",
    )
    assert result.summary["final"].keys() == {"accuracy", "loss", "perplexity"}


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    (tmp_path / "text.toml").write_text(TEXT)
    call("run", tmp_path / "text.toml", "--out", tmp_path / "r", "-q")
    return tmp_path / "r"


def call(*args: Any) -> str:
    done = CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def test_evaluate_tells_perplexity(finished: Path) -> None:
    found = json.loads(call("evaluate", finished, "--json"))
    final = json.loads((finished / "summary.json").read_text())["final"]
    assert found["test"] == pytest.approx(final)
    clients = found["clients"]
    assert clients["max"] >= clients["worst_decile"] >= clients["median"] > 1  # more is worse
    assert "min" not in clients
    table = call("evaluate", finished)
    for label in ("test perplexity", "perplexity on a client's own data, mean", "worst client"):
        assert label in table


def test_report_and_plots_tell_perplexity(finished: Path) -> None:
    assert "perplexity" in call("report", finished)
    assert (finished / "perplexity.png").stat().st_size > 1000

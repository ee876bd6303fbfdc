"""Models that foretell the next word: their sizes, and that none looks ahead."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from pisces.errors import ConfigError, MissingPackageError
from pisces.models.albert import albert
from pisces.models.flat import flatten, layout_of
from pisces.models.lstm import lstm
from pisces.objective import next_word_loss

MODELS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: lstm(30, embedding=8, units=12),
    "albert": lambda: albert((9,), 30, "small"),
}
every_model = pytest.mark.parametrize("name", MODELS)


def made(name: str, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return MODELS[name]()


def words(num: int = 4, length: int = 9) -> torch.Tensor:
    return torch.randint(30, (num, length), generator=torch.Generator().manual_seed(1))


def num_parameters(model: nn.Module) -> int:
    return layout_of(model).num_parameters


def albert_by_hand(words: int, narrow: int, wide: int, inner: int) -> int:
    """Embeddings of words, 512 places and 2 kinds, one shared layer, and a head tied to words."""
    embeddings = (words + 512 + 2) * narrow + 2 * narrow + narrow * wide + wide
    attention = 4 * (wide * wide + wide) + 2 * wide
    layer = attention + wide * inner + inner + inner * wide + wide + 2 * wide
    head = wide * narrow + narrow + 2 * narrow + words
    return embeddings + layer + head


def test_the_published_sizes() -> None:
    # 10 004 x 96, 4 x 670 (96 + 670 + 2), 670 x 96 + 96, 96 x 10 004 + 10 004
    assert num_parameters(lstm(10_004)) == 960_384 + 2_058_240 + 64_416 + 970_388
    assert num_parameters(albert((32,), 200, "small")) == albert_by_hand(200, 64, 128, 512)
    base = albert((32,), 30_000, "base")
    assert num_parameters(base) == albert_by_hand(30_000, 128, 768, 3072) == 11_221_680


@every_model
def test_scores_of_every_word_at_each_place(name: str) -> None:
    assert made(name)(words()).shape == (4, 9, 30)


@every_model
@pytest.mark.parametrize("place", [0, 4, 7])
def test_no_place_sees_the_words_after_it(name: str, place: int) -> None:
    model, text = made(name).eval(), words()
    changed = text.clone()
    changed[:, place + 1 :] = (changed[:, place + 1 :] + 7) % 30
    before, after = model(text), model(changed)
    assert torch.equal(before[:, : place + 1], after[:, : place + 1])
    assert not torch.allclose(before[:, place + 1], after[:, place + 1])


@every_model
def test_each_place_sees_the_words_before_it(name: str) -> None:
    model, text = made(name).eval(), words()
    changed = text.clone()
    changed[:, 0] = (changed[:, 0] + 7) % 30
    assert not torch.allclose(model(text)[:, -1], model(changed)[:, -1], atol=1e-6)


@every_model
def test_every_parameter_learns(name: str) -> None:
    model, text = made(name), words()
    next_word_loss(model(text[:, :-1]), text[:, 1:]).mean().backward()
    assert all(p.grad is not None for p in model.parameters())


@every_model
def test_the_caller_s_seed_decides_the_weights(name: str) -> None:
    first, again, other = (flatten(made(name, seed)).flat for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@every_model
def test_the_weights_are_all_there_is(name: str) -> None:
    """Saved and loaded by name, as a run does: nothing that matters is left behind."""
    model, other = made(name, 0), made(name, 1)
    other.load_state_dict({key: value.clone() for key, value in model.state_dict().items()})
    assert torch.equal(other.eval()(words()), model.eval()(words()))


def test_albert_s_scores_come_from_its_embeddings() -> None:
    aliases = dict(layout_of(made("albert")).aliases)
    tied = "masked.albert.embeddings.word_embeddings.weight"
    assert aliases["masked.predictions.decoder.weight"] == tied


@pytest.mark.parametrize("shape", [(513,), (1, 8, 8), ()])
def test_albert_takes_texts_it_has_places_for(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ConfigError, match=r"texts of 1 to 512 words, .*; set data\.sequence_length"
    ):
        albert(shape, 30)


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        MissingPackageError, match=r"albert needs .* pip install 'pisces-fl\[text\]'"
    ):
        albert((9,), 30)

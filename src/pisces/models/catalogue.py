"""The models there are: a row each. A new one is one more row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn

from pisces.models.albert import albert
from pisces.models.cnn import small_cnn
from pisces.models.femnist_cnn import femnist_cnn
from pisces.models.lenet5 import lenet5
from pisces.models.lstm import lstm
from pisces.models.mlp import mlp
from pisces.models.resnet18 import resnet18
from pisces.types import Objective


@dataclass(frozen=True, slots=True)
class Entry:
    """A model: made of an input's shape, how many labels or words there are, and its own `keys`.

    They are keys of the config's table `model`, and arguments of that name.
    """

    make: Callable[..., nn.Module]
    keys: tuple[str, ...] = ()
    predicts: Objective = "labels"


MODELS: Mapping[str, Entry] = {
    "mlp": Entry(mlp, ("hidden",)),
    "small_cnn": Entry(small_cnn),
    "lenet5": Entry(lenet5),
    "femnist_cnn": Entry(femnist_cnn),
    "resnet18": Entry(resnet18, ("norm",)),
    "lstm": Entry(lambda _, words, **own: lstm(words, **own), ("embedding", "units"), "next_word"),
    "albert": Entry(albert, ("size",), "next_word"),
}

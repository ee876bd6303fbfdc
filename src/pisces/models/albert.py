"""ALBERT (Lan et al., "ALBERT: A Lite BERT", ICLR 2020) that foretells the next word.

One layer is used over and over, and embeddings are narrower than the layers; the scores of words
come from the embeddings, too. It is built from a configuration of the `transformers` package, with
weights drawn at random: nothing is downloaded.

Differs from the paper: ALBERT sees the whole text and fills in words left out. Here no place sees
the words after it, so that the next word is a fair question; there is no task of sentence order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn

from pisces.errors import ConfigError, MissingPackageError

Size = Literal["small", "base"]

_MOST_WORDS = 512  # of a text: the places that ALBERT knows
_SIZES: Mapping[Size, Mapping[str, int]] = {
    "small": {
        "embedding_size": 64,
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 512,
    },
    "base": {  # as published (albert-base-v2)
        "embedding_size": 128,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
}


def albert(input_shape: Sequence[int], vocabulary: int, size: Size = "base") -> Albert:
    """For 30 000 words 11.2 million parameters (base) or 2.2 million (small)."""
    if len(input_shape) != 1 or not 1 <= input_shape[0] <= _MOST_WORDS:
        raise ConfigError(
            f"albert takes texts of 1 to {_MOST_WORDS} words, not inputs of {tuple(input_shape)}; "
            "set data.sequence_length"
        )
    if size not in _SIZES:
        raise ConfigError(f"model.size: must be small or base, not {size!r}")
    return Albert(vocabulary, **_SIZES[size])


class Albert(nn.Module):
    """Scores of every word, at each place in a text, given the words up to it."""

    def __init__(self, vocabulary: int, **sizes: int) -> None:
        super().__init__()
        self.masked = _masked_lm(
            vocab_size=vocabulary,
            max_position_embeddings=_MOST_WORDS,
            pad_token_id=None,  # no word is special: texts are not filled up
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="eager",  # what torch.func can vectorise
            **sizes,
        )

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """(n, length) words to (n, length, vocabulary) scores."""
        mask = _hides_later(words.shape[1], self.masked.get_input_embeddings().weight)
        scores: torch.Tensor = self.masked(words, attention_mask=mask).logits
        return scores


def _hides_later(length: int, like: torch.Tensor) -> torch.Tensor:
    """What is added to attention: nothing, or all but minus infinity for words to come."""
    shape, least = (1, 1, length, length), torch.finfo(like.dtype).min
    return torch.full(shape, least, dtype=like.dtype, device=like.device).triu(1)


def _masked_lm(**settings: Any) -> Any:
    try:
        from transformers import AlbertConfig, AlbertForMaskedLM
    except ImportError as error:
        raise MissingPackageError(
            "model.name: albert needs the transformers package: pip install 'pisces-fl[text]'"
        ) from error
    return AlbertForMaskedLM(AlbertConfig(**settings))

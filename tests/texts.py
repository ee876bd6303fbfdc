"""A little language: text whose next word can be learned, by authors who differ."""

from __future__ import annotations

import numpy as np
import torch

from pisces.data.datasets import Dataset
from pisces.seeds import generator

NUM_WORDS = 20


def tiny_text(num_authors: int = 6, length: int = 8) -> Dataset:
    """After word w comes w + 1, seldom any; author a has 4 (a + 1) samples, the test set 12."""
    sizes = [4 * (author + 1) for author in range(num_authors)]
    words = _sentences(sum(sizes) + 12, length + 1)
    train, test = words[:-12], words[-12:]
    return Dataset(
        inputs=train[:, :-1].contiguous(),
        targets=train[:, 1:].contiguous(),
        test_inputs=test[:, :-1].contiguous(),
        test_targets=test[:, 1:].contiguous(),
        num_classes=NUM_WORDS,
        natural=np.repeat(np.arange(num_authors), sizes),
        objective="next_word",
    )


def _sentences(num: int, length: int) -> torch.Tensor:
    rng = generator(0, "text")
    steps = np.where(
        rng.random((num, length)) < 0.9, 1, rng.integers(NUM_WORDS, size=(num, length))
    )
    steps[:, 0] = rng.integers(NUM_WORDS, size=num)
    return torch.from_numpy(np.cumsum(steps, axis=1) % NUM_WORDS)

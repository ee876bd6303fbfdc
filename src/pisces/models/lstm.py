"""An LSTM that foretells the next word (Hochreiter and Schmidhuber, Neural Computation 1997).

Layers and sizes are those of the StackOverflow task of Reddi et al. ("Adaptive Federated
Optimization", ICLR 2021): words become 96 numbers, one layer of 670 units reads them, and what it
remembers is brought back to 96 numbers before the scores of all words.
"""

from __future__ import annotations

import torch
from torch import nn


def lstm(vocabulary: int, embedding: int = 96, units: int = 670) -> Lstm:
    """4 053 428 parameters for 10 004 words: the paper's and 2 680, for torch has a second bias."""
    return Lstm(vocabulary, embedding, units)


class Lstm(nn.Module):
    """Scores of every word, at each place in a text, given the words up to it."""

    def __init__(self, vocabulary: int, embedding: int, units: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, units, batch_first=True)
        self.back = nn.Linear(units, embedding)
        self.scores = nn.Linear(embedding, vocabulary)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """(n, length) words to (n, length, vocabulary) scores."""
        remembered, _ = self.lstm(self.embedding(words))
        scores: torch.Tensor = self.scores(self.back(remembered))
        return scores

"""Every random draw comes from a generator derived from the run's seed and a name.

Two protocols compared under one seed therefore meet the same partitions, the same latencies and,
for a client's k-th task, the same shuffles, whatever order they work in.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the thing called `names`, the same on every machine."""
    text = "/".join([str(seed), *map(str, names)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """A numpy generator for the thing called `names`."""
    return np.random.Generator(np.random.PCG64(derive(seed, *names)))


def nth_draw(number: int, seed: int, *names: str | int) -> float:
    """What `generator(seed, *names).random(n)[number]` is, without drawing those before it."""
    bits = np.random.PCG64(derive(seed, *names))
    bits.advance(number)
    return float(np.random.Generator(bits).random())

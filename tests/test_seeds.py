"""Seeds: the same name gives the same draws everywhere, another name gives others."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.seeds import derive, generator


def test_the_seed_of_a_name_never_changes() -> None:
    # Half of the eight bytes, little-endian, that blake2b makes of "1/train/2/3": written down
    # once, because another number here would be another outcome of every recorded run.
    digest = hashlib.blake2b(b"1/train/2/3", digest_size=8).digest()
    assert int.from_bytes(digest, "little") // 2 == 3143356691650706550
    assert derive(1, "train", 2, 3) == 3143356691650706550


def test_equal_names_draw_alike() -> None:
    one, other = generator(1, "select"), generator(1, "select")
    assert one is not other
    assert np.array_equal(one.random(5), other.random(5))


def test_seeds_and_names_tell_generators_apart() -> None:
    makers = [(1,), (2,), (1, "select"), (1, "aggregate"), (1, "select", 0), (1, "select", 1)]
    draws = {generator(seed, *names).random() for seed, *names in makers}
    assert len(draws) == len(makers)


def test_neighbouring_numbers_do_not_run_together() -> None:
    assert derive(1, "train", 1, 23) != derive(1, "train", 12, 3)
    assert derive(11, "train") != derive(1, 1, "train")


@settings(max_examples=50)
@given(seed=st.integers(0, 2**63), name=st.text(max_size=8), number=st.integers(0, 10**9))
def test_every_seed_fits_torch_and_numpy(seed: int, name: str, number: int) -> None:
    assert 0 <= derive(seed, name, number) < 2**63

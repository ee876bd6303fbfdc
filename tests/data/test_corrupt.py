"""Flipped labels: all of the chosen clients' samples, never anybody else's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.config import parse
from pisces.data.corrupt import flip_labels
from pisces.data.partition import equal_sizes, iid
from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.world import corrupted_clients, federated_data

TARGETS = torch.arange(200) % 10
ROWS = iid(200, equal_sizes(200, 20), generator(0))


@given(st.floats(0, 1), st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_exactly_the_chosen_clients_are_spoilt(share: float, seed: int) -> None:
    before = TARGETS.clone()
    flipped, clients = flip_labels(TARGETS, ROWS, share, 10, generator(seed))
    assert len(clients) == round(20 * share)
    assert torch.equal(TARGETS, before)
    assert flipped.dtype == TARGETS.dtype
    assert 0 <= int(flipped.min()) <= int(flipped.max()) < 10
    for client, rows in enumerate(ROWS):
        changed = flipped[rows] != TARGETS[rows]
        assert changed.all() if client in clients else not changed.any()


def test_wrong_labels_are_drawn_evenly_from_the_others() -> None:
    targets = torch.zeros(9000, dtype=torch.int64)
    flipped, _ = flip_labels(targets, [np.arange(9000)], 1.0, 10, generator(0))
    # 1000 of each other label, sd 30
    assert torch.bincount(flipped, minlength=10).numpy() == pytest.approx([0] + [1000] * 9, abs=130)


def test_a_larger_share_spoils_the_same_clients_in_the_same_way() -> None:
    little, few = flip_labels(TARGETS, ROWS, 0.1, 10, generator(3))
    more, many = flip_labels(TARGETS, ROWS, 0.5, 10, generator(3))
    assert set(few.tolist()) < set(many.tolist())
    assert (np.diff(many) > 0).all()
    rows = np.concatenate([ROWS[client] for client in few])
    assert torch.equal(little[rows], more[rows])


def test_the_choice_is_a_draw() -> None:
    chosen = {tuple(flip_labels(TARGETS, ROWS, 0.2, 10, generator(s))[1]) for s in range(5)}
    assert len(chosen) > 1
    again = [flip_labels(TARGETS, ROWS, 0.2, 10, generator(0))[0] for _ in range(2)]
    assert torch.equal(again[0], again[1])


def test_labels_of_a_narrow_type_do_not_overflow() -> None:
    targets = torch.full((50,), 199, dtype=torch.uint8)
    flipped, _ = flip_labels(targets, [np.arange(50)], 1.0, 200, generator(0))
    assert flipped.dtype == torch.uint8
    assert 0 <= int(flipped.min()) <= int(flipped.max()) < 199


def test_shared_rows_may_be_spoilt_only_among_the_spoilt() -> None:
    shared = [np.arange(10), np.arange(5, 15)]
    with pytest.raises(ConfigError, match="without overlap"):
        flip_labels(TARGETS, shared, 0.5, 10, generator(0))
    flipped, clients = flip_labels(TARGETS, shared, 1.0, 10, generator(0))
    assert clients.tolist() == [0, 1]
    assert (flipped[:15] != TARGETS[:15]).all()


@pytest.mark.parametrize(
    ("targets", "share", "classes", "words"),
    [
        (TARGETS, -0.1, 10, "not -0.1"),
        (TARGETS, 1.1, 10, "not 1.1"),
        (TARGETS, math.nan, 10, "not nan"),
        (TARGETS, 0.1, 9, "within 0 .. 8, not 0 .. 9"),
        (TARGETS - 1, 0.1, 10, "within 0 .. 9, not -1 .. 8"),
        (TARGETS, 0.1, 1, "at least 2 classes, not 1"),
        (TARGETS.float(), 0.1, 10, "torch.float32"),
        (TARGETS.bool(), 0.1, 2, "torch.bool"),
        (TARGETS.view(20, 10), 0.1, 10, r"\(20, 10\)"),
    ],
)
def test_impossible_corruption_is_refused(
    targets: torch.Tensor, share: float, classes: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        flip_labels(targets, ROWS, share, classes, generator(0))


def test_who_is_corrupted_is_known_without_the_data() -> None:
    config = parse("seed = 3\n[clients]\ncount = 30\n[data]\ncorrupted = 0.2")
    clean, spoilt = federated_data(parse("seed = 3\n[clients]\ncount = 30")), federated_data(config)
    changed = {
        client
        for client, rows in enumerate(spoilt.rows)
        if (spoilt.targets[rows] != clean.targets[rows]).any()
    }
    assert set(corrupted_clients(config).tolist()) == changed
    assert len(changed) == 6

"""Partitions: every client its size, no row twice, skewed as asked."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.data import partition
from pisces.data.partition import Rows
from pisces.errors import ConfigError
from pisces.seeds import generator

LABELS = np.tile(np.arange(10), 600)


def assert_disjoint(rows: Rows, sizes: list[int], num_rows: int) -> None:
    assert [len(r) for r in rows] == list(sizes)
    assert all(r.dtype == np.int64 and (np.diff(r) > 0).all() for r in rows)
    owned = np.concatenate(rows)
    assert len(np.unique(owned)) == len(owned)
    assert owned.min() >= 0
    assert owned.max() < num_rows


def num_labels(rows: Rows) -> float:
    return float(np.mean([len(np.unique(LABELS[r])) for r in rows]))


def largest_share(rows: Rows) -> float:
    return float(np.mean([np.bincount(LABELS[r]).max() / len(r) for r in rows]))


some_sizes = st.lists(st.integers(1, 30), min_size=1, max_size=12)


@given(some_sizes, st.integers(0, 20), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_iid_hands_out_different_rows(sizes: list[int], spare: int, seed: int) -> None:
    num_rows = sum(sizes) + spare
    assert_disjoint(partition.iid(num_rows, sizes, generator(seed)), sizes, num_rows)


@given(some_sizes, st.integers(0, 20), st.integers(1, 6), st.floats(1e-12, 1e3), st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_dirichlet_hands_out_different_rows(
    sizes: list[int], spare: int, classes: int, alpha: float, seed: int
) -> None:
    rng = generator(seed)
    labels = rng.integers(0, classes, sum(sizes) + spare)
    rows = partition.dirichlet(labels, sizes, alpha, rng)
    assert_disjoint(rows, sizes, len(labels))


def test_iid_is_a_draw() -> None:
    rows = partition.iid(1000, [100, 100], generator(0))
    again = partition.iid(1000, [100, 100], generator(0))
    other = partition.iid(1000, [100, 100], generator(1))
    assert all((a == b).all() for a, b in zip(rows, again, strict=True))
    assert (rows[0] != other[0]).any()
    # uniform over 0 .. 999: mean 499.5, sd of the mean of 100 is 27
    assert rows[0].mean() == pytest.approx(499.5, abs=110)


def test_dirichlet_is_a_draw() -> None:
    drawn = [partition.dirichlet(LABELS, [50] * 4, 1.0, generator(s)) for s in (0, 0, 1)]
    assert all((a == b).all() for a, b in zip(drawn[0], drawn[1], strict=True))
    assert any((a != b).any() for a, b in zip(drawn[0], drawn[2], strict=True))


def test_the_smaller_alpha_the_more_skew() -> None:
    sizes = [50] * 60
    shares = [
        largest_share(partition.dirichlet(LABELS, sizes, alpha, generator(0)))
        for alpha in (1e-3, 0.1, 1.0, 100.0)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.95
    assert shares[-1] < 0.25  # the largest of 10 labels in 50 even draws is about 9


def test_dirichlet_follows_the_mixture_it_drew() -> None:
    rows = partition.dirichlet(LABELS, [300], 0.5, generator(7))
    rng = generator(7)
    rng.permutation(len(LABELS))  # the shuffle of the pool comes first
    mixture = rng.dirichlet(np.full(10, 0.5))
    # a share of 300 draws has a sd of at most sqrt(0.25 / 300) = 2.9 %
    assert np.bincount(LABELS[rows[0]], minlength=10) / 300 == pytest.approx(mixture, abs=0.1)


def test_alpha_may_differ_between_clients() -> None:
    alphas = [1e-3] * 10 + [1e3] * 10
    rows = partition.dirichlet(LABELS, [100] * 20, alphas, generator(0))
    assert num_labels(rows[:10]) < 2
    assert num_labels(rows[10:]) == 10


def test_a_label_that_runs_out_is_replaced_by_what_is_left() -> None:
    labels = np.array([0] * 3 + [1] * 20)
    rows = partition.dirichlet(labels, [10, 13], 1e-3, generator(0))
    assert_disjoint(rows, [10, 13], 23)
    assert sorted(np.concatenate(rows)) == list(range(23))


def test_a_client_without_its_label_takes_to_one_other() -> None:
    # 5 rows of each label: at so small an alpha a client of 10 must hold exactly 2 of 10 labels
    labels = np.tile(np.arange(10), 5)
    rows = partition.dirichlet(labels, [10] * 5, 1e-300, generator(0))
    assert [len(np.unique(labels[r])) for r in rows] == [2] * 5


def test_labels_may_be_any_values() -> None:
    labels = np.array([-4, 70, 70, -4, 70, 9])
    assert_disjoint(partition.dirichlet(labels, [2, 4], 1.0, generator(0)), [2, 4], 6)


@pytest.mark.parametrize("name", ["iid", "dirichlet"])
def test_with_overlap_only_a_client_s_own_rows_differ(name: str) -> None:
    if name == "iid":
        rows = partition.iid(100, [80, 80, 80], generator(0), overlap=True)
    else:
        labels = np.tile([0, 1], 50)
        rows = partition.dirichlet(labels, [80, 80, 80], 1.0, generator(0), overlap=True)
    for own in rows:
        assert_disjoint((own,), [80], 100)
    assert len(np.unique(np.concatenate(rows))) <= 100
    assert (rows[0] != rows[1]).any()


def test_overlap_keeps_the_skew() -> None:
    rows = partition.dirichlet(LABELS, [500] * 40, 1e-3, generator(0), overlap=True)
    assert largest_share(rows) > 0.95


def test_sixty_thousand_rows_over_two_hundred_clients_is_quick() -> None:
    labels = np.tile(np.arange(10), 6000)
    start = time.perf_counter()
    rows = partition.dirichlet(labels, partition.equal_sizes(60_000, 200), 1.0, generator(0))
    assert time.perf_counter() - start < 1.0
    assert_disjoint(rows, [300] * 200, 60_000)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda rng: partition.iid(10, [6, 5], rng), "ask for 11 rows, but there are 10; .*fewer"),
        (lambda rng: partition.iid(10, [11], rng, overlap=True), "ask for 11 rows"),
        (lambda rng: partition.iid(10, [3, 0], rng), "at least 1 per client"),
        (lambda rng: partition.iid(10, [], rng), "at least 1 per client"),
        (lambda rng: partition.iid(10, 3, rng), "at least 1 per client"),
        (lambda rng: partition.dirichlet([0, 1], [3], 1.0, rng), "3 rows, but there are 2"),
        (lambda rng: partition.dirichlet([0, 1], [1], 0.0, rng), "alpha must be above 0"),
        (lambda rng: partition.dirichlet([0, 1], [1], math.nan, rng), "alpha must be above 0"),
        (lambda rng: partition.dirichlet([0, 1], [1], math.inf, rng), "alpha must be above 0"),
        (lambda rng: partition.dirichlet([0, 1], [1], [1.0, 1.0], rng), "one for each of the 1"),
    ],
)
def test_partitions_refuse(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=words):
        make(generator(0))


# --- pools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [None, 0.1, [0.1, 1.0, 100.0]])
def test_a_pool_has_room_for_many_epochs(alpha: float | list[float] | None) -> None:
    sizes = [10, 400, 3]
    if alpha is None:
        pools = partition.iid_pools(len(LABELS), sizes, generator(0))
    else:
        pools = partition.dirichlet_pools(LABELS, sizes, alpha, generator(0))
    assert [len(pool) for pool in pools] == [200, 8000, 60]  # 20 times as many
    assert all(pool.min() >= 0 and pool.max() < len(LABELS) for pool in pools)
    assert all(pool.dtype == np.int64 for pool in pools)


def test_any_part_of_a_pool_has_the_mixture() -> None:
    (pool,) = partition.dirichlet_pools(LABELS, [1000], 1.0, generator(1))
    first, whole = (
        np.bincount(LABELS[part], minlength=10) / len(part) for part in (pool[:1000], pool)
    )
    # A share p of 1000 has a standard deviation of at most sqrt(0.25 / 1000) = 0.016.
    assert np.abs(first - whole).max() < 0.05
    assert whole.max() - whole.min() > 0.1  # there is a mixture to have


def test_rows_of_a_label_are_drawn_alike() -> None:
    # Label 7 has rows 0 and 3, label 5 the others: each is drawn in half of its label's draws.
    labels = np.array([7, 5, 5, 7])
    (pool,) = partition.dirichlet_pools(labels, [500], 1e3, generator(2))
    shares = np.bincount(pool, minlength=4) / len(pool)
    assert shares == pytest.approx([0.25] * 4, abs=0.02)


def test_a_pool_follows_a_small_alpha() -> None:
    pools = partition.dirichlet_pools(LABELS, [50] * 20, 1e-3, generator(3))
    assert largest_share(pools) > 0.95


def test_pools_refuse_what_partitions_refuse() -> None:
    with pytest.raises(ConfigError, match="at least 1 per client"):
        partition.iid_pools(10, [0], generator(0))
    with pytest.raises(ConfigError, match="alpha must be above 0"):
        partition.dirichlet_pools(LABELS, [5], 0.0, generator(0))


# --- natural clients ------------------------------------------------------------------------------


def test_natural_clients_keep_their_own_rows() -> None:
    ids = np.array([7, 3, 7, 9, 3, 7])
    rows = partition.natural(ids, 3, generator(0))
    assert sorted(r.tolist() for r in rows) == [[0, 2, 5], [1, 4], [3]]
    assert all(r.dtype == np.int64 for r in rows)


def test_natural_chooses_among_those_with_enough_rows() -> None:
    ids = np.repeat(np.arange(50), np.arange(1, 51))  # client i has i + 1 rows
    chosen = [partition.natural(ids, 5, generator(s), min_size=20) for s in range(2)]
    assert all(len(r) >= 20 and len(np.unique(ids[r])) == 1 for rows in chosen for r in rows)
    assert_disjoint(chosen[0], [len(r) for r in chosen[0]], len(ids))
    assert [len(r) for r in chosen[0]] != [len(r) for r in chosen[1]]


def test_rich_natural_clients_keep_their_first_rows() -> None:
    ids = np.array([7, 3, 7, 9, 3, 7])
    rows = partition.natural(ids, 3, generator(0), max_size=2)
    assert sorted(r.tolist() for r in rows) == [[0, 2], [1, 4], [3]]
    # Those with enough are counted before anything is cut: client 7, with 3 rows.
    (one,) = partition.natural(ids, 1, generator(0), min_size=3, max_size=1)
    assert one.tolist() == [0]
    # The same clients are drawn, cut or not.
    whole, cut = (partition.natural(ids, 2, generator(4), max_size=most) for most in (None, 1))
    assert [r[:1].tolist() for r in whole] == [r.tolist() for r in cut]


@pytest.mark.parametrize("most", [0, -1])
def test_natural_clients_are_not_cut_to_nothing(most: int) -> None:
    with pytest.raises(ConfigError, match=f"at least one row, not {most}"):
        partition.natural([7], 1, generator(0), max_size=most)


def test_too_few_natural_clients_are_counted() -> None:
    words = "3 clients were asked for, but of the 3 in the data only 2 have 2 rows or more"
    with pytest.raises(ConfigError, match=words):
        partition.natural([7, 3, 7, 9, 3, 7], 3, generator(0), min_size=2)
    with pytest.raises(ConfigError, match="at least one client, not 0"):
        partition.natural([7], 0, generator(0))


# --- sizes and mixtures ---------------------------------------------------------------------------


def test_equal_sizes() -> None:
    assert partition.equal_sizes(100, 3).tolist() == [33, 33, 33]
    assert partition.equal_sizes(100, 3, size=50).tolist() == [50, 50, 50]


@pytest.mark.parametrize(("rows", "clients", "size"), [(3, 4, None), (3, 0, None), (3, 1, 0)])
def test_equal_sizes_refuses(rows: int, clients: int, size: int | None) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        partition.equal_sizes(rows, clients, size)


def test_lognormal_sizes_have_their_median_and_spread() -> None:
    sizes = partition.lognormal_sizes(2000, 190, 0.6, generator(0))
    assert np.median(sizes) == pytest.approx(190, rel=0.06)
    assert np.log(sizes).std() == pytest.approx(0.6, rel=0.06)
    assert sizes.dtype == np.int64


def test_lognormal_sizes_shrink_to_their_total() -> None:
    wide = partition.lognormal_sizes(100, 50, 1.0, generator(0), min_size=10)
    tight = partition.lognormal_sizes(100, 50, 1.0, generator(0), min_size=10, max_total=3000)
    assert wide.sum() > 3000
    assert 3000 - 100 < tight.sum() <= 3000  # rounding down loses less than one row each
    # above the least, everybody loses the same share: 2000 of what there was
    expected = 10 + (wide - 10) * 2000 / (wide - 10).sum()
    assert tight == pytest.approx(expected, abs=1)
    free = partition.lognormal_sizes(100, 50, 1.0, generator(0), min_size=10, max_total=10**9)
    assert free.tolist() == wide.tolist()


def test_lognormal_sizes_do_not_overflow() -> None:
    sizes = partition.lognormal_sizes(50, 100, 200.0, generator(0), max_total=1000)
    assert sizes.min() >= 1
    assert sizes.sum() <= 1000


@given(st.integers(1, 40), st.floats(0.5, 1e4), st.floats(0, 3), st.integers(1, 9), st.integers(0))
@settings(max_examples=40, deadline=None)
def test_lognormal_sizes_keep_to_their_limits(
    num: int, median: float, sigma: float, least: int, spare: int
) -> None:
    total = num * least + spare % 1000
    sizes = partition.lognormal_sizes(num, median, sigma, generator(0), least, total)
    assert sizes.min() >= least
    assert sizes.sum() <= total


@pytest.mark.parametrize(
    ("num", "median", "sigma", "least", "total"),
    [
        (0, 5, 1.0, 1, None),
        (2, 0, 1.0, 1, None),
        (2, math.inf, 1.0, 1, None),
        (2, 5, -1.0, 1, None),
        (2, 5, math.nan, 1, None),
        (2, 5, 1.0, 0, None),
        (2, 5, 1.0, 6, 11),
    ],
)
def test_lognormal_sizes_refuses(
    num: int, median: float, sigma: float, least: int, total: int | None
) -> None:
    with pytest.raises(ConfigError, match="at least"):
        partition.lognormal_sizes(num, median, sigma, generator(0), least, total)


def test_slow_clients_are_rich() -> None:
    # 2.5 samples and 0.05 of concentration per second, as in Fig. 2; at least one sample
    assert partition.coupled_sizes([180.0, 5.0, 0.1]).tolist() == [450, 12, 1]
    assert partition.coupled_sizes([10.0], 4.0).tolist() == [40]
    assert partition.coupled_alphas([180.0, 5.0]) == pytest.approx([9.0, 0.25])
    assert partition.coupled_alphas([10.0], 0.2) == pytest.approx([2.0])

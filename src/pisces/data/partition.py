"""Who owns which samples: each function gives one array of row numbers per client.

Every client gets at least one row, in ascending order, and no row has two owners unless `overlap`
is asked for. Sizes come first (`equal_sizes`, `lognormal_sizes`, `coupled_sizes`), then a partition
hands out that many rows.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisces.errors import ConfigError

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = tuple[Ints, ...]

MAX_ALPHA = 1e9  # beyond it the draw overflows, and nobody could tell the mixture from an even one
EPOCHS_IN_POOL = 20  # of fresh samples that a pool has room for
_MOST_ROWS = 2**31 - 1


# --- partitions -----------------------------------------------------------------------------------


def iid(
    num_rows: int, sizes: ArrayLike, rng: np.random.Generator, *, overlap: bool = False
) -> Rows:
    """Rows at random, whatever their label.

    With `overlap` every client draws from all rows, so that two clients may own the same one.
    """
    checked = _checked_sizes(sizes, num_rows, overlap)
    if overlap:
        return tuple(np.sort(rng.choice(num_rows, size, replace=False)) for size in checked)
    bounds = np.cumsum(checked)
    order = rng.permutation(num_rows)
    return tuple(np.sort(part) for part in np.split(order, bounds)[:-1])


def dirichlet(
    labels: ArrayLike,
    sizes: ArrayLike,
    alpha: ArrayLike,
    rng: np.random.Generator,
    *,
    overlap: bool = False,
) -> Rows:
    """Label skew: each client draws its mixture of labels from Dirichlet(alpha).

    The smaller `alpha` (one for all, or one per client), the fewer labels a client sees. Clients
    take their rows in turn; when a label runs out, the rest comes from the labels that are left, so
    the last clients of a pool used up to the last row are less skewed than they would like.

    With `overlap` every client draws from all rows, as in the Pisces paper, whose 200 clients of
    500 samples ask for more than MNIST's 60 000. Two clients may then own the same row.
    """
    pool = np.asarray(labels)
    checked = _checked_sizes(sizes, len(pool), overlap)
    alphas = _checked_alphas(alpha, len(checked))
    order, counts = _by_label(pool, rng)
    starts = np.cumsum(counts) - counts
    taken = np.zeros_like(counts)
    clients = []
    for size, concentration in zip(checked, alphas, strict=True):
        mixture = rng.dirichlet(np.full(len(counts), concentration))
        take = _label_counts(int(size), mixture, counts - taken, rng)
        if overlap:
            rows = _choose(order, starts, counts, take, rng)
        else:
            rows = _slices(order, starts + taken, take)
            taken += take
        clients.append(np.sort(rows))
    return tuple(clients)


def natural(
    ids: ArrayLike,
    num_clients: int,
    rng: np.random.Generator,
    min_size: int = 1,
    max_size: int | None = None,
) -> Rows:
    """Clients as they are in the data (writers, authors): some of those with enough rows.

    Of each the first `max_size` rows are taken, if given.
    """
    if num_clients < 1:
        raise ConfigError(f"there must be at least one client, not {num_clients}")
    if max_size is not None and max_size < 1:
        raise ConfigError(f"a client keeps at least one row, not {max_size}; ask for more")
    found, owner, counts = np.unique(np.asarray(ids), return_inverse=True, return_counts=True)
    enough = np.flatnonzero(counts >= min_size)
    if len(enough) < num_clients:
        raise ConfigError(
            f"{num_clients} clients were asked for, but of the {len(found)} in the data only "
            f"{len(enough)} have {min_size} rows or more; ask for fewer clients or rows"
        )
    chosen = rng.choice(enough, num_clients, replace=False)
    groups = np.split(np.argsort(owner, kind="stable"), np.cumsum(counts)[:-1])
    return tuple(groups[client][:max_size] for client in chosen)


# --- pools: samples that change from epoch to epoch -----------------------------------------------


def iid_pools(num_rows: int, sizes: ArrayLike, rng: np.random.Generator) -> Rows:
    """Any rows, `EPOCHS_IN_POOL` times as many as each size; see `dirichlet_pools`."""
    return tuple(rng.integers(num_rows, size=num) for num in _pool_sizes(sizes))


def dirichlet_pools(
    labels: ArrayLike, sizes: ArrayLike, alpha: ArrayLike, rng: np.random.Generator
) -> Rows:
    """Label skew as in `dirichlet`, with `EPOCHS_IN_POOL` times as many rows as each size.

    The Pisces artifact draws every epoch's samples anew from the whole dataset, in the client's own
    mixture of labels; so does an epoch that takes some of such a pool, other ones each time. Rows
    are drawn with replacement and in no order: any part of a pool has the mixture.
    """
    order, counts = _by_label(np.asarray(labels), rng)
    starts = np.cumsum(counts) - counts
    num_rows = _pool_sizes(sizes)
    pools = []
    for num, concentration in zip(num_rows, _checked_alphas(alpha, len(num_rows)), strict=True):
        mixture = rng.dirichlet(np.full(len(counts), concentration))
        drawn = rng.choice(len(counts), num, p=mixture)
        pools.append(order[starts[drawn] + rng.integers(counts[drawn])])
    return tuple(pools)


def _pool_sizes(sizes: ArrayLike) -> Ints:
    """How many rows each pool has; rows may repeat, so a dataset has always enough."""
    return EPOCHS_IN_POOL * _checked_sizes(sizes, _MOST_ROWS // EPOCHS_IN_POOL, overlap=True)


# --- sizes and mixtures ---------------------------------------------------------------------------


def equal_sizes(num_rows: int, num_clients: int, size: int | None = None) -> Ints:
    """The same number of rows for everyone: `size`, or as many as there are for all."""
    if num_clients < 1:
        raise ConfigError(f"there must be at least one client, not {num_clients}")
    each = num_rows // num_clients if size is None else size
    if each < 1:
        raise ConfigError(
            f"each client needs at least one row, not {each} ({num_rows} rows over {num_clients} "
            "clients); ask for fewer clients or larger sizes"
        )
    return np.full(num_clients, each, np.int64)


def lognormal_sizes(
    num_clients: int,
    median: float,
    sigma: float,
    rng: np.random.Generator,
    min_size: int = 1,
    max_total: int | None = None,
) -> Ints:
    """A few rich clients among many poor ones.

    Where they ask for more than `max_total` together, what each has above `min_size` shrinks by
    one factor.
    """
    if num_clients < 1 or min_size < 1 or not 0 < median < math.inf or not 0 <= sigma < math.inf:
        raise ConfigError(
            "sizes need at least one client and one row each, a positive median and a sigma of 0 "
            f"or more, not {num_clients} clients, min_size {min_size}, median {median}, "
            f"sigma {sigma}; mend them"
        )
    draws = np.exp(np.minimum(math.log(median) + sigma * rng.standard_normal(num_clients), 700.0))
    sizes = np.rint(draws).clip(min_size, _MOST_ROWS).astype(np.int64)
    return sizes if max_total is None else _shrunk(sizes, min_size, max_total)


def coupled_sizes(latency_s: ArrayLike, samples_per_s: float = 2.5) -> Ints:
    """Slow clients are rich: samples in proportion to latency, at least one.

    From the study of Oort's speed penalty (Jiang et al., SoCC 2022, Fig. 2).
    """
    sizes: Ints = (samples_per_s * np.asarray(latency_s, np.float64)).astype(np.int64)
    return np.maximum(sizes, 1)


def coupled_alphas(latency_s: ArrayLike, factor: float = 0.05) -> Floats:
    """Slow clients see more labels: a Dirichlet concentration in proportion to latency.

    From the study of Oort's speed penalty (Jiang et al., SoCC 2022, Fig. 2).
    """
    alphas: Floats = factor * np.asarray(latency_s, np.float64)
    return alphas


# --- the parts they are made of -------------------------------------------------------------------


def _by_label(labels: NDArray[np.generic], rng: np.random.Generator) -> tuple[Ints, Ints]:
    """All rows sorted by label, shuffled within each, and how many there are of each."""
    order = rng.permutation(len(labels))
    _, inverse, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
    return order[np.argsort(inverse, kind="stable")], counts


def _label_counts(size: int, mixture: Floats, left: Ints, rng: np.random.Generator) -> Ints:
    """How many rows of each label a client takes: its mixture, as far as the pool has them."""
    take: Ints = np.minimum(rng.multinomial(size, mixture), left)
    while (short := size - int(take.sum())) > 0:  # each turn fills the client or uses up a label
        room = left - take
        wish = np.where(room > 0, mixture, 0.0)
        if wish.sum() == 0:  # only so skewed a client lacks all it likes: it takes to one label
            wish[rng.choice(len(room), p=room / room.sum())] = 1.0
        take = np.minimum(take + rng.multinomial(short, wish / wish.sum()), left)
    return take


def _slices(order: Ints, starts: Ints, take: Ints) -> Ints:
    """The next `take` rows of each label."""
    return np.concatenate([order[a : a + n] for a, n in zip(starts, take, strict=True)])


def _choose(order: Ints, starts: Ints, counts: Ints, take: Ints, rng: np.random.Generator) -> Ints:
    """Any `take` different rows of each label."""
    picks = [
        start + rng.choice(num, wanted, replace=False, shuffle=False)
        for start, num, wanted in zip(starts, counts, take, strict=True)
    ]
    rows: Ints = order[np.concatenate(picks)]
    return rows


def _shrunk(sizes: Ints, min_size: int, max_total: int) -> Ints:
    spare = max_total - min_size * len(sizes)
    if spare < 0:
        raise ConfigError(
            f"{len(sizes)} clients of at least {min_size} rows need {min_size * len(sizes)} rows, "
            f"but there are {max_total}; ask for smaller sizes or fewer clients"
        )
    above = sizes - min_size
    if above.sum() <= spare:
        return sizes
    shrunk: Ints = min_size + above * spare // above.sum()
    return shrunk


def _checked_sizes(sizes: ArrayLike, num_rows: int, overlap: bool) -> Ints:
    checked = np.asarray(sizes, np.int64)
    if checked.ndim != 1 or len(checked) == 0 or checked.min() < 1:
        raise ConfigError(
            f"there must be one size of at least 1 per client, not {_shown(checked)}; mend them"
        )
    needed = int(checked.max() if overlap else checked.sum())
    if needed > num_rows:
        remedy = "" if overlap else ", or let clients share rows (overlap)"
        raise ConfigError(
            f"the clients' sizes ask for {needed} rows, but there are {num_rows}; "
            f"ask for smaller sizes or fewer clients{remedy}"
        )
    return checked


def _checked_alphas(alpha: ArrayLike, num_clients: int) -> Floats:
    alphas = np.asarray(alpha, np.float64)
    if alphas.shape not in ((), (num_clients,)):
        raise ConfigError(
            f"give one Dirichlet alpha for all or one for each of the {num_clients} clients, "
            f"not an array of {alphas.shape}"
        )
    if not np.all((alphas > 0) & (alphas <= MAX_ALPHA)):
        raise ConfigError(
            f"a Dirichlet alpha must be above 0 and at most {MAX_ALPHA:g}, not {_shown(alphas)}; "
            "for labels mixed evenly, use the iid partition"
        )
    return np.broadcast_to(alphas, (num_clients,))


def _shown(array: NDArray[np.generic]) -> str:
    return np.array2string(array, threshold=8)

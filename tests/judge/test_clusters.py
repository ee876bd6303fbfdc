"""Loss outliers: pools small enough to see who stands apart."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN
from worlds import update

from pisces.judge.clusters import LossOutliers, dense, is_noise
from pisces.policy import Verdict
from pisces.types import State

# With a newcomer above 1.05 that is the median. The deviations of these four are .05, .05, .15 and
# 0, so the median deviation is .05 and the radius 3 x 1.4826 x .05 = 0.222. With a newcomer below 1
# the median is 1, the deviations are 0, .1, .1, .05, and the radius is 3 x 1.4826 x .1 = 0.445.
PEERS = (1.0, 1.1, 0.9, 1.05)


def judged(judge: LossOutliers, losses: Sequence[float], version: int = 0) -> list[bool]:
    """The verdict on each loss as it comes in."""
    return [
        judge.judge(update(client, version=version, loss=loss)).is_outlier
        for client, loss in enumerate(losses)
    ]


@pytest.mark.parametrize(
    ("loss", "apart"),
    # Two make a cluster (half of four). 1.3 is 0.2 away from 1.1, and 1.4 is 0.3 away;
    # 0.5 is 0.4 away from 0.9, and 0.4 is 0.5 away.
    [(5.0, True), (1.4, True), (1.3, False), (1.05, False), (0.5, False), (0.4, True)],
)
def test_a_loss_apart_from_its_peers_is_an_outlier(loss: float, apart: bool) -> None:
    judge = LossOutliers(4)
    assert judged(judge, PEERS) == [False] * 4
    assert judged(judge, [loss]) == [apart]


def test_the_radius_is_measured_in_robust_standard_deviations() -> None:
    pool = sorted([*PEERS, 5.0])
    assert LossOutliers(4).eps(pool) == pytest.approx(3 * 1.4826 * 0.05)
    assert LossOutliers(4, eps_sigmas=1.0).eps(pool) == pytest.approx(1.4826 * 0.05)


def test_where_losses_agree_a_thousandth_is_no_difference() -> None:
    # Five times 2.0: the spread is 0, the radius 0.002.
    assert judged(LossOutliers(4), [2.0] * 5 + [2.0015]) == [False] * 6
    assert judged(LossOutliers(4), [2.0] * 5 + [2.01]) == [False] * 5 + [True]


def test_losses_that_are_all_zero_belong_together() -> None:
    assert judged(LossOutliers(4), [0.0] * 6) == [False] * 6


def test_two_of_a_kind_are_no_cluster_where_five_are_needed() -> None:
    # C = 10: five make a cluster, ten records are needed for a verdict.
    honest = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 1.08]
    assert judged(LossOutliers(10), [*honest, 5.0, 5.0]) == [False] * 9 + [True, True]


def test_only_the_newcomer_is_judged() -> None:
    # 5.0 stays in the pool, but an honest loss after it is judged for itself.
    judge = LossOutliers(4)
    assert judged(judge, [*PEERS, 5.0, 1.02]) == [False] * 4 + [True, False]


def test_nobody_is_judged_before_there_are_enough() -> None:
    # C = 4: the third loss is absurd, but there is no verdict before four are there.
    assert judged(LossOutliers(4), [1.0, 1.0, 99.0]) == [False] * 3
    assert judged(LossOutliers(4), [1.0, 1.0, 1.0, 99.0]) == [False] * 3 + [True]


@pytest.mark.parametrize(
    ("version", "apart"),
    # The peers were trained from version 10; of the window 2 count {v - 2, v - 1, v}.
    [(10, True), (12, True), (13, False), (9, False)],
)
def test_only_losses_of_similar_versions_are_peers(version: int, apart: bool) -> None:
    judge = LossOutliers(4, window=2)
    judged(judge, PEERS, version=10)
    assert judged(judge, [5.0], version=version) == [apart]


def test_five_versions_are_similar_unless_said_otherwise() -> None:
    judge = LossOutliers(4)
    judged(judge, PEERS, version=10)
    assert judged(judge, [5.0], version=16) == [False]
    assert judged(judge, [5.0], version=15) == [True]


def test_who_does_not_tell_its_loss_is_not_judged_nor_remembered() -> None:
    judge = LossOutliers(4)
    judged(judge, PEERS)
    before = judge.state()
    assert not judge.judge(update(0, loss=None)).is_outlier
    assert judge.state() == before


def test_old_losses_are_forgotten() -> None:
    judge = LossOutliers(4, window=2)
    for version in range(100):
        judged(judge, [1.0], version=version)
    # Twice the concurrency and the window before the newest: 99 - 8 - 2.
    versions = [version for version, _ in judge.state().values["records"]]
    assert versions == list(range(89, 100))


@pytest.mark.parametrize("staleness", [0, 9, 20, 40])
def test_a_client_cannot_hide_behind_its_staleness(staleness: int) -> None:
    # Seven updates a version, b = 20: a slow client's loss is judged among those of its version.
    judge = LossOutliers(20, window=5, max_staleness=20)
    for version in range(100):
        judged(judge, PEERS[:7], version=version)
    assert judged(judge, [50.0], version=99 - staleness) == [True]


def test_a_stale_update_still_finds_its_peers() -> None:
    judge = LossOutliers(4, window=2)
    judged(judge, PEERS, version=6)
    judged(judge, [0.5], version=10)
    assert judged(judge, [5.0], version=6) == [True]


@pytest.mark.parametrize(("settings", "keep"), [({}, True), ({"drop": True}, False)])
def test_what_becomes_of_an_outlier_is_a_setting(settings: dict[str, bool], keep: bool) -> None:
    judge = LossOutliers(4, **settings)
    judged(judge, PEERS)
    assert judge.judge(update(9, loss=99.0)) == Verdict(is_outlier=True, keep=keep)


def test_state_survives_json() -> None:
    old, new = LossOutliers(4), LossOutliers(4)
    judged(old, PEERS, version=3)
    new.restore(State(json.loads(json.dumps(old.state().values))))
    assert new.state() == old.state()
    assert judged(new, [5.0, 1.0], version=3) == judged(old, [5.0, 1.0], version=3) == [True, False]


@settings(max_examples=40, deadline=None)
@given(losses=st.lists(st.integers(1, 400), min_size=4, max_size=12))
def test_the_unit_of_the_loss_does_not_matter(losses: list[int]) -> None:
    small = judged(LossOutliers(4), [float(x) for x in losses])
    assert judged(LossOutliers(4), [1000.0 * x for x in losses]) == small


@settings(max_examples=40, deadline=None)
@given(losses=st.lists(st.floats(0.99, 1.01), min_size=5, max_size=12), far=st.floats(3.0, 1e5))
def test_a_far_loss_always_stands_apart(losses: list[float], far: float) -> None:
    judge = LossOutliers(4)
    judged(judge, losses)
    assert judged(judge, [far]) == [True]


# Multiples of 1/8 make ties and distances that are exactly the radius; the others make neither.
any_losses = st.lists(
    st.integers(0, 60).map(lambda n: n / 8) | st.floats(0.0, 8.0), min_size=1, max_size=25
)


@settings(max_examples=150, deadline=None)
@given(
    losses=any_losses, eps=st.sampled_from([0.125, 0.5, 1.0, 0.3]), min_samples=st.integers(2, 6)
)
def test_noise_is_what_dbscan_calls_noise(
    losses: list[float], eps: float, min_samples: int
) -> None:
    pool = sorted(losses)
    labels = DBSCAN(eps=eps, min_samples=min_samples).fit_predict(np.array(pool)[:, None])
    found = [is_noise(pool, loss, eps, min_samples) for loss in pool]
    assert found == (labels == -1).tolist()


@settings(max_examples=80, deadline=None)
@given(losses=any_losses)
def test_the_radius_is_that_of_the_median_absolute_deviation(losses: list[float]) -> None:
    median = np.median(losses)
    sigma = 1.4826 * np.median(np.abs(np.array(losses) - median))
    assert LossOutliers(4).eps(sorted(losses)) == max(3.0 * sigma, 1e-3 * median, 1e-12)


@settings(max_examples=60, deadline=None)
@given(seen=st.lists(st.tuples(st.integers(0, 30), st.floats(0.5, 2.0)), max_size=60))
def test_a_pool_holds_the_remembered_losses_of_its_versions(seen: list[tuple[int, float]]) -> None:
    # With a window of 2 and updates at most once stale, losses are kept for 4 versions.
    judge = LossOutliers(3, window=2, max_staleness=1)
    for version, loss in seen:
        judged(judge, [loss], version=version)
    records = judge.state().values["records"]
    for version in range(35):
        peers = sorted(loss for v, loss in records if version - 2 <= v <= version)
        assert judge._pools.get(version, []) == peers


def test_clusters_are_ranges_around_what_is_close_together() -> None:
    # Concurrency 4: two make a cluster, four losses are enough to judge. With a radius of 0.5 the
    # losses 1.0, 1.2, 1.4 are within it of each other, 5.0 and 5.5 as well, and 9.0 is alone.
    judge = LossOutliers(4, eps=0.5)
    records = [(0, loss) for loss in (1.0, 5.5, 1.4, 9.0, 5.0, 1.2)]
    (low, high), (from_, to) = judge.clusters_of(records, 0)
    assert (low, high) == pytest.approx((0.5, 1.9))
    assert (from_, to) == pytest.approx((4.5, 6.0))


def test_there_are_no_clusters_before_there_are_enough_losses() -> None:
    judge = LossOutliers(4, window=2, eps=0.5)
    records = [(0, 1.0), (1, 1.1), (2, 1.2), (4, 1.3)]
    assert judge.clusters_of(records[:3], 2) == ()
    assert judge.clusters_of(records, 2) == ()  # later versions are of no use to it
    assert judge.clusters_of(records, 4) == ()  # nor those of more than two versions before
    assert len(judge.clusters_of([*records, (2, 1.0), (3, 1.1)], 4)) == 1


@given(losses=st.lists(st.floats(0.0, 10.0), min_size=4, max_size=30), loss=st.floats(0.0, 10.0))
def test_whoever_is_in_no_cluster_lies_outside_the_ranges(losses: list[float], loss: float) -> None:
    pool = sorted([*losses, loss])
    outside = not any(low <= loss <= high for low, high in dense(pool, 0.4, 3))
    if outside:
        assert is_noise(pool, loss, 0.4, 3)
    elif min(abs(loss - edge) for r in dense(pool, 0.4, 3) for edge in r) > 1e-9:
        assert not is_noise(pool, loss, 0.4, 3)

"""Named protocols: where their settings end up. What they are made of: `tests/conformance/`."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from worlds import NAN, update, view, weights

from pisces.errors import ConfigError
from pisces.judge.clusters import LossOutliers
from pisces.pace.pisces import Adaptive, Mode
from pisces.policy import Policies, Verdict
from pisces.protocols.buffered import fedbuff
from pisces.protocols.pisces import (
    pisces,
    pisces_artifact,
    pisces_paper,
    pisces_without_adaptive_pace,
    pisces_without_guard,
    pisces_without_selection,
    pisces_without_staleness,
)
from pisces.protocols.synchronous import fedavg, oort
from pisces.seeds import generator


def combined(policies: Policies, version: int = 3) -> tuple[float, tuple[float, ...]]:
    """One parameter at 10; client 0 (1 sample of 4) is fresh, client 1 (3 of 4) is three behind.

    They moved from 0 to 4 and from 2 to 6.
    """
    updates = [
        update(0, [4.0], base=[0.0], version=version, num_examples=1),
        update(1, [6.0], base=[2.0], version=version - 3, num_examples=3),
    ]
    made = policies.aggregator.combine(
        weights([10.0]), updates, view(version=version), generator(1, "aggregate")
    )
    return made.weights.flat.item(), made.coefficients


@pytest.mark.parametrize(
    ("over_selection", "enough"),
    # 20 / 1.3 = 15.4; nobody over-selected still needs all; at least one is needed.
    [(1.3, 15), (1.0, 20), (2.0, 10), (1000.0, 1)],
)
def test_over_selection_uses_the_first_of_a_cohort(over_selection: float, enough: int) -> None:
    for protocol in (fedavg, oort):
        pacer = protocol(20, over_selection=over_selection).pacer
        assert pacer.min_clients == enough


def test_over_selection_does_not_lose_one_to_rounding() -> None:
    assert fedavg(33, over_selection=1.1).pacer.min_clients == 30


def test_without_over_selection_everybody_is_waited_for() -> None:
    pacer = fedavg(2).pacer
    assert pacer.min_clients == 1
    assert not pacer.ready(view(running=[(1, 0, 0.0)], buffer=[update(0)], now=1e9))


def test_a_round_deadline_reaches_the_pace() -> None:
    world = view(running=[(1, 0, 3.0)], buffer=[update(0)])
    for protocol in (fedavg, oort):
        assert protocol(2, round_deadline_s=5.0).pacer.next_check(world) == 8.0
        assert protocol(2).pacer.next_check(world) == math.inf


@pytest.mark.parametrize(
    ("concurrency", "goal"),
    [(20, 4), (5, 1), (1, 1), (13, 3)],  # 20 %, at least one; 2.6 rounds to 3
)
def test_a_buffer_is_a_fifth_of_the_concurrency(concurrency: int, goal: int) -> None:
    for protocol in (fedbuff, pisces_without_adaptive_pace):
        assert protocol(concurrency).pacer.min_clients == goal
        assert protocol(concurrency, buffer_size=7).pacer.min_clients == 7


def test_fedbuff_may_refuse_stale_updates() -> None:
    world = view(version=5)
    assert fedbuff(20).pacer.accepts(world, update(0, version=0))
    assert not fedbuff(20, max_staleness=4).pacer.accepts(world, update(0, version=0))


def test_settings_of_the_rule_reach_it() -> None:
    # Without a discount by samples alone; half of 10 + 1/2 x 4 + 1/4 x 4 = 13 at half the rate.
    assert combined(pisces(20, weight_penalty=0.0))[1] == (0.25, 0.75)
    assert combined(fedbuff(20, server_rate=0.5)) == (11.5, (0.25, 0.125))


def test_an_average_is_published() -> None:
    # C = 4 and half of it, so two updates: the second version of one counts half of that.
    how = pisces(4, average=0.5).aggregator
    for value in (4.0, 8.0):
        updates = [update(0, [value], base=[0.0])]
        made = how.combine(weights([0.0]), updates, view(), generator(1, "aggregate"))
    assert made.published is not None
    assert made.published.flat.item() == pytest.approx(4 + 4 * 2 / 3)  # 1 / (1 + 1/2) so early


def test_the_average_reaches_over_twice_the_concurrency() -> None:
    # C = 1, so over two updates: all of the first, 1 / (1 + 1/2) of the second, 1 / 2 of the third.
    expected = (3.0, 3 + 3 * 2 / 3, 5 + 4 / 2)
    how = pisces(1).aggregator
    for value, average in zip((3.0, 6.0, 9.0), expected, strict=True):
        updates = [update(0, [value], base=[0.0])]
        made = how.combine(weights([0.0]), updates, view(), generator(1, "aggregate"))
        assert made.published is not None
        assert made.published.flat.item() == pytest.approx(average)


@pytest.mark.parametrize(
    "policies",
    [pisces(20, average=0.0), pisces_paper(20), pisces_artifact(20)],
    ids=["switched off", "paper", "artifact"],
)
def test_the_others_publish_their_versions(policies: Policies) -> None:
    made = policies.aggregator.combine(weights([0.0]), [update(0)], view(), generator(1, "a"))
    assert made.published is None


def test_in_the_letter_of_the_paper_staleness_counts_in_the_selection() -> None:
    assert chosen(pisces_paper(20)) == 0
    assert chosen(pisces_paper(20, selection_penalty=0.4)) == 1


def test_the_form_of_the_artifact_takes_roots() -> None:
    # 10 x 4^1/2 = 20 > 15 x 1^1/2; by their RMS losses it would be 10 x 1 < 15 x 2.
    world = view([10, 15], loss_rms=[1.0, 2.0], loss=[4.0, 1.0])
    for protocol, client in ((pisces_artifact, 0), (pisces, 1)):
        (pick,) = protocol(20).selector.pick(world, 1, generator(1, "select"))
        assert pick.client == client


def test_the_guard_of_the_artifact_has_a_fixed_radius() -> None:
    judge = pisces_artifact(20, guard=True).judge
    assert isinstance(judge, LossOutliers)
    assert judge.eps([1.0, 50.0, 900.0]) == 0.5


@pytest.mark.parametrize(
    ("protocol", "step"),
    # One of three at work has arrived and moved by 6. A full step takes 0.5 x 3 = 1.5 of them, as
    # nobody knows yet whether they agree.
    [(pisces, 6 / 1.5), (pisces_paper, 6.0), (pisces_artifact, 6.0)],
)
def test_only_ours_takes_a_small_step_for_one_update(
    protocol: Callable[..., Policies], step: float
) -> None:
    seen = view([10, 10, 10], running=[(1, 0, 0.0), (2, 0, 0.0)])
    updates = [update(0, [6.0], num_examples=10)]
    made = protocol(20).aggregator.combine(weights([0.0]), updates, seen, generator(1, "a"))
    assert made.weights.flat.item() == pytest.approx(step)


def test_the_bound_of_pisces_is_twice_its_concurrency_unless_given() -> None:
    # One client of 82 s runs: 82 / 41 and 82 / 5; the letter of the paper has b = C: 82 / 20.
    world = view([10], latency_s=[82.0], running=[(0, 0, 0.0)])
    assert pisces(20).pacer.next_check(world) == 2.0
    assert pisces(20, staleness_bound=4).pacer.next_check(world) == 16.4
    assert pisces_paper(20).pacer.next_check(world) == 4.1


UNSEEN = view([10], latency_s=[NAN], running=[(0, 0, 0.0)])  # nobody knows how slow it is


def test_pace_and_guess_reach_the_pacer() -> None:
    guessed = pisces(20, pace="paper", unseen_latency_s=180.0)
    assert guessed.pacer.next_check(UNSEEN) == 4.5
    for unseen_latency_s in (None, 0.0):  # as slow as the slowest seen, and nobody was
        slowest = pisces(20, pace="paper", unseen_latency_s=unseen_latency_s)
        assert slowest.pacer.next_check(UNSEEN) == 0.0
    assert pisces(20, pace="strict").pacer.needs_deadline
    assert not pisces(20, pace="elapsed").pacer.needs_deadline


@pytest.mark.parametrize("pace", ["paper", "elapsed", "strict"])
def test_every_other_pace_is_one_of_the_adaptive(pace: Mode) -> None:
    assert type(pisces(20, pace=pace).pacer) is Adaptive


@pytest.mark.parametrize("protocol", [pisces_paper, pisces_artifact])
def test_the_paper_and_its_code_guess_180_s(protocol: Callable[..., Policies]) -> None:
    assert protocol(20).pacer.next_check(UNSEEN) == 9.0


@pytest.mark.parametrize("guess", [0.0, 180.0])
def test_a_guess_nobody_asks_for_is_refused(guess: float) -> None:
    with pytest.raises(ConfigError, match=f"unseen_latency_s: {guess} would do nothing"):
        pisces(20, unseen_latency_s=guess)


def test_exploration_settings_reach_the_selector() -> None:
    # Five clients of which 3 and 4 are new; without exploration the best two are taken.
    world = view([10, 20, 30, 40, 50], loss_rms=[1.0, 1.0, 1.0, NAN, NAN])
    settings = {"exploration": 0.0, "min_exploration": 0.0}
    for protocol in (pisces, pisces_without_guard):
        picks = protocol(20, **settings).selector.pick(world, 2, generator(1, "select"))
        assert sorted(a.client for a in picks) == [1, 2]


def chosen(policies: Policies) -> int:
    """Client 0 has 10 samples; client 1 has 25, but is usually eight behind: 25 x 9^-penalty."""
    world = view([10, 25], loss_rms=[1.0, 1.0], staleness={1: [8]})
    (pick,) = policies.selector.pick(world, 1, generator(1, "select"))
    return pick.client


def test_the_selection_penalty_decides_between_rich_and_fresh() -> None:
    # 25 x 9^-1/2 = 8.3 < 10, but 25 x 9^-0.4 = 10.4 and 25 > 10.
    assert chosen(pisces(20)) == 0
    assert chosen(pisces(20, selection_penalty=0.4)) == 1
    assert chosen(pisces_without_staleness(20)) == 1


def test_without_staleness_keeps_the_other_settings_of_the_selection() -> None:
    world = view([10, 20, 30, 40, 50], loss_rms=[1.0, 1.0, 1.0, NAN, NAN])
    policies = pisces_without_staleness(20, exploration=0.0, min_exploration=0.0)
    for seed in range(5):
        picks = policies.selector.pick(world, 2, generator(seed, "select"))
        assert sorted(a.client for a in picks) == [1, 2]


PEERS = (1.0, 1.1, 0.9, 1.05)  # of version 10


def doubted(policies: Policies, loss: float, version: int = 10) -> bool:
    """Is this loss an outlier among its peers?"""
    assert policies.judge is not None
    for client, peer in enumerate(PEERS):
        policies.judge.judge(update(client, version=10, loss=peer))
    return policies.judge.judge(update(4, version=version, loss=loss)).is_outlier


def test_the_guard_is_a_matter_of_choice() -> None:
    # 1.3 is in one cluster with 1.1, which three sigma reach; 9 is in none. But nobody said what is
    # left of it, so that the other has nothing to judge by.
    for guard, clusters in (("learning", False), ("clusters", True)):
        assert isinstance(pisces(4, guard=guard).judge, LossOutliers) is clusters
        assert doubted(pisces(4, guard=guard), 9.0) is clusters
        assert not doubted(pisces(4, guard=guard), 1.3)


@pytest.mark.parametrize("concurrency", [4, 8])
def test_the_guard_is_told_how_many_run_at_once(concurrency: int) -> None:
    judge = pisces(concurrency).judge
    assert judge is not None
    for client in range(concurrency - 1):
        judge.judge(update(client, loss=2.0, loss_left=0.2))
    left = [judge.judge(update(20, version=1, loss=2.0, loss_left=left)) for left in (2.0, 2.0)]
    assert [verdict.is_outlier for verdict in left] == [False, True]


def test_clusters_are_kept_as_long_as_the_bound_needs() -> None:
    # A window of 5 and twice a bound of 1: when version 18 has come, 10 is out of reach, 11 is not.
    judge = pisces(4, guard="clusters", staleness_bound=1).judge
    assert judge is not None
    for version in (10, 11, 18):
        judge.judge(update(0, version=version, loss=1.0))
    assert judge.state().values["records"] == [[11, 1.0], [18, 1.0]]


def test_the_guard_of_the_paper_takes_its_settings() -> None:
    # 1.3 is in one cluster with 1.1, which three sigma reach; 1.4 and 0.1 are in none.
    assert not doubted(pisces_paper(4), 1.3)
    assert doubted(pisces_paper(4), 1.4)
    assert doubted(pisces_paper(4), 0.1)
    assert not doubted(pisces_paper(4, outlier_window=2), 1.4, version=13)
    assert doubted(pisces_paper(4, outlier_window=2), 1.4, version=12)
    for settings, drops in (({}, False), ({"drop_outliers": True}, True)):
        policies = pisces_paper(4, **settings)
        assert doubted(policies, 9.0)
        assert policies.judge is not None
        assert policies.judge.judge(update(4, version=10, loss=99.0)) == Verdict(True, not drops)


def test_variants_take_the_settings_of_pisces() -> None:
    world = view([10], latency_s=[50.0], running=[(0, 0, 0.0)])  # four versions and its own
    for protocol in (
        pisces_without_selection,
        pisces_without_staleness,
        pisces_without_guard,
    ):
        assert protocol(20, staleness_bound=4).pacer.next_check(world) == 10.0

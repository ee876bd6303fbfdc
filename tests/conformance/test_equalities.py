"""Settings with which one protocol is another: whole runs on the least squares of `convex.py`.

`EXACTLY`: the same log, byte by byte, and the same weights, bit by bit. `NEARLY`: the same
decisions at the same instants, and the same weights up to rounding, as sums have another order.

Krum that takes nobody for bad is not the mean: of n updates it chooses at most n - 2, as its
distances are to the n - 2 nearest. How near it is to the mean: `test_invariances.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from runs import Assembled, World, log_bytes, max_staleness, num_versions, of_kind, train_digits

from conformance.convex import PLAN, SECONDS, SIZES, TROUBLED, convex, error
from pisces.aggregate.ca2fl import Calibrated
from pisces.aggregate.clip import Clipped
from pisces.aggregate.robust import RobustMean, Trimmed
from pisces.names import PROTOCOLS
from pisces.policy import Aggregator, Policies
from pisces.record.lines import Line
from pisces.select.tifl import Tiers
from pisces.stop import Stop
from pisces.types import Update

Maker = Callable[[int], Policies]

# Small steps: where a run has come to the optimum, any rule would stay.
SLOWLY = replace(PLAN, learning_rate=0.01)
TROUBLE = replace(TROUBLED, plan=SLOWLY, stop=Stop(updates=150))
CALM = World(concurrency=6, plan=SLOWLY, stop=Stop(updates=150))
# Many arrive at one instant; nobody arrives with anybody else.
TOGETHER = (2.0,) * 6 + (4.0,) * 6
APART = tuple(1.0 + 0.9137 * i**1.13 for i in range(12))


def named(name: str, **settings: Any) -> Maker:
    return lambda concurrency: PROTOCOLS[name](concurrency, **settings)


def with_how(wrap: Callable[[Aggregator], Aggregator], name: str, **settings: Any) -> Maker:
    """The protocol with another aggregator, made of its own."""

    def make(concurrency: int) -> Policies:
        policies = PROTOCOLS[name](concurrency, **settings)
        return replace(policies, aggregator=wrap(policies.aggregator))

    return make


@dataclass(frozen=True, eq=False)
class Same:
    """Two protocols that are one, and where."""

    one: Maker
    other: Maker
    world: World = TROUBLE
    seconds: Sequence[float] = SECONDS
    sizes: Sequence[int] = SIZES

    def runs(self) -> tuple[Assembled, Assembled]:
        """Both, run to their end."""
        made = [
            convex(m(self.world.concurrency), self.world, sizes=self.sizes, seconds=self.seconds)
            for m in (self.one, self.other)
        ]
        for run in made:
            run.run()
        return made[0], made[1]


class Forgetful(Calibrated):
    """Its cache stays at zero."""

    def _note(self, updates: Sequence[Update]) -> None:
        pass


FEDBUFF_BY_SAMPLES = {"share": "samples", "staleness_penalty": 0.0}

EXACTLY: dict[str, Same] = {
    # Nobody is a crowd: one by one, in the order of arrival.
    "HySync that never sees a crowd is FedAsync": Same(
        named("hysync", threshold=6), named("fedasync"), CALM, TOGETHER
    ),
    "FedAsync: (1 + s)^0 is constant": Same(
        named("fedasync", penalty=0.0), named("fedasync", staleness="constant")
    ),
    "FedAsync: a hinge that never begins is constant": Same(
        named("fedasync", staleness="hinge", hinge_start=1e6),
        named("fedasync", staleness="constant"),
    ),
    "Papaya with plain SGD and no timeout is FedBuff": Same(
        named("papaya", server="sgd", server_rate=1.0, timeout_s=float("inf")), named("fedbuff")
    ),
    "CA2FL that remembers nobody is FedBuff without discount": Same(
        with_how(lambda _: Forgetful(), "ca2fl", buffer_size=2),
        named("fedbuff", staleness_penalty=0.0, buffer_size=2),
    ),
    "FADAS whose patience never ends is FADAS without": Same(
        named("fadas", patience=10**6), named("fadas")
    ),
    "clipping beyond any length is none": Same(
        with_how(lambda inner: Clipped(inner, norm=1e30), "fedbuff"), named("fedbuff")
    ),
    "FedAvg that over-selects by 1 is FedAvg": Same(
        named("fedavg", over_selection=1.0), named("fedavg")
    ),
    "FedAvg with a deadline beyond all rounds is FedAvg": Same(
        named("fedavg", round_deadline_s=1e9), named("fedavg")
    ),
    # Nobody is profiled: uniform selection, draw by draw.
    "TiFL with one tier is FedAvg": Same(
        lambda c: replace(PROTOCOLS["tifl"](c), selector=Tiers(num_tiers=1, profile_share=0.0)),
        named("fedavg"),
    ),
    # Where a cohort is everybody, profiling draws as a tier does: the first one all, then all.
    "TiFL with one tier, by name, where everybody takes part, is FedAvg": Same(
        named("tifl", num_tiers=1), named("fedavg"), replace(CALM, concurrency=12)
    ),
    "TEA-Fed that mixes in all of a mean is FedBuff's mean by samples": Same(
        named("tea-fed", alpha=1.0, penalty=0.0, cache_size=3),
        named("fedbuff", buffer_size=3, reference="current", **FEDBUFF_BY_SAMPLES),
    ),
    "Pisces with nothing of its own is the letter of its paper": Same(
        named(
            "pisces",
            pace="paper",
            staleness_bound=6,
            unseen_latency_s=180.0,
            weight_penalty=0.0,
            full_share=0.0,
            average=0.0,
            guard="clusters",
        ),
        named("pisces-paper"),
    ),
    "Pisces without a penalty in the utility is 'w/o stale.'": Same(
        named("pisces", selection_penalty=0.0), named("pisces-without-staleness")
    ),
    "an average over less than an update is the last version": Same(
        named("pisces", average=1e-9), named("pisces", average=0.0)
    ),
    "the authors' code without its penalty and its roots is the paper with FedAvg's mean": Same(
        lambda c: replace(
            PROTOCOLS["pisces-artifact"](c, penalty=0.0),
            selector=PROTOCOLS["pisces-without-staleness"](c).selector,
        ),
        lambda c: replace(
            PROTOCOLS["pisces-paper"](c, selection_penalty=0.0),
            aggregator=PROTOCOLS["fedavg"](c).aggregator,
            judge=None,
        ),
    ),
}

NEARLY: dict[str, Same] = {
    # w + a (w_i - w) = (1 - a) w + a w_i
    "FedBuff, K = 1, against the current model, is FedAsync": Same(
        named("fedbuff", buffer_size=1, reference="current", server_rate=0.6),
        named("fedasync", alpha=0.6),
        CALM,
        APART,
    ),
    "FedBuff, K = 1, against the current model, no discount, is FedAsync's constant form": Same(
        named(
            "fedbuff", buffer_size=1, reference="current", server_rate=0.9, staleness_penalty=0.0
        ),
        named("fedasync", alpha=0.9, staleness="constant"),
        CALM,
        APART,
    ),
    "HySync that takes one for a crowd is FedAsync": Same(
        named("hysync", threshold=0), named("fedasync"), CALM, APART
    ),
    "TEA-Fed with a cache of one is FedAsync": Same(
        named("tea-fed", cache_size=1), named("fedasync"), CALM, APART
    ),
    "Papaya with SGD at half the rate is FedBuff at half the rate": Same(
        named("papaya", server="sgd", server_rate=0.5, timeout_s=float("inf")),
        named("fedbuff", server_rate=0.5),
    ),
    "a mean trimmed by nothing is the mean": Same(
        with_how(
            lambda _: RobustMean(
                Trimmed(0.0), share="equal", staleness_penalty=0.5, reference="base"
            ),
            "fedbuff",
            buffer_size=3,
        ),
        named("fedbuff", buffer_size=3),
    ),
    # Freshness is b / (s + b), and b nearly without bound.
    "PORT that looks neither at staleness nor at directions is FedBuff by samples": Same(
        named("port", staleness_bound=10**6, similarity_weight=0.0, buffer_size=2),
        named("fedbuff", buffer_size=2, **FEDBUFF_BY_SAMPLES),
    ),
    # As many are asked as are wanted, and all fit; they start with the fastest.
    "FedCS with all the time in the world is FedAvg": Same(
        named("fedcs", deadline_s=1e9), named("fedavg"), CALM
    ),
    # All h_i are known and as old as each other: their mean is that over the buffer.
    "CA2FL that hears from everybody each time is FedAvg": Same(
        named("ca2fl", buffer_size=12),
        named("fedavg"),
        replace(CALM, concurrency=12),
        seconds=[2.0] * 12,
        sizes=[40] * 12,
    ),
    "ASO-Fed that hears from everybody each time is FedAvg": Same(
        named("aso-fed"), named("fedavg"), replace(CALM, concurrency=12), seconds=[2.0] * 12
    ),
}


@pytest.mark.parametrize("what", EXACTLY)
def test_exactly(what: str) -> None:
    one, other = EXACTLY[what].runs()
    assert log_bytes(one.memory.lines) == log_bytes(other.memory.lines)
    assert torch.equal(one.coordinator.weights.flat, other.coordinator.weights.flat)
    assert_on_its_way(one)


@pytest.mark.parametrize("what", NEARLY)
def test_nearly(what: str) -> None:
    one, other = NEARLY[what].runs()
    assert decisions(one.memory.lines) == decisions(other.memory.lines)
    mine, theirs = one.coordinator.weights.flat, other.coordinator.weights.flat
    assert torch.allclose(mine, theirs, rtol=0, atol=1e-5)
    assert_on_its_way(one)


def assert_on_its_way(run: Assembled) -> None:
    """Many versions, and the optimum still far: or their being equal would tell nothing."""
    assert num_versions(run.memory.lines) > 10
    assert 1e-2 < error(run.coordinator.weights) < 0.99


def decisions(lines: Sequence[Line]) -> list[Mapping[str, Any]]:
    """Who started when, and which updates became a version; in which order clients of one instant
    were started does not count."""
    client = {line["task"]: line["client"] for line in of_kind(lines, "started")}
    started = [(line["at"], line["client"]) for line in of_kind(lines, "started")]
    made = [
        {"at": line["at"], "clients": sorted(client[task] for task in line["tasks"])}
        for line in of_kind(lines, "aggregated")
    ]
    return [{"started": sorted(started)}, *made]


@pytest.mark.parametrize(
    ("name", "settings", "seconds"),
    [
        ("hysync", {"threshold": 0}, TOGETHER),
        ("tea-fed", {"cache_size": 1}, TOGETHER),
        ("papaya", {"timeout_s": 5.0}, APART),
        ("fadas", {"patience": 2}, APART),
        ("fedavg", {"over_selection": 1.3}, APART),
        ("tifl", {"num_tiers": 1}, APART),
        ("pisces", {"average": 0.5}, APART),
        ("ca2fl", {"buffer_size": 2}, APART),
    ],
)
def test_settings_make_a_difference(
    name: str, settings: Mapping[str, Any], seconds: Sequence[float]
) -> None:
    # or the tests above would tell nothing
    one, other = (convex(name, CALM, seconds=seconds, **told).run() for told in (settings, {}))
    assert log_bytes(one) != log_bytes(other)


# --- FedAsync, alpha 1 ----------------------------------------------------------------------------


def test_fedasync_with_alpha_1_and_no_discount_replaces_the_model() -> None:
    run = convex("fedasync", replace(CALM, stop=Stop(updates=60)), alpha=1.0, staleness="constant")
    arrived: dict[int, torch.Tensor] = {}
    record = run.memory.record

    def listen(entry: Any) -> None:
        if hasattr(entry, "report"):
            arrived[entry.task_id] = entry.weights.flat
        record(entry)

    run.memory.record = listen  # type: ignore[method-assign]
    versions = 0
    while run.coordinator.reason is None:
        run.coordinator.step()
        made = of_kind(run.memory.lines, "aggregated")
        if len(made) > versions:
            versions = len(made)
            assert torch.equal(run.coordinator.weights.flat, arrived[max(made[-1]["tasks"])])
    assert versions > 20


# --- FedProx --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedavg", "pisces"])
def test_fedprox_with_mu_0_is_none_and_more_holds_clients_back(name: str) -> None:
    (_, plain), (_, zero), (_, held) = (
        train_digits(name, changes)
        for changes in ([], ["train.proximal=0.0"], ["train.proximal=1.0"])
    )
    assert torch.equal(plain.flat, zero.flat)
    assert not torch.allclose(plain.flat, held.flat, atol=1e-4)


def test_fedprox_costs_nothing_in_a_single_step() -> None:
    # mu/2 |w - w_start|^2 has no slope where a client starts.
    one_step = ["train.epochs=1", "train.batch_size=64"]
    (_, plain), (_, held) = (
        train_digits("fedavg", [*one_step, *more]) for more in ([], ["train.proximal=1.0"])
    )
    assert torch.equal(plain.flat, held.flat)


# --- FedBuff among equals, with real training -----------------------------------------------------

EQUAL = [
    *("latency={kind = 'constant', seconds = 2.0}", "data.sizes=equal", "evaluate.every_s=1.0"),
    "record.decisions=false",  # they do the same for other reasons
]


@pytest.mark.parametrize(
    "rule",
    [
        "{buffer_size = 3}",
        "{buffer_size = 3, reference = 'current', share = 'samples', staleness_penalty = 0.0}",
    ],
    ids=["its own rule", "written as FedAvg"],
)
def test_fedbuff_with_a_full_buffer_is_fedavg_among_equals(rule: str) -> None:
    # K = C and equal speeds: all three arrive at one instant, so the buffer holds a whole cohort
    # of staleness 0. Then the discount (1 + 0)^-beta is 1 for any beta, `base` is the current
    # model, and with equal sizes n / (3 n) is 1 / 3: both rules are the same mean. Both pick three
    # of six from the same generator at the same instants.
    buffered, one = train_digits("fedbuff", [*EQUAL, f"protocols.fedbuff={rule}"])
    rounds, other = train_digits("fedavg", EQUAL)
    assert log_bytes(buffered) == log_bytes(rounds)
    assert num_versions(rounds) == 4
    assert {line["client"] for line in of_kind(rounds, "started")} > {0, 1}
    assert torch.equal(one.flat, other.flat)


def test_among_unequals_fedbuff_is_not_fedavg() -> None:
    # or the test above would not tell anything
    changes = ["protocols.fedbuff={buffer_size = 3}"]
    buffered, one = train_digits("fedbuff", changes)
    rounds, other = train_digits("fedavg")
    assert max_staleness(buffered) > 0 == max_staleness(rounds)
    assert not torch.allclose(one.flat, other.flat)

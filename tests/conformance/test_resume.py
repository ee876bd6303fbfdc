"""Rules of no named protocol, and one around another: saved and restored, a run goes on as it was.

Every named protocol is broken off and taken up, again and again, in `tests/test_resume_state.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from runs import log_bytes, through_json

from conformance.convex import TROUBLED, convex
from pisces.aggregate.asofed import AsoFed
from pisces.aggregate.average import Averaged
from pisces.aggregate.ca2fl import Calibrated
from pisces.aggregate.clip import Clipped
from pisces.aggregate.fedasync import Mixing
from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.measured import MeasuredMean
from pisces.aggregate.port import SimilarityMean
from pisces.aggregate.robust import Krum, Median, RobustMean, Trimmed
from pisces.aggregate.server import Adam, AMSGrad, Momentum, Optimized, Yogi
from pisces.names import PROTOCOLS
from pisces.policy import Aggregator, Policies
from pisces.stop import Stop

RULES: dict[str, Callable[[], Aggregator]] = {
    "momentum": lambda: Optimized(DiscountedMean(), Momentum(0.3)),
    "adam": lambda: Optimized(DiscountedMean(), Adam(0.05)),
    "yogi": lambda: Optimized(DiscountedMean(), Yogi(0.05)),
    "median": lambda: RobustMean(Median()),
    "trimmed mean": lambda: RobustMean(Trimmed()),
    "krum": lambda: RobustMean(Krum()),
    "multi-krum": lambda: RobustMean(Krum(chosen=None)),
    "clipped": lambda: Clipped(DiscountedMean(), norm=0.1),
    "averaged, optimized, clipped, by last models": lambda: Averaged(
        Optimized(Clipped(AsoFed(), norm=0.5), AMSGrad(0.05, patience=2)), horizon=8.0
    ),
    "optimized, calibrated": lambda: Optimized(Calibrated(server_rate=0.3), Yogi(0.05)),
    "clipped, by similarity": lambda: Clipped(SimilarityMean(), norm=0.1),
    "averaged mixing": lambda: Averaged(Mixing(), horizon=8.0),
    "momentum around Pisces' own": lambda: Optimized(MeasuredMean(), Momentum(0.3)),
}
WORLD = replace(TROUBLED, stop=Stop(updates=60))


def policies(rule: str) -> Policies:
    made = PROTOCOLS["pisces"](WORLD.concurrency)
    return replace(made, aggregator=RULES[rule]())


@pytest.mark.parametrize("rule", RULES)
def test_it_goes_on_bit_for_bit(rule: str) -> None:
    whole, run = convex(policies(rule), WORLD), convex(policies(rule), WORLD)
    whole.run()
    lines = []
    while run.coordinator.reason is None:
        for _ in range(7):
            if run.coordinator.reason is None:
                run.coordinator.step()
        lines += run.memory.lines
        fresh = convex(policies(rule), WORLD)
        fresh.coordinator.restore(through_json(run.coordinator.state()))
        fresh.coordinator.reason = run.coordinator.reason
        run = fresh
    lines += run.run()
    assert log_bytes(lines) == log_bytes(whole.memory.lines)
    assert torch.equal(run.coordinator.weights.flat, whole.coordinator.weights.flat)
    assert torch.equal(run.coordinator.published.flat, whole.coordinator.published.flat)

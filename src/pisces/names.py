"""What protocols and policies are called in a config: a new one is a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pisces.aggregate.clip import Clipped
from pisces.aggregate.usual import Usual
from pisces.policy import ANSWERS, Policies
from pisces.protocols import aggregators, arrivals, buffered, judges, pacers, pisces, synchronous
from pisces.select.autofl import QLearning
from pisces.select.fedar import Trusting
from pisces.select.fedcompass import Compass
from pisces.select.fedcs import Fitting
from pisces.select.oort import Oort
from pisces.select.pisces import Guided
from pisces.select.tifl import Tiers
from pisces.select.uniform import Uniform
from pisces.settings import Makers

PROTOCOLS: Mapping[str, Callable[..., Policies]] = {
    "pisces": pisces.pisces,
    "fedbuff": buffered.fedbuff,
    "oort": synchronous.oort,
    "fedavg": synchronous.fedavg,
    "fedasync": arrivals.fedasync,
    "tifl": synchronous.tifl,
    "fedcs": synchronous.fedcs,
    "autofl": synchronous.autofl,
    "aso-fed": arrivals.aso_fed,
    "hysync": arrivals.hysync,
    "fedar": synchronous.fedar,
    "tea-fed": buffered.tea_fed,
    "papaya": buffered.papaya,
    "ca2fl": buffered.ca2fl,
    "fadas": buffered.fadas,
    "port": buffered.port,
    "fedcompass": buffered.fedcompass,
    "pisces-paper": pisces.pisces_paper,
    "pisces-artifact": pisces.pisces_artifact,
    "pisces-without-selection": pisces.pisces_without_selection,
    "pisces-without-staleness": pisces.pisces_without_staleness,
    "pisces-without-adaptive-pace": pisces.pisces_without_adaptive_pace,
    "pisces-without-guard": pisces.pisces_without_guard,
}
# Count up when a protocol comes to do other things with the same settings: runs made before, as
# `results.json` keeps them, are then no longer its own. Its variants count with it, and mixtures
# with all of them: what they are made of may be anybody's.
REVISIONS = {"pisces": 5}

# Single policies, for the tables that replace a part of a protocol.
SELECTORS: Makers = {
    "uniform": Uniform,
    "guided": Guided,
    "oort": Oort,
    "tifl": Tiers,
    "fedcs": Fitting,
    "autofl": QLearning,
    "fedar": Trusting,
    "fedcompass": Compass,
}
PACERS: Makers = {
    "rounds": pacers.rounds,
    "timed": pacers.timed,
    "buffered": pacers.buffered,
    "papaya": pacers.papaya,
    "port": pacers.port,
    "adaptive": pacers.adaptive,
    "remaining": pacers.remaining,
    "fedcompass": pacers.grouped,
}
AGGREGATORS: Makers = {
    "mean": aggregators.mean,
    "measured": aggregators.measured,
    "port": aggregators.similarity,
    "ca2fl": aggregators.calibrated,
    "aso-fed": aggregators.aso_fed,
    "fedasync": aggregators.mixing,
    "tea-fed": aggregators.mixed_mean,
    "hysync": aggregators.hybrid,
    "median": aggregators.median,
    "trimmed-mean": aggregators.trimmed_mean,
    "krum": aggregators.krum,
    "momentum": aggregators.momentum,
    "adam": aggregators.adam,
    "yogi": aggregators.yogi,
    "amsgrad": aggregators.amsgrad,
    "clip": Clipped,
    "usual": Usual,
    "average": aggregators.average,
}
JUDGES: Makers = {
    "learning": judges.learning,
    "clusters": judges.clusters,
    "everybody": judges.everybody,
}
PARTS = dict(zip(ANSWERS, (SELECTORS, PACERS, AGGREGATORS, JUDGES), strict=True))

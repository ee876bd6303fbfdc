"""The table: one row per protocol of `names.PROTOCOLS`, numbers worked out by hand in comments.

A new protocol that shares an answer with others names it: `when=ROUNDS`, `how=MEAN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from typing import Any, NamedTuple

Settings = Mapping[str, Any]


class Who(NamedTuple):
    """How likely each of six clients is among the first two, if all are known or 4 and 5 new."""

    kind: str
    known: Sequence[float]
    new: Sequence[float]


class When(NamedTuple):
    """Slots, ready, and when to ask again, in each of the three instants."""

    kind: str
    one: tuple[int, bool, float]
    two: tuple[int, bool, float]
    ten: tuple[int, bool, float]


class How(NamedTuple):
    """Weights and coefficients of the first and the second version; what is published, if other."""

    kind: str
    first: tuple[Sequence[float], Sequence[float]]
    second: tuple[Sequence[float], Sequence[float]]
    published: Sequence[float] | None = None  # after the second


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a protocol answers, and what it promises."""

    who: Who
    when: When
    how: How
    judge: str | None = None
    # The same scenes with other settings than the default ones.
    forms: Sequence[tuple[Settings, How]] = ()
    # Settings that make it FedAvg among equals, or why there are none.
    among_equals: Settings | str = field(default_factory=dict)
    # Why it matters in which order updates of one instant are asked for; none: it does not.
    order_matters: str | None = None
    # Settings for the convex problem; how near it comes, and why not nearer.
    convex: Settings = field(default_factory=dict)
    nearness: float = 1e-4
    loose: str | None = None
    # Why clients that leave for good still hold the model back; none: they do not.
    remembers: str | None = None


def two_of(weights: Mapping[int, float]) -> list[float]:
    """Chances of six clients in two draws without replacement, in proportion to these weights."""
    total = sum(weights.values())
    p = [weights.get(client, 0.0) / total for client in range(6)]
    return [p[i] + sum(p[j] * p[i] / (1 - p[j]) for j in range(6) if j != i) for i in range(6)]


# --- who ------------------------------------------------------------------------------------------

THIRD = [1 / 3] * 6
UNIFORM = Who("Uniform", THIRD, THIRD)  # 2 of 6, whoever they are

# n x RMS loss is 30, 40, 45, 36, 25 and 12. Divided by (1 + 8)^1/2 = 3 and (1 + 3)^1/2 = 2 where
# clients 2 and 3 are usually stale: 30, 40, 15, 18, 25, 12. The best two are 1 and 0.
# With 4 and 5 new, Binomial(2, 0.9) of two are new: none with 0.01, one with 0.18, two with 0.81.
# So either of them with 0.18 / 2 + 0.81 = 0.9; the best of the others, 1, with 0.19, and 0 with
# 0.01.
GUIDED = Who("Guided", (1, 1, 0, 0, 0, 0), (0.01, 0.19, 0, 0, 0.9, 0.9))
# Without the discount the best are 2 (45) and 1 (40).
UNDISCOUNTED = Who("Guided", (0, 1, 1, 0, 0, 0), (0, 0.01, 0.19, 0, 0.9, 0.9))
# n x loss^1/2: 10 x 1.73 = 17.3, 20 x 1.41 = 28.3, 30 x 1.22 / 3 = 12.2, 40 x 0.95 / 2 = 19.0,
# 50 x 0.71 = 35.4, 60 x 0.45 = 26.8: the best are 4 and 1; of those not new 1 and 3.
BY_ROOTS = Who("Guided", (0, 1, 0, 0, 1, 0), (0, 0.19, 0, 0.01, 0.9, 0.9))

# Oort. int(2 x 0.9 x 0.98) = 1 of two explores. All known: nobody is there to explore, two are
# exploited. Utilities 30, 40, 45, 36, 25, 12; the 0.9 quantile is the largest: nothing is clipped.
# (U - 0.999 x 12) / (45 - 0.999 x 12) = (U - 11.988) / 33.012, plus (0.1 ln 5 / 1)^1/2 in round 5.
# T, at place int(6 x 0.3) = 1 of the durations, is 20 s: slower ones count (20 / L)^2 of it.
BONUS = sqrt(0.1 * 1.6094379)
OORT_KNOWN = {
    0: 18.012 / 33.012 + BONUS,
    1: (28.012 / 33.012 + BONUS) / 9,  # 60 s
    2: 1.0 + BONUS,
    3: (24.012 / 33.012 + BONUS) * 0.16,  # 50 s
    4: (13.012 / 33.012 + BONUS) * 4 / 9,  # 30 s
    5: (0.012 / 33.012 + BONUS) / 4,  # 40 s
}
# With 4 and 5 new one of them is explored, in proportion to their sizes, 50 : 60. They count for
# the scale with their sizes, from 0.999 x 30 to 60, and as 1 s for T, which is then 1 s. One of the
# others is exploited in proportion to ((U - 29.97) / 30.03 + bonus) / L^2.
OORT_NEW = {
    0: (0.03 / 30.03 + BONUS) / 100,
    1: (10.03 / 30.03 + BONUS) / 3600,
    2: (15.03 / 30.03 + BONUS) / 400,
    3: (6.03 / 30.03 + BONUS) / 2500,
}
EXPLOITED = [score / sum(OORT_NEW.values()) for score in OORT_NEW.values()]
OORT = Who("Oort", two_of(OORT_KNOWN), [*EXPLOITED, 5 / 11, 6 / 11])

# TiFL. By latency: 0 and 2 (10, 20 s), then 4, 5, 3 and 1 alone: five tiers, 1/5 each. A tier of
# one is filled up from the next slower one, the slowest from the one before it, so the picks are
# {0, 2}, {4, 5}, {5, 3}, {3, 1} and {1, 3}. Newcomers are profiled before any tier is drawn.
TIERS = Who("Tiers", (0.2, 0.4, 0.2, 0.6, 0.2, 0.4), (0, 0, 0, 0, 1, 1))

# FedAR. Everybody who is known has been back once, within 60 s: its trust is 50 + 8; others' is 50.
TRUSTED = Who("Trusting", THIRD, two_of({0: 58, 1: 58, 2: 58, 3: 58, 4: 50, 5: 50}))

# --- when -----------------------------------------------------------------------------------------

# A cohort starts when the last one is done with, and is ready when nobody of it runs.
ROUNDS = When("Rounds", (0, False, inf), (0, False, inf), (0, True, inf))
# Two of ten seats are free. Every 20 % of C, 2, every one or every 5.
BY_TWO = When("Buffered", (2, False, inf), (2, True, inf), (10, True, inf))
EACH = When("Buffered", (2, True, inf), (2, True, inf), (10, True, inf))
BY_FIVE = When("Buffered", (2, False, inf), (2, False, inf), (10, True, inf))
# The slowest that runs, client 9, takes 100 s: 100 / 10 = 10 s after 40. With nobody running, now.
BY_LATENCY = When("Adaptive", (2, False, 50.0), (2, True, 50.0), (10, True, 40.0))
# b is twice C here. Client 9 is back at 130, 90 s after 40, with 20 + 1 - 1 intervals left: 4.5 s.
# Client 8 needs 90 s in 21 intervals, client 2 11.5 s in 20.
BY_REMAINDER = When("Remaining", (2, True, 44.5), (2, True, 44.5), (10, True, 40.0))
# Every 60 s, or with nobody running; seats are filled after that.
BY_TIMEOUT = When("Timed", (0, False, 100.0), (0, False, 100.0), (0, True, 100.0))
# Whoever waits keeps its seat. Client 0 came at 48 after 10 s and waits 0.2 x 10 s, or a step of 2
# s, until 50; client 2 is expected at 51.5: nobody to wait for. At 50 they would wait until 52 and
# 54: until 52, before client 2, which is given up at 21.5 + 1.2 x 30 = 57.5.
IN_GROUPS = When("Grouped", (1, True, -inf), (0, False, 52.0), (0, True, -inf))

# --- how ------------------------------------------------------------------------------------------

# By samples, 1/4 and 3/4, then 1/5 and 4/5: the models' mean.
# (10, 0) + 1/4 (4, 0) + 3/4 (-8, 8);  (12, 4) + 1/5 (0, 4) + 4/5 (4, -4)
MEAN = How("DiscountedMean", ((5, 6), (0.25, 0.75)), ((15.2, 1.6), (0.2, 0.8)))
# The same of what each has moved by: (10, 0) + 1/4 (4, 0) + 3/4 (0, 8);
# (12, 4) + 1/5 (0, 4) + 4/5 (8, 0)
MEAN_OF_STEPS = How("DiscountedMean", ((11, 6), (0.25, 0.75)), ((18.4, 4.8), (0.2, 0.8)))
# By samples and staleness: 1/4 and 3/4 x 1/2, 1/5 and 4/5 x 1/2, of the way from here.
# (10, 0) + 1/4 (4, 0) + 3/8 (-8, 8);  (12, 4) + 1/5 (0, 4) + 2/5 (4, -4)
STALE_MEAN = How("DiscountedMean", ((8, 3), (0.25, 0.375)), ((13.6, 3.2), (0.2, 0.4)))
# 1/K = 1/2, the stale one times 1/2, of what each has moved by.
# (10, 0) + 1/2 (4, 0) + 1/4 (0, 8);  (12, 4) + 1/2 (0, 4) + 1/4 (8, 0)
FEDBUFF = How("DiscountedMean", ((12, 2), (0.5, 0.25)), ((14, 6), (0.5, 0.25)))

# Pisces. Samples and staleness, 100 : 300/2 = 0.4 : 0.6. 400 samples have arrived and 800 run: a
# full step takes half of them, 600, so the step is 2/3 as long: 4/15 and 2/5.
# (10, 0) + 4/15 (4, 0) + 2/5 (0, 8) = (11 1/15, 3.2). Published: the same, the first there is.
# Then 100 : 400/2 = 1/3 : 2/3. The steps (0, 4) and (8, 0) have no product: they do not agree. The
# model was at (11 1/15, 3.2) lately, (-14/15, -4/5) and (46/15, 16/5) from their bases: they turn
# back by (-3.2 + 24.533) / (80 x 21.156)^1/2 = 0.5186. Two updates count 2/10 in the memory of C:
# 0.1037, more than 0.1: a full step takes all. 500 of 1200 samples: 5/12, 5/36 and 10/36.
# (12, 4) + 5/36 (0, 4) + 10/36 (8, 0) = (14 2/9, 4 5/9), of which 2 / (2 + 2/2) are published.
VERSIONS = (11 + 1 / 15, 3.2), (14 + 2 / 9, 4 + 5 / 9)
PISCES = How(
    "Averaged",
    (VERSIONS[0], (4 / 15, 2 / 5)),
    (VERSIONS[1], (5 / 36, 10 / 36)),
    published=[one + 2 / 3 * (other - one) for one, other in zip(*VERSIONS, strict=True)],
)

# FedAsync: 0.6 of the way to the fresh model, 0.3 of the way from there to the stale one; of the
# first 0.6 x 0.7 is left.
# (10, 0) -> (12.4, 0) -> (9.28, 2.4);  (12, 4) -> (12, 6.4) -> (13.2, 4.48)
FEDASYNC = How("Mixing", ((9.28, 2.4), (0.42, 0.3)), ((13.2, 4.48), (0.42, 0.3)))
# Constant: 0.6 twice. (12.4, 0) -> (6.16, 4.8);  (12, 6.4) -> (14.4, 2.56)
CONSTANT = How("Mixing", ((6.16, 4.8), (0.24, 0.6)), ((14.4, 2.56), (0.24, 0.6)))
# Hinge from 1 on: 0.6 / (10 (3 - 1) + 1) = 0.6 / 21 = 1/35.
# (12.4, 0) + 1/35 (-10.4, 8);  (12, 6.4) + 1/35 (4, -6.4)
HINGE = How(
    "Mixing",
    ((12.4 - 10.4 / 35, 8 / 35), (0.6 * 34 / 35, 1 / 35)),
    ((12 + 4 / 35, 6.4 - 6.4 / 35), (0.6 * 34 / 35, 1 / 35)),
)
# A crowd: the mean by samples, then 0.6 (1/4 + 3/4 x 1/2) = 0.375 and 0.6 (1/5 + 4/5 x 1/2) = 0.36
# of the way. (10, 0) + 0.375 (-5, 6);  (12, 4) + 0.36 (3.2, -2.4)
CROWD = How("Hybrid", ((8.125, 2.25), (0.09375, 0.28125)), ((13.152, 3.136), (0.072, 0.288)))
# ASO-Fed: the mean by samples of the last models. First (14, 0) and (2, 8), 1/4 and 3/4. Then
# client 0 says (12, 8) instead of (14, 0), 100 of 800 samples; client 2 is new, 400 of 800, and
# comes to the mean. (12, 4) + 1/8 (-2, 8) + 1/2 (4, -4)
LAST_MODELS = How("AsoFed", ((5, 6), (0.25, 0.75)), ((13.75, 3), (0.125, 0.5)))
# TEA-Fed: by samples and staleness 0.4 : 0.6, then 1/3 : 2/3; 0.6 (1 + 1/2) / 2 = 0.45 of the way.
# (10, 0) + 0.18 (4, 0) + 0.27 (-8, 8);  (12, 4) + 0.15 (0, 4) + 0.3 (4, -4)
TEA_FED = How("MixedMean", ((8.56, 2.16), (0.18, 0.27)), ((13.2, 3.4), (0.15, 0.3)))
# CA2FL: (10, 0) + 1/2 (4, 0) + 1/2 (0, 8). The four clients' last are then (4, 0), (0, 8), 0 and 0,
# mean (1, 2). Now 0 moved by (0, 4) and 2 by (8, 0), whose last are (4, 0) and 0:
# (12, 4) + (1, 2) + 1/2 (-4, 4) + 1/2 (8, 0)
CA2FL = How("Calibrated", ((12, 4), (0.5, 0.5)), ((15, 8), (0.5, 0.5)))
# Papaya: FedBuff's steps, (2, 2) both times, for Adam. m = 0.1 x 2 = 0.2, v = 0.99 x 1e-6 + 0.01 x
# 4 = 0.04000099: 0.01 x 0.2 / (0.2000025 + 0.001). m = 0.18 + 0.2 = 0.38, v = 0.99 x 0.04000099 +
# 0.04 = 0.07960098: 0.01 x 0.38 / (0.2821365 + 0.001)
ADAM = 0.002 / 0.2010025, 0.0038 / 0.2831365
PAPAYA = How(
    "Optimized",
    ((10 + ADAM[0], ADAM[0]), (0.5, 0.25)),
    ((12 + ADAM[1], 4 + ADAM[1]), (0.5, 0.25)),
)
# At half the rate of plain SGD: half of FedBuff's steps.
PAPAYA_SGD = How("Optimized", ((11, 1), (0.5, 0.25)), ((13, 5), (0.5, 0.25)))
# FADAS: steps 1/2 (4, 0) + 1/2 (0, 8) = (2, 4), then 1/2 (0, 4) + 1/2 (8, 0) = (4, 2), for AMSGrad.
# m = (0.2, 0.4), v = (0.04, 0.16): 0.01 x (1, 1). m = (0.18, 0.36) + (0.4, 0.2), v = (0.0396,
# 0.1584) + (0.16, 0.04), both larger than before.
AMSGRAD = 0.0058 / sqrt(0.1996), 0.0056 / sqrt(0.1984)
FADAS = How(
    "Optimized",
    ((10.01, 0.01), (0.5, 0.5)),
    ((12 + AMSGRAD[0], 4 + AMSGRAD[1]), (0.5, 0.5)),
)
# An update is three behind, more than two: a third of the rate.
FADAS_LATE = How(
    "Optimized",
    ((10 + 0.01 / 3, 0.01 / 3), (0.5, 0.5)),
    ((12 + AMSGRAD[0] / 3, 4 + AMSGRAD[1] / 3), (0.5, 0.5)),
)
# PORT: 100 (10/10 + 1/2) = 150 and 300 (10/13 + 1/2) = 9900/26, which is 13 : 33.
# (10, 0) + 13/46 (4, 0) + 33/46 (0, 8): the model moved by (52, 264) / 46, along (13, 66). The next
# steps, along (0, 1) and (1, 0), have cosines 66 and 13 over (13^2 + 66^2)^1/2 = 4525^1/2.
PORT_RAW = (
    100 * (1 + (66 / sqrt(4525) + 1) / 2),
    400 * (10 / 13 + (13 / sqrt(4525) + 1) / 2),
)
TO_FRESH, TO_STALE = (raw / sum(PORT_RAW) for raw in PORT_RAW)
PORT = How(
    "SimilarityMean",
    ((10 + 52 / 46, 264 / 46), (13 / 46, 33 / 46)),
    ((12 + 8 * TO_STALE, 4 + 4 * TO_FRESH), (TO_FRESH, TO_STALE)),
)

# --- the table ------------------------------------------------------------------------------------

LAST_COVERS = "models are mixed in one after the other: the last one covers those before it"
LAST_WORD = "what a client said last counts on when it is gone: the paper's clients never leave"
ADAPTIVE = "the server's step does not grow with the updates', but goes by how large they have been"

PISCES_ROW = Row(who=GUIDED, when=BY_REMAINDER, how=PISCES, judge="NothingLearnt")

ROWS: dict[str, Row] = {
    "pisces": PISCES_ROW,
    "fedbuff": Row(
        who=UNIFORM,
        when=BY_TWO,
        how=FEDBUFF,
        forms=[({"reference": "current", "share": "samples"}, STALE_MEAN)],
        among_equals={"buffer_size": 6},
    ),
    "oort": Row(who=OORT, when=ROUNDS, how=MEAN),
    "fedavg": Row(who=UNIFORM, when=ROUNDS, how=MEAN),
    "fedasync": Row(
        who=UNIFORM,
        when=EACH,
        how=FEDASYNC,
        forms=[
            ({"staleness": "constant"}, CONSTANT),
            ({"staleness": "hinge"}, CONSTANT),  # up to 4 behind it costs nothing
            ({"staleness": "hinge", "hinge_start": 1.0}, HINGE),
        ],
        among_equals=LAST_COVERS,
        order_matters=LAST_COVERS,
    ),
    "tifl": Row(who=TIERS, when=ROUNDS, how=MEAN),
    # A tenth of six is asked, or the two wanted, at random; they all fit into 180 s.
    "fedcs": Row(who=Who("Fitting", THIRD, THIRD), when=ROUNDS, how=MEAN),
    # Nothing is learnt yet: all states are alike.
    "autofl": Row(who=Who("QLearning", THIRD, THIRD), when=ROUNDS, how=MEAN),
    "aso-fed": Row(who=UNIFORM, when=EACH, how=LAST_MODELS, remembers=LAST_WORD),
    "hysync": Row(
        who=UNIFORM,
        when=EACH,
        how=FEDASYNC._replace(kind="Hybrid"),  # two are no crowd: more than 5 are
        forms=[({"threshold": 1}, CROWD)],
        among_equals={"alpha": 1.0},
        order_matters=LAST_COVERS,
    ),
    "fedar": Row(who=TRUSTED, when=BY_TIMEOUT, how=MEAN_OF_STEPS),
    "tea-fed": Row(
        who=UNIFORM, when=BY_FIVE, how=TEA_FED, among_equals={"alpha": 1.0, "cache_size": 6}
    ),
    "papaya": Row(
        who=UNIFORM,
        when=BY_TWO._replace(kind="Papaya"),
        how=PAPAYA,
        forms=[({"server": "sgd", "server_rate": 0.5}, PAPAYA_SGD)],
        among_equals={"buffer_size": 6, "server": "sgd", "server_rate": 1.0},
        convex={"server_rate": 0.02},
        nearness=1e-2,
        loose="Adam's steps stay as long as its rate until gradients are as small as its tau",
    ),
    "ca2fl": Row(
        who=UNIFORM,
        when=BY_TWO,
        how=CA2FL,
        among_equals={"buffer_size": 6},
        # One at a time, at full rate and up to 14 versions late, its steps are too long: as SAGA's.
        convex={"buffer_size": 2},
        remembers=LAST_WORD,
    ),
    "fadas": Row(
        who=UNIFORM,
        when=BY_TWO,
        how=FADAS,
        forms=[({"patience": 2}, FADAS_LATE), ({"patience": 3}, FADAS)],
        among_equals=ADAPTIVE,
        convex={"server_rate": 0.03},
    ),
    "port": Row(
        who=UNIFORM,
        when=BY_TWO._replace(kind="Port"),
        how=PORT,
        among_equals={"buffer_size": 6, "similarity_weight": 0.0},
    ),
    "fedcompass": Row(
        who=Who("Compass", THIRD, THIRD),
        when=IN_GROUPS,
        how=MEAN_OF_STEPS,
        among_equals={"min_steps": 4},  # newcomers do as much as anybody
    ),
    "pisces-paper": Row(who=GUIDED, when=BY_LATENCY, how=MEAN_OF_STEPS, judge="LossOutliers"),
    "pisces-artifact": Row(who=BY_ROOTS, when=BY_LATENCY, how=STALE_MEAN),
    "pisces-without-selection": replace(PISCES_ROW, who=UNIFORM),
    "pisces-without-staleness": replace(PISCES_ROW, who=UNDISCOUNTED),
    "pisces-without-adaptive-pace": replace(
        PISCES_ROW, when=BY_TWO, among_equals={"buffer_size": 6}
    ),
    "pisces-without-guard": replace(PISCES_ROW, judge=None),
}

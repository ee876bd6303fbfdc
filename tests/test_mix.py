"""Mixing by hand: every triple runs or is refused with its reason, and tables are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest
from runs import World, assert_lawful, implementations, log_bytes, num_versions, simulate

import pisces.aggregate
import pisces.judge
import pisces.pace
import pisces.select
from pisces import build
from pisces.aggregate.mean import DiscountedMean
from pisces.build import AGGREGATORS, JUDGES, PACERS, PARTS, PROTOCOLS, SELECTORS
from pisces.config import Config, parse, to_toml
from pisces.errors import ConfigError
from pisces.mix import Part
from pisces.policy import Policies
from pisces.sense import check_sense
from pisces.settings import defaults_of, schema_of
from pisces.stop import Stop
from pisces.study.runs import digest

C = 3
Table = Mapping[str, Any]


def config_of(protocol: str = "fedbuff", **tables: Table) -> Config:
    clients = {"count": 6, "concurrency": C, "deadline_s": 30.0}
    return Config.model_validate({"protocol": protocol, "clients": clients, **tables})


def mixed(protocol: str = "fedbuff", **tables: Table) -> Policies:
    return build.policies_of(config_of(protocol, **tables))


def refusal(protocol: str = "fedbuff", **tables: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        mixed(protocol, **tables)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- every triple ---------------------------------------------------------------------------------

WHO: dict[str, Table] = {
    **{name: {"policy": name} for name in SELECTORS},
    "oort, one by one": {"policy": "oort", "exploration_draw": "binomial"},
}
WHEN: dict[str, Table] = {
    **{name: {"policy": name} for name in PACERS},
    **{name: {"policy": name, "buffer_size": 2} for name in ("buffered", "papaya", "port")},
    "buffered, one": {"policy": "buffered", "buffer_size": 1},
    "papaya, one": {"policy": "papaya", "buffer_size": 1},
}
HOW: dict[str, Table] = {
    **{name: {"policy": name} for name in AGGREGATORS},
    "clip": {"policy": "clip", "norm": 1.0},
    "adam around fedasync": {"policy": "adam", "inner": {"policy": "fedasync"}},
    "clip around krum": {"policy": "clip", "norm": 1.0, "inner": {"policy": "krum"}},
}

COHORTS = {"oort", "tifl", "fedcs"}  # chosen as a whole ...
ROUNDS = {"rounds", "timed"}  # ... by paces that start them as a whole
ONE = {"buffered, one", "papaya, one"}
IN_TURN = {"fedasync", "adam around fedasync"}
SEVERAL = {"median", "trimmed-mean", "krum", "clip around krum"}


def expected(who: str, when: str, how: str) -> str | None:
    """Why a triple makes no sense, in the first words of the reason; none: it does."""
    if who in COHORTS and when not in ROUNDS:
        return "select: this selector chooses whole cohorts"
    if who == "fedcompass" and when not in ROUNDS | {"fedcompass"}:
        return "select: this selector cuts steps"
    if when == "fedcompass" and who != "fedcompass":
        return "pace: this pace waits for clients that are made to arrive together"
    if how in IN_TURN and when not in ONE:
        return "aggregate: of several updates the last covers"
    if how in SEVERAL and when in ONE:
        return "aggregate: it holds updates against each other"
    return None


@pytest.mark.parametrize("who", WHO)
def test_every_triple_runs_or_is_refused_with_its_reason(who: str) -> None:
    world = World(concurrency=C, deadline_s=30.0, stop=Stop(versions=3))
    for when, pace in WHEN.items():
        for how, aggregate in HOW.items():
            reason, tables = expected(who, when, how), {"pace": pace, "aggregate": aggregate}
            if reason is not None:
                assert refusal(select=WHO[who], **tables).startswith(reason), (who, when, how)
                continue
            lines = simulate(mixed(select=WHO[who], **tables), world)
            assert num_versions(lines) == 3, (who, when, how)
            assert_lawful(lines, C)


def test_how_many_triples_there_are() -> None:
    # Today: 19 aggregators, 2 of them mix in turn and 4 need several, so 17 go with paces that hand
    # over several at once and 15 with the others. Cohorts (3 selectors): 2 paces of rounds x 17.
    # Compass: 3 paces x 17. The other 5, not with fedcompass: 7 paces x 17 and 2 of one x 15.
    # 102 + 51 + 745 = 898 make sense, 9 x 10 x 19 - 898 = 812 do not.
    triples = Counter(
        expected(who, when, how) is None for who in WHO for when in WHEN for how in HOW
    )
    several, one = len(HOW) - len(IN_TURN), len(HOW) - len(SEVERAL)
    others = (len(WHEN) - len(ONE) - 1) * several + len(ONE) * one
    assert triples[True] == 3 * 2 * several + 3 * several + (len(WHO) - 4) * others
    assert triples[False] == len(WHO) * len(WHEN) * len(HOW) - triples[True]
    assert triples[True] >= 898
    assert triples[False] >= 812


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_named_protocol_makes_sense(name: str) -> None:
    check_sense(PROTOCOLS[name](20))


def test_two_timeouts_are_refused() -> None:
    message = refusal(
        select={"policy": "fedar", "timeout_s": 20.0}, pace={"policy": "timed", "timeout_s": 30.0}
    )
    assert message == (
        "select: an update is late after 20 s to the selector, but the pace waits 30 s: give both "
        "the same timeout_s"
    )
    # Where the pace has no timeout, or only calls tasks off, the selector's is its own affair.
    for pace in ("rounds", "papaya"):
        mixed(select={"policy": "fedar", "timeout_s": 20.0}, pace={"policy": pace})


# --- what replaces what ---------------------------------------------------------------------------

BASE = {"staleness_penalty": 0.0}  # by samples against the base, whatever the staleness
MIXING_UPDATES = {"pace": {"policy": "buffered", "buffer_size": 1}}
BY_HAND: dict[str, dict[str, Table]] = {
    "fedavg": {"pace": {"policy": "rounds"}, "aggregate": {"policy": "mean"}},
    "fedbuff": {"pace": {"policy": "buffered"}, "aggregate": {"policy": "mean", "share": "equal"}},
    "oort": {
        "select": {"policy": "oort"},
        "pace": {"policy": "rounds"},
        "aggregate": {"policy": "mean"},
    },
    "tifl": {
        "select": {"policy": "tifl"},
        "pace": {"policy": "rounds"},
        "aggregate": {"policy": "mean"},
    },
    "fedcs": {
        "select": {"policy": "fedcs"},
        "pace": {"policy": "rounds"},
        "aggregate": {"policy": "mean"},
    },
    "autofl": {
        "select": {"policy": "autofl"},
        "pace": {"policy": "rounds"},
        "aggregate": {"policy": "mean"},
    },
    "fedar": {
        "select": {"policy": "fedar"},
        "pace": {"policy": "timed"},
        "aggregate": {"policy": "mean", **BASE},
    },
    "fedasync": {**MIXING_UPDATES, "aggregate": {"policy": "fedasync"}},
    "hysync": {**MIXING_UPDATES, "aggregate": {"policy": "hysync"}},
    "aso-fed": {**MIXING_UPDATES, "aggregate": {"policy": "aso-fed"}},
    "tea-fed": {
        "pace": {"policy": "buffered", "buffer_size": 1},  # half of 3
        "aggregate": {"policy": "tea-fed"},
    },
    "papaya": {
        "pace": {"policy": "papaya"},
        "aggregate": {"policy": "adam", "inner": {"policy": "mean", "share": "equal"}},
    },
    "ca2fl": {"pace": {"policy": "buffered"}, "aggregate": {"policy": "ca2fl"}},
    "fadas": {
        "pace": {"policy": "buffered"},
        "aggregate": {"policy": "amsgrad", "inner": {"policy": "mean", "share": "equal", **BASE}},
    },
    "port": {"pace": {"policy": "port"}, "aggregate": {"policy": "port"}},
    "fedcompass": {
        "select": {"policy": "fedcompass"},
        "pace": {"policy": "fedcompass"},
        "aggregate": {"policy": "mean", **BASE},
    },
    "pisces": {
        "select": {"policy": "guided"},
        "pace": {"policy": "remaining"},
        "aggregate": {"policy": "average", "inner": {"policy": "measured"}},
        "judge": {"policy": "learning"},
    },
    "pisces-paper": {
        "select": {"policy": "guided"},
        "pace": {"policy": "adaptive", "unseen_latency_s": 180.0},
        "aggregate": {"policy": "mean", **BASE},
        "judge": {"policy": "clusters"},
    },
    "pisces-artifact": {
        "select": {"policy": "guided", "loss_term": "root"},
        "pace": {"policy": "adaptive", "unseen_latency_s": 180.0},
        "aggregate": {"policy": "mean", "reference": "current"},
    },
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand_it_is_the_same_run(name: str) -> None:
    nobody: Table = {"policy": "everybody"}
    tables = {"select": {"policy": "uniform"}, "judge": nobody, **BY_HAND[name]}
    # What it is put together from must not matter: two that have nothing in common with it.
    world = World(jitter=0.3, deadline_s=30.0, stop=Stop(updates=30))
    logs = {
        log_bytes(simulate(policies, world))
        for policies in (mixed(name), mixed("pisces", **tables), mixed("fedasync", **tables))
    }
    assert len(logs) == 1


def test_a_table_replaces_its_part_and_nothing_else() -> None:
    own, new = mixed("pisces"), mixed("pisces", select={"policy": "uniform"})
    assert type(new.selector) is not type(own.selector)
    assert type(new.pacer) is type(own.pacer)
    assert type(new.aggregator) is type(own.aggregator)
    assert type(new.judge) is type(own.judge)
    assert mixed("pisces", judge={"policy": "everybody"}).judge is None


def test_without_an_inner_one_it_goes_around_the_protocols_own() -> None:
    world = World(stop=Stop(updates=20))
    papaya = simulate(mixed("papaya"), world)
    assert log_bytes(
        simulate(mixed("papaya", aggregate=BY_HAND["papaya"]["aggregate"]), world)
    ) == (log_bytes(papaya))
    around = simulate(mixed("fedbuff", aggregate={"policy": "adam"}), world)
    assert log_bytes(around) == log_bytes(papaya)  # FedBuff with Adam, and nobody takes 240 s


def test_an_optimiser_is_not_put_around_an_average() -> None:
    assert refusal("pisces", aggregate={"policy": "adam"}) == (
        "aggregate: a server optimiser cannot go around an aggregator that publishes other weights "
        "than it trains: put the average around the optimiser"
    )
    three = {"policy": "average", "inner": {"policy": "adam", "inner": {"policy": "measured"}}}
    mixed("pisces", aggregate=three)


def nested(depth: int) -> Table:
    """A policy with so many inside it."""
    table: Table = {"policy": "mean"}
    for _ in range(depth):
        table = {"policy": "clip", "norm": 1.0, "inner": table}
    return table


def test_ten_policies_may_be_inside_each_other() -> None:
    mixed("fedbuff", aggregate=nested(10))


# --- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"select": {"exploration": 0.5}},
            "select: policy: this key is needed: one of uniform, guided, oort, tifl, fedcs, "
            "autofl, fedar, fedcompass",
        ),
        (
            {"select": {"policy": "gided"}},
            "select.policy: must be one of uniform, guided, oort, tifl, fedcs, autofl, fedar, "
            "fedcompass, not 'gided'; did you mean 'guided'?",
        ),
        (
            {"judge": {"policy": ["learning"]}},
            "judge.policy: must be one of learning, clusters, everybody, in quotes, not "
            "['learning']",
        ),
        ({"pace": {"policy": 3}}, "pace.policy: must be one of rounds, timed,"),
        ({"aggregate": nested(11)}, "aggregate: at most 10 policies inside each other"),
        ({"aggregate": nested(500)}, "aggregate: at most 10 policies inside each other"),
        (
            {"select": {"policy": "guided", "exploraton": 0.5}},
            "select: exploraton: unknown key; did you mean exploration?",
        ),
        (
            {"select": {"policy": "uniform", "num_tiers": 3}},
            "select: num_tiers: unknown key; it is a setting of tifl",
        ),
        (
            {"select": {"policy": "guided", "exploration": "much"}},
            "select: exploration: must be a valid number, not 'much'",
        ),
        (
            {"select": {"policy": "guided", "exploration": 2.0}},
            "select: Guided: exploration must lie between 0 and 1, but is 2.0",
        ),
        (
            {"pace": {"policy": "buffered", "buffer_size": 0}},
            "pace: buffer_size: must be greater than or equal to 1, not 0",
        ),
        ({"aggregate": {"policy": "clip"}}, "aggregate: norm: this key is needed"),
        (
            {"aggregate": {"policy": "mean", "inner": {"policy": "krum"}}},
            "aggregate.inner: mean goes around no other policy: leave it out; momentum, adam,",
        ),
        (
            {"aggregate": {"policy": "adam", "inner": {"policy": "krum", "bad_shar": 1}}},
            "aggregate.inner: bad_shar: unknown key; did you mean bad_share?",
        ),
        ({"aggregate": {"policy": "adam", "inner": {}}}, "aggregate.inner: policy: this key is"),
        ({"aggregate": {"policy": "adam", "inner": "krum"}}, "aggregate.inner: must be a table"),
        ({"select": {"policy": "guided", "inner": {}}}, "select.inner: guided goes around no"),
        (
            {"pace": {"policy": "buffered", "concurrency": 3}},
            "pace: concurrency: unknown key",
        ),
    ],
)
def test_a_bad_table_is_refused_in_one_line(tables: dict[str, Table], message: str) -> None:
    assert refusal(**tables).startswith(message)


@pytest.mark.parametrize("text", ['select = "uniform"', "select = 5"])
def test_a_policy_is_told_in_a_table(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^config: select: must be a table, not"):
        parse(text)


def test_a_strict_pace_by_hand_needs_a_deadline_too() -> None:
    config = parse('[pace]\npolicy = "port"')
    with pytest.raises(ConfigError, match=r"^pace: a strict pace needs clients\.deadline_s"):
        build.policies_of(config)


def test_changes_reach_tables() -> None:
    changes = ["select.policy=guided", "select.exploration=0.5", "aggregate.policy=adam"]
    config = parse("", [*changes, "aggregate.inner.policy=krum"])
    assert config.mixed == {
        "select": {"policy": "guided", "exploration": 0.5},
        "aggregate": {"policy": "adam", "inner": {"policy": "krum"}},
    }
    assert parse('[select]\npolicy = "guided"', ["select=none"]).mixed == {}


def test_settings_are_spelled_out_and_read_again() -> None:
    tables = {"policy": "clip", "norm": 2.0, "inner": {"policy": "hysync", "threshold": None}}
    config = build.resolved(config_of(aggregate=tables))
    assert config.aggregate == {
        "policy": "clip",
        "norm": 2.0,
        "inner": {
            "policy": "hysync",
            "alpha": 0.6,
            "staleness": "polynomial",
            "penalty": 0.5,
            "hinge_slope": 10.0,
            "hinge_start": 4.0,
        },
    }
    assert build.resolved(parse(to_toml(config))) == config


EVERY = [(table, name) for table, makers in PARTS.items() for name in makers]


@pytest.mark.parametrize(("table", "name"), EVERY)
def test_every_setting_is_described_and_can_be_written_down(table: str, name: str) -> None:
    fields = schema_of(PARTS[table][name], name).model_fields
    assert set(fields) == set(defaults_of(PARTS[table][name]))
    for key, field in fields.items():
        assert field.description, key
        # TOML has no word for none: it can only be what a key means that is not there.
        takes_none = type(None) in getattr(field.annotation, "__args__", ())
        assert takes_none == (field.default is None), key


ROOMS = [
    (pisces.select, "pick", "selector", WHO),
    (pisces.pace, "ready", "pacer", WHEN),
    (pisces.aggregate, "combine", "aggregator", HOW),
    (pisces.judge, "judge", "judge", {name: {"policy": name} for name in JUDGES}),
]


@pytest.mark.parametrize(("room", "verb", "answer", "tables"), ROOMS)
def test_every_policy_can_be_mixed(
    room: ModuleType, verb: str, answer: str, tables: Mapping[str, Table]
) -> None:
    table = {answer: table for table, answer in build.ANSWERS.items()}[answer]
    made = {
        type(Part.read(table, told, PARTS[table]).made(C, DiscountedMean()))
        for told in tables.values()
    }
    assert implementations(room, verb) <= made


# --- studies --------------------------------------------------------------------------------------


def test_records_made_before_there_were_such_tables_are_found() -> None:
    plain = parse("", ["protocol=fedbuff", "seed=3", "clients.count=40"])
    assert digest(build.resolved(plain)) == "36b69e0f82380d93"  # as it was then
    others = {
        digest(build.resolved(plain.model_copy(update={"aggregate": table})))
        for table in ({"policy": "adam"}, {"policy": "adam", "rate": 0.1}, {"policy": "yogi"})
    }
    assert len(others - {"36b69e0f82380d93"}) == 3

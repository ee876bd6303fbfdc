"""Mixing by hand: every triple runs or is refused with its reason, and tables are checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from runs import (
    World,
    assert_lawful,
    implementations,
    log_bytes,
    made,
    num_versions,
    of_kind,
    plain,
    simulate,
)

import pisces.aggregate
import pisces.judge
import pisces.pace
import pisces.select
from pisces import build
from pisces.config import Config, parse, to_toml
from pisces.errors import ConfigError
from pisces.names import AGGREGATORS, JUDGES, PACERS, PARTS, PROTOCOLS, REVISIONS, SELECTORS
from pisces.policy import ANSWERS, Policies, Policy, Trait, Traits
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


BY_SIZE = [name for name in PACERS if "buffer_size" in defaults_of(PACERS[name])]
WHO: dict[str, Table] = {
    **{name: plain("select", name) for name in SELECTORS},
    "oort, one by one": {"policy": "oort", "exploration_draw": "binomial"},
}
WHEN: dict[str, Table] = {
    **{name: plain("pace", name) for name in PACERS},
    **{name: {"policy": name, "buffer_size": 2} for name in BY_SIZE},
    **{f"{name}, one": {"policy": name, "buffer_size": 1} for name in BY_SIZE},
    "rounds, the first": {"policy": "rounds", "over_selection": 3.0},
}
HOW: dict[str, Table] = {
    **{name: plain("aggregate", name) for name in AGGREGATORS},
    "adam around fedasync": {"policy": "adam", "inner": {"policy": "fedasync"}},
    "clip around krum": {**plain("aggregate", "clip"), "inner": {"policy": "krum"}},
    "hysync, two are no crowd": {"policy": "hysync", "threshold": 2},
}


def missing(*parts: Policy) -> Traits:
    """What a triple lacks, as its policies say."""
    needs, gives = ([getattr(part, name) for part in parts] for name in ("needs", "gives"))
    return frozenset[Trait]().union(*needs) - frozenset[Trait]().union(*gives)


@pytest.mark.parametrize("who", WHO)
def test_every_triple_runs_or_is_refused_with_its_reasons(who: str) -> None:
    world = World(concurrency=C, deadline_s=30.0, stop=Stop(versions=3))
    selector = made("select", WHO[who], C)
    for when, pace in WHEN.items():
        for how, aggregate in HOW.items():
            tables = {"pace": pace, "aggregate": aggregate}
            lacks = missing(selector, *(made(table, told, C) for table, told in tables.items()))
            if lacks:
                said = refusal(select=WHO[who], **tables)
                for trait in lacks:
                    assert trait.without.partition(", but")[0] in said, (who, when, how)
                continue
            lines = simulate(mixed(select=WHO[who], **tables), world)
            assert num_versions(lines) == 3, (who, when, how)
            assert_lawful(lines, C)


# As the table of docs/protocols.md has it: who or how, the paces of `WHEN` it goes with.
IN_ROUNDS = {"rounds", "timed", "rounds, the first"}
BY_ONES = {"buffered, one", "papaya, one", "rounds, the first"}
GOES_WITH: dict[str, set[str]] = {
    "tifl": IN_ROUNDS,
    "fedcs": IN_ROUNDS,
    "oort": IN_ROUNDS,
    "fedcompass": {*IN_ROUNDS, "fedcompass"},
    "fedasync": BY_ONES,
    "adam around fedasync": BY_ONES,
    "hysync, two are no crowd": BY_ONES,
    **dict.fromkeys(("median", "trimmed-mean", "krum", "clip around krum"), WHEN.keys() - BY_ONES),
}


@pytest.mark.parametrize("name", ["uniform", "mean", "hysync", *GOES_WITH])
def test_what_goes_with_which_pace(name: str) -> None:
    table, told = ("select", WHO[name]) if name in WHO else ("aggregate", HOW[name])
    needs = made(table, told, C).needs
    fits = {when for when, pace in WHEN.items() if needs <= made("pace", pace, C).gives}
    assert fits == GOES_WITH.get(name, WHEN.keys())  # with all there are


@pytest.mark.parametrize("concurrency", [1, C])
@pytest.mark.parametrize("when", WHEN)
def test_who_says_to_hand_over_one_at_a_time_does(when: str, concurrency: int) -> None:
    world = World(concurrency=concurrency, jitter=0.3, stop=Stop(updates=30))  # no two at once
    pacer = made("pace", WHEN[when], concurrency)
    lines = simulate(replace(mixed("fedbuff"), pacer=pacer), world)
    most = max(len(line["tasks"]) for line in of_kind(lines, "aggregated"))
    assert most == 1 or Trait.ONE_AT_A_TIME not in pacer.gives
    assert most > 1 or Trait.SEVERAL not in pacer.gives or concurrency == 1
    assert (Trait.SEVERAL in pacer.gives) != (Trait.ONE_AT_A_TIME in pacer.gives)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"select": {"policy": "tifl"}},
            "select: Tiers chooses whole cohorts, but Buffered starts clients as slots come free "
            "(Oort alone may be told exploration_draw = 'binomial'): use pace.policy 'rounds' or "
            "pace.policy 'timed'",
        ),
        (
            {"select": {"policy": "fedcompass"}},
            "select: Compass cuts steps so that clients arrive together, but Buffered does not "
            "wait for those who do: use pace.policy 'rounds' or pace.policy 'timed' or "
            "pace.policy 'fedcompass'",
        ),
        (
            {"pace": {"policy": "fedcompass"}},
            "pace: Grouped waits for clients that are made to arrive together, but Uniform sets "
            "nobody's steps: use select.policy 'fedcompass'",
        ),
        (
            {"pace": {"policy": "rounds"}, "aggregate": {"policy": "hysync", "threshold": 2}},
            "aggregate: Hybrid mixes updates in one after the other, so that the last covers those "
            "before it, but Rounds hands over several at once: set pace.buffer_size = 1 (of "
            "hysync: or threshold = 1), or use aggregate.policy 'tea-fed', which mixes in their "
            "mean",
        ),
        (
            {"aggregate": {"policy": "krum"}},
            "aggregate: RobustMean holds updates against each other, but Buffered hands them over "
            "one by one: raise buffer_size, or use another pace",
        ),
    ],
)
def test_reasons_name_policies_and_what_helps(tables: dict[str, Table], message: str) -> None:
    assert refusal(**tables) == message


def test_all_reasons_are_told() -> None:
    said = refusal(select={"policy": "tifl"}, aggregate={"policy": "krum"})
    assert said.startswith("select: Tiers chooses")
    assert "; aggregate: RobustMean holds" in said


def test_policies_from_python_are_checked_too() -> None:
    parts = build.simulation(config_of())
    own = replace(parts.policies, selector=made("select", {"policy": "tifl"}))
    with pytest.raises(ConfigError, match=r"select: Tiers .*: use one that gives Trait\.ROUNDS$"):
        replace(parts, policies=own)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_named_protocol_makes_sense(name: str) -> None:
    check_sense(PROTOCOLS[name](20))


def test_two_timeouts_are_refused() -> None:
    message = refusal(
        select={"policy": "fedar", "timeout_s": 20.0}, pace={"policy": "timed", "timeout_s": 30.0}
    )
    assert message == (
        "select: timeout_s is 20 to Trusting, but 30 to Timed (pace): give both the same"
    )
    # Where the pace has no timeout, or only calls tasks off, the selector's is its own affair.
    for pace in ("rounds", "papaya"):
        mixed(select={"policy": "fedar", "timeout_s": 20.0}, pace={"policy": pace})


def test_port_is_told_one_bound() -> None:
    told = {"pace": {"policy": "port", "staleness_bound": 5}, "aggregate": {"policy": "port"}}
    assert refusal(**told) == (
        "pace: staleness_bound (half_staleness) is 5 to Port, but 3 to SimilarityMean "
        "(aggregate): give both the same"
    )
    mixed(**told | {"aggregate": {"policy": "port", "half_staleness": 5.0}})
    inside = {"policy": "adam", "inner": {"policy": "port"}}
    assert "give both the same" in refusal(**told | {"aggregate": inside})


# --- what replaces what ---------------------------------------------------------------------------

BY_SAMPLES = {"policy": "mean", "share": "samples"}  # as FedAvg's, where nobody is stale
BASE = {**BY_SAMPLES, "staleness_penalty": 0.0}  # against the base, whatever the staleness
MIXING_UPDATES = {"pace": {"policy": "buffered", "buffer_size": 1}}
BY_HAND: dict[str, dict[str, Table]] = {
    "fedavg": {"pace": {"policy": "rounds"}, "aggregate": BY_SAMPLES},
    "fedbuff": {"pace": {"policy": "buffered"}, "aggregate": {"policy": "mean"}},
    "oort": {
        "select": {"policy": "oort"},
        "pace": {"policy": "rounds"},
        "aggregate": BY_SAMPLES,
    },
    "tifl": {
        "select": {"policy": "tifl"},
        "pace": {"policy": "rounds"},
        "aggregate": BY_SAMPLES,
    },
    "fedcs": {
        "select": {"policy": "fedcs"},
        "pace": {"policy": "rounds"},
        "aggregate": BY_SAMPLES,
    },
    "autofl": {
        "select": {"policy": "autofl"},
        "pace": {"policy": "rounds"},
        "aggregate": BY_SAMPLES,
    },
    "fedar": {
        "select": {"policy": "fedar"},
        "pace": {"policy": "timed"},
        "aggregate": BASE,
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
        "aggregate": {"policy": "adam", "inner": {"policy": "mean"}},
    },
    "ca2fl": {"pace": {"policy": "buffered"}, "aggregate": {"policy": "ca2fl"}},
    "fadas": {
        "pace": {"policy": "buffered"},
        "aggregate": {"policy": "amsgrad", "inner": {"policy": "mean", "staleness_penalty": 0.0}},
    },
    "port": {"pace": {"policy": "port"}, "aggregate": {"policy": "port"}},
    "fedcompass": {
        "select": {"policy": "fedcompass"},
        "pace": {"policy": "fedcompass"},
        "aggregate": BASE,
    },
    "pisces": {
        "select": {"policy": "guided"},
        "pace": {"policy": "remaining"},
        "aggregate": {
            "policy": "average",
            "inner": {"policy": "usual", "inner": {"policy": "measured"}},
        },
        "judge": {"policy": "learning"},
    },
    "pisces-paper": {
        "select": {"policy": "guided"},
        "pace": {"policy": "adaptive"},
        "aggregate": BASE,
        "judge": {"policy": "clusters"},
    },
    "pisces-artifact": {
        "select": {"policy": "guided", "loss_term": "root"},
        "pace": {"policy": "adaptive"},
        "aggregate": {**BY_SAMPLES, "reference": "current"},
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
            f"select: policy: this key is needed: one of {', '.join(SELECTORS)}",
        ),
        (
            {"select": {"policy": "gided"}},
            f"select.policy: must be one of {', '.join(SELECTORS)}, not 'gided'; did you mean "
            "'guided'?",
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
            "select: exploration: must be less than or equal to 1, not 2.0",
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
    assert config.replaced == {
        "select": {"policy": "guided", "exploration": 0.5},
        "aggregate": {"policy": "adam", "inner": {"policy": "krum"}},
    }
    assert parse('[select]\npolicy = "guided"', ["select=none"]).replaced == {}


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


@pytest.mark.parametrize("name", [*PROTOCOLS, *(name for _, name in EVERY)])
def test_every_name_stands_in_the_docs(name: str) -> None:
    page = Path(__file__).parents[1] / "docs/protocols.md"
    assert f"`{name}`" in page.read_text()


TWICE = [(table, name) for table, name in EVERY if name in PROTOCOLS]


@pytest.mark.parametrize(("table", "name"), TWICE)
def test_a_setting_is_the_same_in_a_protocol_and_its_part(table: str, name: str) -> None:
    part = schema_of(PARTS[table][name], name).model_fields
    whole = schema_of(PROTOCOLS[name], name).model_fields
    for key in part.keys() & whole.keys():
        one, other = part[key], whole[key]
        assert (one.annotation, one.metadata) == (other.annotation, other.metadata), key
        assert (one.description, one.default) == (other.description, other.default), key


@pytest.mark.parametrize(
    "told",
    [
        {"policy": "fedcs", "deadline_s": 0.0},
        {"policy": "fedcs", "asked_share": 0.0},
        {"policy": "guided", "staleness_penalty": math.inf},
        {"policy": "fedar", "timeout_s": 0.0},
        {"policy": "oort", "max_picks": -3},
    ],
    ids=lambda told: ".".join(map(str, told.values())),
)
def test_what_a_protocol_would_refuse_a_part_refuses(told: Table) -> None:
    *_, (key, value) = told.items()
    assert re.match(
        rf"select: {key}: must be (greater|less) than .*, not {value}", refusal(select=told)
    )


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
    table = {answer: table for table, answer in ANSWERS.items()}[answer]
    kinds = {type(made(table, told, C)) for told in tables.values()}
    assert implementations(room, verb) <= kinds


# --- studies --------------------------------------------------------------------------------------


def test_records_made_before_there_were_such_tables_are_found() -> None:
    plain = parse("", ["protocol=fedbuff", "seed=3", "clients.count=40"])
    assert digest(build.resolved(plain)) == "36b69e0f82380d93"  # as it was then
    others = {
        digest(build.resolved(plain.model_copy(update={"aggregate": table})))
        for table in ({"policy": "adam"}, {"policy": "adam", "rate": 0.1}, {"policy": "yogi"})
    }
    assert len(others - {"36b69e0f82380d93"}) == 3


MIXTURES: list[dict[str, Table]] = [
    {},
    {"select": {"policy": "fedar"}, "pace": {"policy": "timed"}},
    {"pace": {"policy": "papaya"}, "aggregate": {"policy": "clip", "norm": 2.0}},
    {
        "aggregate": {"policy": "average", "inner": {"policy": "mean"}},
        "judge": {"policy": "clusters"},
    },
]


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("tables", MIXTURES, ids=lambda tables: "+".join(tables) or "plain")
def test_a_config_read_back_is_the_same_run(name: str, tables: dict[str, Table]) -> None:
    config = build.resolved(config_of(name, **tables))
    assert digest(build.resolved(parse(to_toml(config)))) == digest(config)


def test_mixtures_count_with_every_revision() -> None:
    # What is in them may be of a protocol that has come to do other things.
    mixture = config_of("fedbuff", select={"policy": "guided"})
    assert build.revision_of(mixture) == sum(REVISIONS.values()) > 0
    assert build.revision_of(config_of("fedbuff")) == 0

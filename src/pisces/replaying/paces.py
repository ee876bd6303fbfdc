"""The pace of a run as its config tells it, and another as `pace.KEY=VALUE` changes it.

A pace is either a protocol's own, whose settings stand among the protocol's, or that of a table
`[pace]`. Both are changed by the same words: `pace.bound=10`; `pace.policy=buffered` is another
altogether, and `pace.policy=fedbuff` that of another protocol.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

from pisces import build
from pisces import config as cfg
from pisces.errors import ConfigError
from pisces.explain import known
from pisces.mix import Part, whose
from pisces.names import PACERS, PROTOCOLS
from pisces.policy import Pacer, Policies
from pisces.record.reader import Run
from pisces.record.writer import CONFIG
from pisces.replaying.loop import Rules
from pisces.sense import check_deadline, check_sense
from pisces.settings import checked, defaults_of
from pisces.stop import Stop

MOST = 20  # paces at once
ONLY = (
    "a replay can only ask the pace otherwise: --set pace.KEY=VALUE, such as pace.bound=10; "
    "for all else make the run again"
)
# Settings of protocols that are their pace's, but have another name among the paces' own.
_OTHERWISE_CALLED = {"pace", "cache_size"}
_SHORT = {"bound": "staleness_bound", "mode": "pace"}


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Who made a run, as far as its folder says."""

    protocol: str
    concurrency: int
    settings: Mapping[str, Any]  # of the protocol
    policies: Policies
    table: Mapping[str, Any] | None = None  # [pace], if it replaces the protocol's own
    deadline_s: float | None = None
    rules: Rules = field(default_factory=Rules)


def source_of(run: Run) -> Source:
    """What a run's config says of its pace, or why it does not."""
    config = cfg.check(_told(run), str(run.path / CONFIG))
    stop = Stop(versions=config.stop.versions, updates=config.stop.updates)
    return Source(
        protocol=config.protocol,
        concurrency=config.clients.concurrency,
        settings=config.protocols.get(config.protocol, {}),
        policies=build.policies_of(config),
        table=config.pace,
        deadline_s=config.clients.deadline_s,
        rules=replace(rules_of(run), stop=stop),
    )


def rules_of(run: Run, tick_s: float | None = None) -> Rules:
    """What its folder says beside its pace; in Flower nobody can be called off."""
    tick_s = run.config.get("tick_s", 0.0) if tick_s is None else tick_s
    if not isinstance(tick_s, int | float) or not 0 <= tick_s < math.inf:
        raise ConfigError(
            f"tick_s: must be 0, or so many seconds as the run's loop decided after, not {tick_s!r}"
        )
    can_release = not run.is_of_flower
    return Rules(tick_s=tick_s, can_release=can_release, real_time=run.in_real_time)


def _told(run: Run) -> Mapping[str, Any]:
    """The config, or of what a program made the part of it that decides when to aggregate.

    Its folder says that where the protocol was given by name, and not by an older Pisces.
    """
    config = run.config
    if config and not run.is_of_a_program:
        return config
    protocol = str(config.get("protocol"))
    settings = run.setting("protocols", protocol)
    if settings is None:
        made = f"was made in {config['made_in']}" if config else f"has no {CONFIG}"
        raise ConfigError(
            f"{run.path} {made}, and does not say which pace it had: give the pacers, in Python: "
            "pisces.replaying.replay(run, pacer=another, own=the run's)"
        )
    concurrency, deadline_s = (run.setting("clients", key) for key in ("concurrency", "deadline_s"))
    return {
        "protocol": protocol,
        "protocols": {protocol: settings},
        "clients": {"count": concurrency, "concurrency": concurrency, "deadline_s": deadline_s},
        "stop": {limit: run.setting("stop", limit) for limit in ("versions", "updates")},
    }


# --- another pace ---------------------------------------------------------------------------------


def variants(changes: Sequence[str]) -> list[tuple[str, ...]]:
    """One set of changes for each combination of values: `pace.bound=2,5` is two."""
    choices = [list(_values(change)) for change in changes]
    combined = list(product(*choices))
    if len(combined) > MOST:
        raise ConfigError(f"--set: at most {MOST} paces at once, not {len(combined)}: ask for less")
    return combined


def _values(change: str) -> Iterable[str]:
    key, equals, raw = change.partition("=")
    if not equals or any(mark in raw for mark in "[{\"'"):
        return [change]
    return [f"{key.strip()}={value.strip()}" for value in raw.split(",") if value.strip()] or [
        change
    ]


def pacer_of(source: Source, changes: Sequence[str]) -> Pacer:
    """The run's pace with these changes."""
    asked = _asked(changes)
    if not asked:
        return source.policies.pacer
    policy = asked.get("policy")
    if policy is None and source.table is None:
        return _of_protocol(source.protocol, source.concurrency, source.settings, asked)
    if policy is not None and policy not in PACERS and policy in PROTOCOLS:
        told = {key: value for key, value in asked.items() if key != "policy"}
        return _of_protocol(str(policy), source.concurrency, {}, told)
    table = {**source.table, **asked} if source.table and policy is None else asked
    return _of_table(table, source.concurrency)


def problems(source: Source, pacer: Pacer) -> list[str]:
    """Why a run with this pace would be refused, though it can be replayed."""
    policies, found = replace(source.policies, pacer=pacer), []
    for check in (check_sense, partial(check_deadline, deadline_s=source.deadline_s)):
        try:
            check(policies)
        except ConfigError as error:
            found.append(str(error))
    return found


def _asked(changes: Sequence[str]) -> dict[str, Any]:
    """The settings of the pace by name."""
    for change in changes:
        key, equals, _ = change.partition("=")
        table, _, name = key.strip().partition(".")
        if table != "pace" or not name or not equals:
            raise ConfigError(f"--set {change[:200]}: {ONLY}")
    asked = cfg.parse("", changes).pace or {}
    if asked.get("inner") is not None:
        raise ConfigError("pace.inner: a pace goes around no other: leave it out")
    return asked


def _of_protocol(
    protocol: str, concurrency: int, settings: Mapping[str, Any], asked: Mapping[str, Any]
) -> Pacer:
    own = _settings_of_pace(protocol)
    names = {short: whole for short, whole in _SHORT.items() if whole in own}
    names |= {name: name for name in own if name not in names.values()}
    told = dict(settings)
    for key, value in asked.items():
        if key not in names and key not in own:
            raise ConfigError(_no_setting(key, protocol, list(names)))
        told[names.get(key, key)] = value
    settled = checked(PROTOCOLS[protocol], told, "pace").model_dump()
    with whose("pace"):
        return PROTOCOLS[protocol](concurrency, **settled).pacer


def _no_setting(key: str, protocol: str, names: Sequence[str]) -> str:
    if not names:
        return (
            f"pace.{key}: the pace of {protocol} has no settings: choose another, such as "
            "pace.policy=buffered"
        )
    close = difflib.get_close_matches(key, names, n=1)
    hint = f"; did you mean pace.{close[0]}?" if close else ""
    return (
        f"pace.{key}: the pace of {protocol} has no such setting, only {', '.join(names)}; "
        f"pace.policy=... is another pace{hint}"
    )


def _settings_of_pace(protocol: str) -> list[str]:
    """Those of its settings that a pace goes by."""
    of_paces = {name for maker in PACERS.values() for name in defaults_of(maker)}
    return [
        name
        for name in defaults_of(PROTOCOLS[protocol])
        if name in of_paces or name in _OTHERWISE_CALLED
    ]


def _of_table(table: Mapping[str, Any], concurrency: int) -> Pacer:
    policy = table.get("policy")
    names = [*PACERS, *(name for name in PROTOCOLS if name not in PACERS)]
    maker = PACERS[known(str(policy), names, "pace.policy")]
    told = dict(table)
    if "bound" in told and "staleness_bound" in defaults_of(maker):
        told["staleness_bound"] = told.pop("bound")
    pacer: Pacer = Part.read("pace", told, PACERS).made(concurrency, None)
    return pacer

"""The only place that wires objects: settings in, a coordinator ready to run out.

    Config --simulation()--> Simulation --.federation()--> Federation --wire()--> Coordinator

A `Simulation` holds the parts as objects, so the Python API can bring its own; a `Federation` those
of them that a server needs, wherever its clients are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pisces import config as cfg
from pisces import tables, tracking, world
from pisces.clients.checks import Limits
from pisces.clients.manager import ClientManager
from pisces.coordinator import Coordinator
from pisces.errors import ConfigError
from pisces.evaluate import Background, Evaluator, Inline, Nothing, Schedule
from pisces.execute.base import Executor
from pisces.execute.failures import Failures
from pisces.execute.latency import OwnTime
from pisces.execute.roster import Roster
from pisces.execute.tape import Tape
from pisces.execute.virtual import VirtualExecutor
from pisces.explain import known
from pisces.federation import Federation
from pisces.journaling import journaled
from pisces.machine import device_of
from pisces.mix import Part, whose
from pisces.models.flat import layout_of
from pisces.names import PARTS, PROTOCOLS, REVISIONS
from pisces.parts import Simulation
from pisces.policy import ANSWERS, Policies, Trait
from pisces.record.lines import Recorder
from pisces.record.writer import CLIENTS
from pisces.sense import check_deadline, check_sense
from pisces.settings import checked, defaults_of
from pisces.stop import Stop
from pisces.train.base import Recipe
from pisces.types import Layout, Plan

if TYPE_CHECKING:
    from pisces.execute.flower.api import Grid, MetricRecord
    from pisces.execute.flower.arrays import Arrays
    from pisces.execute.flower.executor import FlowerExecutor
    from pisces.execute.flower.letters import Letters
    from pisces.execute.flower.replies import Metrics
    from pisces.execute.flower.sizes import Sizes
    from pisces.execute.network.server.executor import NetworkExecutor
    from pisces.execute.network.server.terms import Terms


def wire(
    federation: Federation, recorder: Recorder, executor: Executor, tape: Tape | None = None
) -> Coordinator:
    """A coordinator over an executor; with a `tape` it keeps a journal."""
    f = federation
    evaluator = _evaluator(f, executor)
    if tape is not None:
        executor, evaluator = journaled(executor, evaluator, tape, f.weights, f.limits)
    return Coordinator(
        policies=f.policies,
        executor=executor,
        manager=ClientManager(
            f.weights.layout,
            judge=f.policies.judge,
            limits=f.limits,
            credits=f.credits,
            staleness_window=f.staleness_window,
        ),
        evaluator=evaluator,
        recorder=recorder,
        weights=f.weights,
        plans=f.plans,
        stop=f.stop,
        schedule=Schedule() if f.yardstick is None else f.schedule,
        seed=f.seed,
        tick_s=f.tick_s,
        deadline_s=f.deadline_s,
        decisions=f.decisions,
    )


def simulated(simulation: Simulation, recorder: Recorder) -> Coordinator:
    """A coordinator of a simulation, in virtual time."""
    return wire(simulation.federation(), recorder, virtual(simulation))


def virtual(s: Simulation) -> VirtualExecutor:
    """The executor of a simulation: its clients, in virtual time."""
    return VirtualExecutor(
        s.trainer(device_of(s.device)),
        s.data.num_examples,
        s.latency,
        layout=layout_of(s.model),
        availability=s.availability,
        failures=s.failures,
    )


def network(
    listen: str,
    layout: Layout,
    folder: Path | None,
    *,
    certs: str | Path | None,
    terms: Terms,
    limits: Limits,
    settings: str = "",
) -> NetworkExecutor:
    """An executor over the network, for a run in that folder; without `certs` in the clear."""
    from pisces.execute.network.server.door import Guarded, Open  # these need packages of their own
    from pisces.execute.network.server.executor import NetworkExecutor

    path = None if folder is None else folder / CLIENTS
    return NetworkExecutor(
        listen,
        layout,
        Open() if certs is None else Guarded.of(certs),
        roster=Roster(path, max_clients=limits.max_clients),
        terms=terms,
        limits=limits,
        settings=settings,
    )


def flower(
    grid: Grid,
    arrays: Arrays,
    folder: Path | None,
    *,
    limits: Limits,
    at_least: int,
    letters: Letters,
    metrics: Metrics,
    sizes: Sizes,
    heard: Callable[[int, MetricRecord], None],
) -> FlowerExecutor:
    """An executor over the nodes of a Flower grid, for a run in that folder."""
    from pisces.execute.flower.executor import FlowerExecutor  # it needs a package of its own

    path = None if folder is None else folder / CLIENTS
    return FlowerExecutor(
        grid,
        arrays,
        roster=Roster(path, max_clients=limits.max_clients),
        at_least=at_least,
        letters=letters,
        metrics=metrics,
        sizes=sizes,
        heard=heard,
    )


def _evaluator(federation: Federation, executor: Executor) -> Evaluator:
    if federation.yardstick is None:
        return Nothing()
    measure = federation.yardstick.make()
    return Background(measure) if executor.capabilities.real_time else Inline(measure)


# --- from a config --------------------------------------------------------------------------------


def simulation(config: cfg.Config, *, is_timed: bool = True) -> Simulation:
    """Everything a config describes, as objects; where it is not timed, clients have their own."""
    policies = policies_of(config)
    base_s = world.base_latency(config)
    data = world.federated_data(config, base_s)
    model = world.initial_model(config, data)
    train, seed = config.train, config.seed
    return Simulation(
        policies=policies,
        model=model,
        data=data,
        latency=world.latency_of(config, base_s, data, model) if is_timed else OwnTime(),
        stop=Stop(**config.stop.model_dump()),
        seed=seed,
        plans=plans_of(train),
        recipe=Recipe(train.optimizer, train.momentum, train.weight_decay, train.clip_norm),
        availability=world.availability_of(config),
        failures=Failures(**config.failures.model_dump(), seed=seed),
        lies=world.lies_of(config),
        limits=Limits(**config.limits.model_dump()),
        schedule=Schedule(**config.evaluate.model_dump()),
        tick_s=config.tick_s,
        deadline_s=config.clients.deadline_s,
        credits=config.clients.credits,
        decisions=config.record.decisions,
        staleness_window=config.clients.staleness_window,
        device=train.device,
        threads=train.threads,
        backend=train.backend,
        workers=train.workers,
        precision=train.precision,
        ray=train.ray,
    )


def policies_of(config: cfg.Config) -> Policies:
    """The config's protocol with its settings, but for what its tables replace."""
    concurrency = config.clients.concurrency
    policies = named_policies(config.protocol, concurrency, _settings(config))
    for table, part in _parts(config).items():
        own = getattr(policies, ANSWERS[table])
        policies = replace(policies, **{ANSWERS[table]: part.made(concurrency, own)})
    check_sense(policies, partial(_who_gives, concurrency))
    with whose("pace" if config.pace is not None else f"protocols.{config.protocol}"):
        check_deadline(policies, config.clients.deadline_s)
    return policies


def _who_gives(concurrency: int, trait: Trait) -> list[str]:
    """The selectors and paces that do so by themselves."""
    return [
        f"{table}.policy {name!r}"
        for table in ("select", "pace")
        for name in PARTS[table]
        if trait in Part.read(table, {"policy": name}, PARTS[table]).made(concurrency, None).gives
    ]


def _parts(config: cfg.Config) -> dict[str, Part]:
    """What replaces parts of the protocol, table by table."""
    return {name: Part.read(name, given, PARTS[name]) for name, given in config.replaced.items()}


def named_policies(
    protocol: str | Policies, concurrency: int, settings: Mapping[str, Any]
) -> Policies:
    """The protocol of that name with these settings; policies of one's own stay as they are."""
    if isinstance(protocol, Policies):
        if settings:
            raise ConfigError(
                f"settings are for protocols by name, not for policies of one's own: {settings}; "
                "give them to the policies themselves"
            )
        return protocol
    told = settings_of(known(protocol, PROTOCOLS, "protocol"), settings)
    with whose(f"protocols.{protocol}"):
        return PROTOCOLS[protocol](concurrency, **told.model_dump())


def tables_of(
    protocol: str | Policies, concurrency: int, settings: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The same as a config has it; of policies of one's own it only knows how many run at once."""
    told: dict[str, dict[str, Any]] = {"clients": {"concurrency": concurrency}}
    if isinstance(protocol, str):
        told["protocols"] = {protocol: settings_of(protocol, settings).model_dump()}
    return told


def protocol(name: str, concurrency: int, **settings: Any) -> Policies:
    """A protocol by its name, also to go on from: `replace(protocol("pisces", 20), pacer=mine)`."""
    return named_policies(name, concurrency, settings)


def settings_of(name: str, given: Mapping[str, Any]) -> tables.Section:
    """A protocol's settings, checked; their types and defaults come from its signature."""
    return checked(PROTOCOLS[name], given, f"protocols.{name}", PROTOCOLS)


def resolved(config: cfg.Config) -> cfg.Config:
    """The config with the settings of its protocol and tables spelled out."""
    tracking.check(config.record.trackers)
    tables = {table: part.spelled_out() for table, part in _parts(config).items()}
    return config.model_copy(update={"protocols": {config.protocol: _settings(config)}, **tables})


def _settings(config: cfg.Config) -> dict[str, Any]:
    """Those of its protocol; the others' are only checked.

    A variant takes the settings of what it is a variant of, where it has none of its own, but for
    those of the part it does without.
    """
    name = known(config.protocol, PROTOCOLS, "protocol")
    for other, given in config.protocols.items():
        settings_of(known(other, PROTOCOLS, "protocols"), given)
    original = getattr(PROTOCOLS[name], "variant_of", name)
    shared = config.protocols.get(original, {})
    own = defaults_of(PROTOCOLS[name])
    given = {k: v for k, v in shared.items() if k in own} | config.protocols.get(name, {})
    return settings_of(name, given).model_dump(exclude_none=True)


def revision_of(config: cfg.Config) -> int:
    """How often its protocol has come to do other things with the same settings."""
    name = known(config.protocol, PROTOCOLS, "protocol")
    if config.replaced:
        return sum(REVISIONS.values())
    return REVISIONS.get(getattr(PROTOCOLS[name], "variant_of", name), 0)


def plans_of(train: tables.Train) -> Callable[[int], Plan]:
    """The local work of a task started from a version: the learning rate decays with versions."""

    def plan(version: int) -> Plan:
        rate = train.learning_rate * train.decay ** (version // train.decay_every)
        return Plan(train.epochs, train.batch_size, rate, train.proximal)

    return plan

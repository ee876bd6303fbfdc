"""The runs of a comparison: one per protocol and seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pisces.config import Config
from pisces.errors import ConfigError, RunError
from pisces.record.reader import called
from pisces.record.writer import EVENTS

if TYPE_CHECKING:
    from pisces.parts import Simulation


@dataclass(frozen=True, slots=True)
class Job:
    """A run to be made; `again`, in the place of what is there."""

    config: Config
    out: Path
    again: bool = False

    @property
    def name(self) -> str:
        """What its protocol is called."""
        return called(self.config.model_dump())


def jobs_of(base: Config, protocols: Sequence[str], seeds: Sequence[int], out: Path) -> list[Job]:
    """One job per seed and protocol; what cannot run is refused before anything starts."""
    from pisces import build

    if not protocols:
        raise ConfigError("--protocols needs at least one protocol, such as pisces,fedbuff")
    if base.record.share < 1:
        raise ConfigError(
            f"record.share: must be 1 in a comparison, which counts whole logs, not "
            f"{base.record.share}"
        )
    jobs = []
    for seed in seeds:
        for protocol in protocols:
            one = build.resolved(base.model_copy(update={"protocol": protocol, "seed": seed}))
            jobs.append(Job(one, out / f"{called(one.model_dump())}-seed{seed}"))
    for name, error in misfits(job.config for job in jobs[: len(protocols)]):
        is_told = len(protocols) == 1 or f"protocols.{name}" in str(error)
        raise error if is_told else ConfigError(f"{name}: {error}") from error
    return jobs


def misfits(configs: Iterable[Config]) -> Iterator[tuple[str, ConfigError]]:
    """Protocols that these settings, which differ in nothing else, do not suit, and why."""
    from pisces import build

    world: Simulation | None = None  # data and model are the same for all: they take time to make
    for one in configs:
        try:
            policies = build.policies_of(one)
            world = replace(world, policies=policies) if world else build.simulation(one)
        except ConfigError as error:
            yield one.protocol, error


def has_begun(run: Path) -> bool:
    """Is there anything in its record?"""
    events = run / EVENTS
    return events.exists() and events.stat().st_size > 0


def make_folder(folder: Path) -> None:
    """Make a folder for runs, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {folder}: {error.strerror}; choose another --out") from error

"""Where runs are made: in processes of this machine, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Protocol

from pisces.config import Config
from pisces.errors import ConfigError
from pisces.many.jobs import Job
from pisces.many.processes import Processes


class Pool(Protocol):
    """Where runs are made.

    `one_spoils_all`: after a run that failed or was killed, others are made in a pool of their own.
    """

    one_spoils_all: bool

    def submit_run(self, job: Job) -> Future[None]:
        """Make a run."""
        ...

    def interrupt(self) -> None:
        """Have all runs under way end early; asked again and again until they have."""
        ...

    def shutdown(self) -> None:
        """Let go of everybody; no run is under way."""
        ...


@dataclass(frozen=True, slots=True)
class Where:
    """Where runs are made, and how many at a time."""

    num_workers: int
    pool: Callable[[int], Pool] = Processes


@contextmanager
def made_where(
    configs: Sequence[Config], num: int | None, address: str | None = None
) -> Iterator[Where]:
    """Where runs of these configs are made, at most `num` at a time: here, or on a cluster."""
    if address is None:
        yield Where(min(num or at_once(configs[0]), len(configs)))
        return
    if any(config.train.backend == "ray" for config in configs):
        raise ConfigError(
            "--ray: spreads whole runs over a cluster, but with train.backend = 'ray' each of them "
            "spreads its own training: leave out one of the two"
        )
    from pisces.cluster.ray import RayCluster  # it needs a package of its own
    from pisces.many.spread import Spread, share_of

    share = share_of(configs[0])
    with closing(RayCluster(address)) as cluster:
        room = cluster.room(share)
        if not room:
            raise ConfigError(f"--ray: no node of the cluster has {share.in_words()} for a run")
        yield Where(min(num or room, len(configs)), lambda _num: Spread(cluster, share))


def at_once(config: Config) -> int:
    """How many runs to make at a time: one per core; on a GPU two, for one decides meanwhile.

    One, where that has a cluster to itself.
    """
    from pisces.machine import device_of, num_cores

    if config.train.backend == "ray":
        return 1
    return 2 if device_of(config.train.device).type == "cuda" else num_cores()

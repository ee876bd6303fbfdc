"""The executor over a real network: clients connect to it by gRPC."""

from __future__ import annotations

from functools import partial

from pisces.clients.checks import Limits, update_bytes
from pisces.errors import ConfigError
from pisces.execute.base import Capabilities
from pisces.execute.network.coding import to_client
from pisces.execute.network.messages import Over, Welcome
from pisces.execute.network.packing import MOST_MESSAGE_BYTES
from pisces.execute.network.server.desk import Desk
from pisces.execute.network.server.door import Door
from pisces.execute.network.server.service import Service
from pisces.execute.network.server.stats import Stats
from pisces.execute.network.server.terms import Terms
from pisces.execute.realtime import RealTime
from pisces.execute.roster import Roster
from pisces.types import Layout

ABOUT_TASKS_BYTES = 32_768  # of a Welcome: what a client held and may forget


class NetworkExecutor(RealTime):
    """Runs tasks on clients that connect to it."""

    _service: Service
    _desk: Desk

    def __init__(
        self,
        listen: str,
        layout: Layout,
        door: Door,
        *,
        roster: Roster | None = None,
        terms: Terms | None = None,
        limits: Limits | None = None,
        settings: str = "",
    ) -> None:
        self._limits, self._terms, self._settings = limits or Limits(), terms or Terms(), settings
        update_bytes(layout, self._limits)  # refused now if an update may not be that large
        _check_welcome(layout, settings)
        roster = roster or Roster(max_clients=self._limits.max_clients)
        super().__init__(layout, roster, self._terms.at_least)
        self._service = Service(self._make_desk, door, listen)
        self._desk = self._service.desk
        host = listen.rpartition(":")[0]
        self.address = f"{host}:{self._service.port}"

    def _make_desk(self, service: Service) -> Desk:
        return Desk(
            roster=self._roster,
            layout=self._layout,
            terms=self._terms,
            tell=self._inbox.put,
            later=service.later,
            limits=self._limits,
            settings=self._settings,
        )

    @property
    def stats(self) -> Stats:
        """What is counted by now, tasks that clients have included; from any thread."""
        return self._service.stats.copy(len(self._running))

    def refuse(self, reason: str) -> None:
        """Count somebody whom the TLS handshake kept out; from any thread."""
        self._service.post(partial(self._service.refuse, reason))

    @property
    def capabilities(self) -> Capabilities:
        """Clients can be told to stop, and most can hand in what there is."""
        return Capabilities(real_time=True, cancels=True, pulls=True, takes_over=True)

    def _farewell(self, for_good: bool) -> None:
        why = "the run is over" if for_good else "the server goes away, and may come back"
        if self._is_open:
            self._service.post(partial(self._desk.end, Over(why, again=not for_good)))


def _check_welcome(layout: Layout, settings: str) -> None:
    """Refuse what no client could be told."""
    size = len(to_client(Welcome(0, "", layout, settings))) + ABOUT_TASKS_BYTES
    if size > MOST_MESSAGE_BYTES:
        raise ConfigError(
            f"what clients are told of the model takes {size} bytes, more than the "
            f"{MOST_MESSAGE_BYTES} of a message: tell less, or use fewer and larger tensors"
        )

"""A Flower federation in this process: Flower's own grid and state, nodes that are threads.

Tests may look behind Flower's public names; the package does not.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import (
    HEARTBEAT_INTERVAL_INF,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,
    ErrorCode,
)
from flwr.server.superlink.linkstate import LinkState, LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

PULL_S = 0.005  # how often a node looks for messages; Flower's own sleep for three seconds


class Node:
    """A SuperNode: a thread that runs its ClientApp on one message after the other."""

    def __init__(self, state: LinkState, app: ClientApp, partition: int, key: bytes) -> None:
        self._state, self._app, self._key = state, app, key
        self.id = state.get_node_id_by_public_key(key) or state.create_node(
            NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, heartbeat_interval=HEARTBEAT_INTERVAL_INF
        )
        self._context = Context(
            0, self.id, {"partition-id": partition, "num-partitions": 1}, RecordDict(), {}
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"node {partition}", daemon=True)

    def start(self) -> None:
        """Come, or come back."""
        self._state.acknowledge_node_heartbeat(self.id, HEARTBEAT_INTERVAL_INF)
        self._thread.start()

    def leave(self) -> None:
        """Go, and say so: what SIGTERM makes a SuperNode do."""
        self._ends.set()
        self._state.deactivate_node(self.id)

    def join(self) -> None:
        """Wait until it is done with what it is at."""
        self._ends.set()
        self._thread.join(10)

    def _live(self) -> None:
        while not self._ends.wait(PULL_S):
            for message in self._state.get_message_ins(self.id, limit=1):
                self.reply(self._answer(message))

    def reply(self, reply: Message) -> bool:
        """Hand a reply in; is it taken?"""
        reply.metadata.__dict__["_message_id"] = str(uuid4())
        return self._state.store_message_res(reply) is not None

    def _answer(self, message: Message) -> Message:
        try:
            return self._app(message, self._context)
        except Exception as error:
            told = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(error))
            return Message(told, reply_to=message)


class Bed:
    """The federation: its grid, and nodes to be added."""

    def __init__(self) -> None:
        factory = LinkStateFactory(
            FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()
        )
        self.state = factory.state()
        self._factory = factory
        self.nodes: list[Node] = []
        self.grid = self.new_run()

    def new_run(self) -> InMemoryGrid:
        """A grid of a run of its own; what the one before knew of messages is lost to it."""
        run_id = self.state.create_run(
            *(None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
        )
        [run] = self.state.get_run_info(run_ids=[run_id])
        TaskIdentity.run_id, TaskIdentity.node_id = run_id, SUPERLINK_NODE_ID
        TaskIdentity.task_id = run.primary_task_id or 0
        grid = InMemoryGrid(self._factory)
        grid.set_run(run)
        return grid

    def add(self, app: ClientApp, *, key: bytes | None = None, starts: bool = True) -> Node:
        """One more node; with a key that was there before it is the same one."""
        node = Node(self.state, app, len(self.nodes), key or secrets.token_bytes(32))
        self.nodes.append(node)
        if starts:
            node.start()
        return node

    def close(self) -> None:
        """Let all nodes end."""
        for node in self.nodes:
            node.join()


@contextmanager
def flowerbed(*apps: ClientApp) -> Iterator[Bed]:
    """A federation with a node for each of these apps."""
    bed = Bed()
    try:
        for app in apps:
            bed.add(app)
        yield bed
    finally:
        bed.close()

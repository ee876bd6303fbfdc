"""A version evaluated by nodes: asked once, when nobody trains any more."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable

import numpy as np

from pisces.execute.flower.api import ArrayRecord, Grid, Message, MetricRecord
from pisces.execute.flower.letters import Letters

log = logging.getLogger("pisces")

ASK_S = 0.5  # between two questions for replies


def evaluated(
    grid: Grid,
    arrays: ArrayRecord,
    version: int,
    *,
    share: float,
    letters: Letters,
    weighted_by: str,
    timeout_s: float,
    rng: np.random.Generator,
) -> list[MetricRecord]:
    """What that share of the nodes, at least one, say of it in time.

    The run is over and its model safe: whatever goes wrong here is said, and no more.
    """
    told: list[MetricRecord] = []
    try:
        nodes = sorted(grid.get_node_ids())
        num = min(len(nodes), max(1, round(share * len(nodes))))
        log.info("the last version is evaluated by %d nodes", num)
        chosen = [nodes[i] for i in rng.permutation(len(nodes))[:num]]
        asked = [letters.to_evaluate(version, node, arrays, timeout_s) for node in chosen]
        for reply in _replies(grid, asked, timeout_s):
            told += _told(reply, weighted_by)
        log.info("%d of them told how good it is", len(told))
    except Exception:
        log.exception("the last version could not be evaluated by nodes")
    return told


def _replies(grid: Grid, asked: Iterable[Message], timeout_s: float) -> Iterable[Message]:
    """One by one, because a refusal is no message's; nobody waits for those that were refused."""
    awaited = {message for letter in asked for message in grid.push_messages([letter]) if message}
    until = time.monotonic() + timeout_s
    while awaited and time.monotonic() < until:
        for reply in grid.pull_messages(list(awaited)):
            if reply.metadata.reply_to_message_id in awaited:
                awaited.remove(reply.metadata.reply_to_message_id)
                yield reply
        if awaited:
            time.sleep(ASK_S)


def _told(reply: Message, weighted_by: str) -> list[MetricRecord]:
    if reply.has_error():
        log.warning("a node could not evaluate: %.500r", reply.error.reason)
        return []
    records = reply.content.metric_records.values()
    return [record for record in records if _is_size(record.get(weighted_by))][:1]


def _is_size(value: object) -> bool:
    """Can metrics be weighted by it?"""
    return isinstance(value, int | float) and 0 < value < math.inf

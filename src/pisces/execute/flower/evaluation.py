"""A version evaluated by nodes: asked once, when nobody trains any more."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np

from pisces.execute.flower.api import (
    ArrayRecord,
    ConfigRecord,
    Grid,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from pisces.execute.flower.courier import Letters

log = logging.getLogger("pisces")


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
    """What that share of the nodes, at least one, say of it in time."""
    nodes = sorted(grid.get_node_ids())
    num = min(len(nodes), max(1, round(share * len(nodes))))
    config = ConfigRecord({**letters.settings, "server-round": version})
    content = RecordDict({letters.arrays: arrays, letters.config: config})
    asked = [
        Message(content, nodes[i], MessageType.EVALUATE, ttl=timeout_s, group_id=str(version))
        for i in rng.permutation(len(nodes))[:num]
    ]
    log.info("the last version is evaluated by %d nodes", num)
    replies = grid.send_and_receive(asked, timeout=timeout_s) if asked else []
    return _told(replies, weighted_by)


def _told(replies: Iterable[Message], weighted_by: str) -> list[MetricRecord]:
    told = []
    for reply in replies:
        if reply.has_error():
            log.warning("a node could not evaluate: %s", reply.error.reason)
            continue
        records = reply.content.metric_records.values()
        told += [record for record in records if weighted_by in record][:1]
    return told

"""How many connections fit into the files that this process may have open."""

from __future__ import annotations

import logging
from contextlib import suppress

log = logging.getLogger("pisces")

RESERVE = 256  # for the log, checkpoints, the journal, evaluations: a crowd must not stop those


def most_lines(wanted: int) -> int:
    """As many as are wanted, or as fit; the limit is raised for them as far as that is allowed."""
    try:
        import resource
    except ImportError:  # not every system counts
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft = limit
    if soft >= needed:
        return wanted
    log.warning(
        "this process may open %d files, which is enough for %d connections: raise the limit "
        "(ulimit -n), or lower network.max_connections",
        soft,
        max(1, soft - RESERVE),
    )
    return max(1, soft - RESERVE)

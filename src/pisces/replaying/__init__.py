"""A run's log with another pace: what it would have decided, and what nobody can know of that.

import pisces.replaying

replayed = pisces.replaying.replay(pisces.load("runs/first"), ["pace.bound=10"])
replayed.replayed.staleness_max, replayed.differs_at, replayed.caveats
"""

from pisces.replaying.values import Aggregation, Check, Difference, Numbers, Replayed, Unknown
from pisces.replaying.walk import replay, replay_all

__all__ = [
    "Aggregation",
    "Check",
    "Difference",
    "Numbers",
    "Replayed",
    "Unknown",
    "replay",
    "replay_all",
]

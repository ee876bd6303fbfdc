"""What clients told lately: one number each, their median, and how far from it they are.

One each, so that a client which reports often has no more to say than any other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence


class Recent:
    """The last number of each of the `most` clients heard from last."""

    def __init__(self, most: int, told: Iterable[tuple[int, float]] = ()) -> None:
        self._most = most
        self._numbers: dict[int, float] = {}  # whoever told something last stands last
        self._sorted: list[float] = []
        for client, number in told:
            self.put(client, number)

    def put(self, client: int, number: float) -> None:
        """This client's number, instead of the one it told before; the oldest makes room."""
        if client in self._numbers:
            self._forget(client)
        elif len(self._numbers) == self._most:
            self._forget(next(iter(self._numbers)))
        self._numbers[client] = number
        insort(self._sorted, number)

    def _forget(self, client: int) -> None:
        del self._sorted[bisect_left(self._sorted, self._numbers.pop(client))]

    @property
    def median(self) -> float:
        """Of those there are; at least one."""
        return middle(self._sorted)

    @property
    def low(self) -> float:
        """The lower quartile: the least that has a quarter of them before it."""
        return self._sorted[len(self) // 4]

    @property
    def spread(self) -> float:
        """How far from the median nine of ten are at most; of fewer, all but one."""
        most = max(1, 9 * len(self) // 10)
        return distance_of_nearest(self._sorted, self.median, most)

    def __len__(self) -> int:
        return len(self._numbers)

    def copy(self) -> Recent:
        """Another one, which knows the same."""
        other = Recent(self._most)
        other._numbers, other._sorted = self._numbers.copy(), self._sorted.copy()
        return other

    def told(self) -> list[tuple[int, float]]:
        """Clients and numbers, oldest first."""
        return list(self._numbers.items())


# --- of sorted numbers ----------------------------------------------------------------------------


def middle(pool: Sequence[float]) -> float:
    """The median of a sorted pool."""
    half, odd = divmod(len(pool), 2)
    return pool[half] if odd else (pool[half - 1] + pool[half]) / 2


def median_distance(pool: Sequence[float], centre: float) -> float:
    """The median of the distances to `centre`."""
    half, odd = divmod(len(pool), 2)
    upper = distance_of_nearest(pool, centre, half + 1)
    return upper if odd else (distance_of_nearest(pool, centre, half) + upper) / 2


def distance_of_nearest(pool: Sequence[float], centre: float, num: int) -> float:
    """How far the `num`-th nearest is: the nearest are a run, found by halving where it starts."""
    low, high = 0, len(pool) - num
    while low < high:
        start = (low + high) // 2
        if centre - pool[start] > pool[start + num] - centre:
            low = start + 1
        else:
            high = start
    return max(abs(pool[low] - centre), abs(pool[low + num - 1] - centre))

"""The contract of a tracker, and what it is told: points of a run, and whose they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pisces.errors import MissingPackageError
from pisces.extras import installed

Scalar = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Point:
    """Some values of one version at one instant, by name; all of them finite numbers.

    `number` counts the points of a run from 0. A run that was resumed has the same points by the
    same numbers, so that who heard of a point before can tell.
    """

    number: int
    version: int
    at: float  # seconds since the run began
    values: Mapping[str, float]
    is_evaluation: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """The run that points are of.

    `id` and `began_at` (seconds since 1970) stay the same when it is resumed: it is then begun
    with `is_resumed`, and all points that it had so far are told again first.
    """

    name: str
    id: str
    began_at: float
    folder: Path | None = None
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    is_resumed: bool = False

    def seen_at(self, point: Point) -> float:
        """Seconds since 1970, had the run's clock been the wall's; in real time it was."""
        return self.began_at + point.at


class Tracker(Protocol):
    """Hears of a run, in a thread of its own: it may take its time, and may fail.

    A tracker of your own needs `track` only, if it inherits from this.
    """

    name: str = ""  # for warnings; else that of its class
    needs_folder: bool = False  # it writes to the run's, and nowhere else

    def begin(self, run: Subject) -> None:
        """The run begins, or goes on."""

    def track(self, points: Sequence[Point]) -> None:
        """Take some points, the oldest first."""
        ...

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """The run came to this, and its folder is complete; None: it broke off."""


def name_of(tracker: Tracker) -> str:
    """What warnings call it; one of somebody's own may say no name, or stumble over it."""
    try:
        return str(getattr(tracker, "name", "")) or type(tracker).__name__
    except Exception:
        return type(tracker).__name__


@contextmanager
def needing(who: str, extra: str) -> Iterator[None]:
    """Around imports of a package that few have: one that fails says what to install."""
    try:
        with installed(f"trackers: {who}", extra):
            yield
    except MissingPackageError:
        raise
    except Exception as error:  # such as one that was made for other versions of what it needs
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise MissingPackageError(
            f"trackers: the package of {who} is here, but cannot be loaded ({why}): install it "
            f"anew with pip install --force-reinstall 'pisces-fl[{extra}]', or do without it"
        ) from error


MOST_TEXT = 250  # of a value, which some trackers would refuse at 500


def flat(table: Mapping[str, Any], above: str = "") -> dict[str, Scalar]:
    """A nested table by dotted names; lists in words, and what has no value left out."""
    found: dict[str, Scalar] = {}
    for key, value in table.items():
        match value:
            case None:
                pass
            case Mapping():
                found |= flat(value, f"{above}{key}.")
            case bool() | int() | float():
                found[f"{above}{key}"] = value
            case list() | tuple():
                found[f"{above}{key}"] = ", ".join(map(str, value))[:MOST_TEXT]
            case _:
                found[f"{above}{key}"] = str(value)[:MOST_TEXT]
    return found


def outcome(summary: Mapping[str, Any]) -> dict[str, Scalar]:
    """A summary by dotted names; of who is distrusted only how many."""
    distrusted = summary.get("distrusted", [])
    rest = {key: value for key, value in summary.items() if key != "distrusted"}
    return flat({**rest, "num_distrusted": len(distrusted)})

"""Is a line what a run writes? The same answer as `pisces.record.sound`, sooner where it is yes.

Nine lines of ten are of four kinds that always look alike: what has exactly their keys, with the
usual types, is sound. Whatever looks otherwise is left to `is_line`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pisces.record.lines import Line
from pisces.record.sound import MOST, is_line
from pisces.types import MOST_CLIENTS


def is_sound(line: Any) -> bool:
    """Does the line say its kind and instant, and of its kind what it must?"""
    try:
        check = USUAL[line["kind"]]
        at = line["at"]
        # What is not finite differs from itself, or so does its difference from itself.
        if type(at) is float and at - at == 0.0 and check(line):
            return True
    except (KeyError, TypeError):
        pass
    try:
        return is_line(line)
    except OverflowError:  # a whole number beyond all floats
        return False


def _is_usual_joined(line: Line) -> bool:
    client, size = line["client"], line["num_examples"]
    return (
        len(line) == 4
        and type(client) is type(size) is int
        and 0 <= client < MOST_CLIENTS
        and 0 <= size < MOST
    )


def _is_usual_started(line: Line) -> bool:
    task, client, version = line["task"], line["client"], line["version"]
    return (
        len(line) == 5 + _has_steps(line)
        and type(task) is type(client) is type(version) is int
        and 0 <= client < MOST_CLIENTS
        and 0 <= task < MOST
        and 0 <= version < MOST
    )


def _is_usual_arrived(line: Line) -> bool:
    task, client, version = line["task"], line["client"], line["version"]
    size, loss, rms = line["num_examples"], line["loss"], line["loss_rms"]
    left, latency = line["loss_left"], line["latency_s"]
    return (
        len(line) == 10 + _has_steps(line)
        and type(task) is type(client) is type(version) is type(size) is int
        and 0 <= client < MOST_CLIENTS
        and 0 <= task < MOST
        and 0 <= version < MOST
        and 0 <= size < MOST
        and (loss is None or (type(loss) is float and loss - loss == 0.0))
        and (rms is None or (type(rms) is float and rms - rms == 0.0))
        and (left is None or (type(left) is float and left - left == 0.0))
        and (latency is None or (type(latency) is float and latency - latency == 0.0))
    )


def _has_steps(line: Line) -> bool:
    """Are steps told, and a count? What is told otherwise makes a line of unusual length."""
    steps = line.get("num_steps")
    return type(steps) is int and 0 <= steps < MOST


def _is_usual_picked(line: Line) -> bool:
    """Few keys differ from line to line, and the rest is numbers in lists."""
    if "others" in line:
        if len(line) != 10 or not _are_scored(line["others"], line["other_scores"]):
            return False
    elif len(line) != 8:
        return False
    version, slots, num = line["version"], line["slots"], line["num_free"]
    return (
        type(version) is type(slots) is type(num) is int
        and 0 <= version < MOST
        and 0 <= slots < MOST
        and 0 <= num < MOST
        and type(line["terms"]) is list
        and {*map(type, line["terms"])} <= TEXT
        and _are_scored(line["clients"], line["scores"])
    )


def _are_scored(clients: Any, scores: Any) -> bool:
    """Clients in one list, in the other a list of numbers for some of them."""
    if not type(clients) is type(scores) is list:
        return False
    for client in clients:
        if type(client) is not int or not 0 <= client < MOST_CLIENTS:
            return False
    for row in scores:
        if type(row) is not list:
            return False
        for value in row:
            if value is not None and not (type(value) is float and value - value == 0.0):
                return False
    return True


TEXT = {str}
USUAL: Mapping[str, Callable[[Line], bool]] = {
    "joined": _is_usual_joined,
    "started": _is_usual_started,
    "arrived": _is_usual_arrived,
    "picked": _is_usual_picked,
}

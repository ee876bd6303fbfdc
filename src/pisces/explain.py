"""Why a setting is refused, in one line: the key, the rule, the value, the nearest valid key."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from reprlib import repr as shortened  # a value may be a whole table

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pisces.errors import ConfigError

MAX_HINT = 100  # characters of a value that are said again, put right


def explain(
    error: ValidationError,
    source: str,
    keys: Sequence[str],
    kinds: Sequence[str] = (),
    owners: Mapping[str, str] | None = None,
) -> str:
    """One line per wrong key.

    `keys` are those that would have been right, `kinds` the names of a table's alternatives,
    `owners` says of keys that would be right elsewhere whose they are.
    """
    wrong: dict[str, list[str]] = {}  # what may be one of several things breaks several rules
    for detail in error.errors():
        key = ".".join(_path(detail, kinds))
        wrong.setdefault(key, []).append(_rule(detail, key, keys, owners or {}))
    return "\n".join(
        ": ".join(filter(None, (source, key, "; or ".join(rules)))) for key, rules in wrong.items()
    )


def _rule(detail: ErrorDetails, key: str, keys: Sequence[str], owners: Mapping[str, str]) -> str:
    """What was expected instead of which value, or the nearest valid key."""
    match detail["type"]:
        case "extra_forbidden" if key in keys:  # only one table comes in several kinds
            return f"not a key of kind {detail['loc'][1]!r}"
        case "extra_forbidden" if key in owners:
            return f"unknown key; it is a setting of {owners[key]}"
        case "extra_forbidden":
            return f"unknown key{_nearest(key, keys)}"
        case "missing":
            return "this key is needed"
        case "value_error":
            return detail["msg"].removeprefix("Value error, ")
        case "union_tag_invalid":
            expected = detail["ctx"]["expected_tags"].replace("'", "")
            return f"must be one of {expected}, not {shortened(detail['ctx']['tag'])}"
        case "model_type" | "model_attributes_type" | "dict_type":
            rule = "must be a table"
        case "list_type" if isinstance(detail["input"], str) and len(detail["input"]) <= MAX_HINT:
            names = [name.strip() for name in detail["input"].split(",")]
            rule = f"must be a list, such as {json.dumps(names)}"
        case "list_type":
            rule = "must be a list"
        case _:
            rule = detail["msg"].replace("Input should be", "must be")
    given = detail["input"]
    return f"{rule}, not {'none' if given is None else shortened(given)}"


def _path(detail: ErrorDetails, kinds: Sequence[str]) -> Iterator[str]:
    """The keys of an error's location, without the names pydantic gives to a union's branches."""
    for depth, part in enumerate(detail["loc"]):
        is_kind = depth == 1 and part in kinds
        if isinstance(part, str) and "[" not in part and not is_kind:
            yield part
    if detail["type"] == "union_tag_invalid":
        yield "kind"


def _nearest(key: str, keys: Sequence[str]) -> str:
    """A hint at the key that was probably meant."""
    last = key.rpartition(".")[2]
    moved = [k for k in keys if k.rpartition(".")[2] == last]
    close = moved or difflib.get_close_matches(key, keys, n=1, cutoff=0.6)
    if not close:
        close = [k for k in keys if difflib.get_close_matches(last, [k.rpartition(".")[2]])]
    return f"; did you mean {close[0]}?" if close else ""


def known(name: str, choices: Collection[str], key: str) -> str:
    """The name, if it is one of the choices."""
    if name in choices:
        return name
    close = difflib.get_close_matches(str(name), choices, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(f"{key}: must be one of {', '.join(choices)}, not {shortened(name)}{hint}")

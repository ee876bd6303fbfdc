"""How runs were made, and how to make them again: settings, software, seeds and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from pisces.errors import RunError
from pisces.quantities import UNKNOWN, discreet, how_many, listed
from pisces.record.reader import Run
from pisces.record.writer import CONFIG, read_file
from pisces.report.markup import Html, Marked, broken, table, tag
from pisces.report.settings import MOST_SIDES, Side, common, sides

MOST_LETTERS = 100_000  # of one config in the page


def settings_of(runs: Sequence[Run]) -> list[Html]:
    """Every setting; of several runs those that differ first, side by side."""
    columns = sides(runs)
    alike = common(columns)
    if not any(side.settings for side in columns):
        return [tag("p", "These runs were recorded without their settings.")]
    if len(columns) == 1:
        return [_listing(alike)]
    told = [tag("p", _about(columns, len(alike)))]
    told.append(_differences(columns[:MOST_SIDES], alike))
    heading = tag("summary", f"{how_many(len(alike), 'setting')} that all of them share")
    return [*told, tag("details", heading, _listing(alike))]


def software(runs: Sequence[Run]) -> Iterator[Html]:
    """With what the runs were made, and from which seeds."""
    made = dict.fromkeys(
        "; ".join(filter(None, map(run.told_at_its_end, ("made_with", "trained_by"))))
        for run in runs
    )
    known = [words for words in made if words]
    if known:
        text = "Made with " if len(known) == 1 else "Made with different software: "
        yield tag("p", f"{text}{listed(known)}.")
    else:
        yield tag("p", "With which software is written down at a run's end, which was not reached.")
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    if seeds:
        yield tag("p", f"{'Seed' if len(seeds) == 1 else 'Seeds'}: {listed(seeds)}.")


def make_again(runs: Sequence[Run]) -> Iterator[Html]:
    """Commands, and the files they need."""
    columns = sides(runs)
    shown = columns[:MOST_SIDES]
    names = _file_names(shown)
    for side, name in zip(shown, names, strict=True):
        yield from _one_again(side, name, is_alone=len(columns) == 1)
    if len(columns) > len(shown):
        yield tag("p", f"{how_many(len(columns) - len(shown), 'more config')} in the run folders.")


def _one_again(side: Side, name: str, *, is_alone: bool) -> Iterator[Html]:
    if not is_alone:
        yield tag("h3", side.name)
    where = side.run.config.get("made_in")
    if not side.run.config:
        yield tag("p", "It was recorded without a config, so no command makes it again.")
        return
    if where is not None:
        yield tag("p", f"Made in {where}, from objects of its own: make it there again.")
    elif side.run.is_served:
        yield tag("p", "Its clients came over a network, with data of their own. The server:")
        yield tag("pre", tag("code", f"pisces serve {shlex.quote(name)}"))
    else:
        yield tag("p", f"Save the settings below as {name}, then:")
        yield tag("pre", tag("code", _command(side, name)))
    text = _text(side.run)
    if text is not None:
        yield tag("details", tag("summary", name), tag("pre", tag("code", text)))


def _command(side: Side, name: str) -> str:
    seeds = [seed for seed in side.seeds if seed is not None]
    if len(seeds) < 2:
        return f"pisces run {shlex.quote(name)}"
    each = " ".join(map(str, seeds))
    return f"for seed in {each}; do pisces run {shlex.quote(name)} --seed $seed; done"


def _file_names(columns: Sequence[Side]) -> list[str]:
    """A name each, of letters that need no care, and no two alike."""
    names: list[str] = []
    for side in columns:
        stem = re.sub(r"[^\w+.-]", "_", side.name)[:60].lstrip(".-") or "run"
        again = sum(name == f"{stem}.toml" or name.startswith(f"{stem}-v") for name in names)
        names.append(f"{stem}-v{again + 1}.toml" if again else f"{stem}.toml")
    return names


def _text(run: Run) -> str | None:
    try:
        text = discreet(read_file(run.path / CONFIG).decode())
    except (OSError, ValueError, RunError):
        return None
    return text if len(text) <= MOST_LETTERS else text[:MOST_LETTERS] + "\n# and more"


# --- settings -------------------------------------------------------------------------------------


def _about(columns: Sequence[Side], num_alike: int) -> str:
    num = len({key for side in columns for key in side.settings}) - num_alike
    text = f"{how_many(num, 'setting')} {'differs' if num == 1 else 'differ'} besides the seed."
    if len(columns) > MOST_SIDES:
        text += f" The first {MOST_SIDES} of {len(columns)} ways to run are shown."
    return text


def _differences(columns: Sequence[Side], alike: dict[str, Any]) -> Html:
    keys = dict.fromkeys(key for side in columns for key in side.settings if key not in alike)
    heads = ["setting", *(f"{side.name}\n{_seeds(side)}".strip() for side in columns)]
    return table(heads, [_row(key, columns) for key in keys], numbers=False)


def _row(key: str, columns: Sequence[Side]) -> list[str]:
    """The first is what the others are held against."""
    texts = [_value(side.settings[key]) if key in side.settings else UNKNOWN for side in columns]
    return [broken(key), texts[0], *(t if t == texts[0] else Marked(t) for t in texts[1:])]


def _seeds(side: Side) -> str:
    known = [seed for seed in side.seeds if seed is not None]
    if not known:
        return ""
    return f"seed {known[0]}" if len(known) == 1 else how_many(len(known), "seed")


def _listing(settings: dict[str, Any]) -> Html:
    rows = [(broken(key), _value(value)) for key, value in settings.items()]
    return table(("setting", "value"), rows, numbers=False)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(_value, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else discreet(str(value))

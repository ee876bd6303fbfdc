"""HTML out of values: whatever is not made here is text, and stays text."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(text: object) -> Html:
    """Any text as HTML that shows it."""
    return text if isinstance(text, Html) else Html(html.escape(str(text)))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element: `class_` is the attribute class, None leaves one out, True has no value."""
    parts = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(key)
        elif value is not None:
            parts.append(f'{key}="{html.escape(str(value))}"')
    return Html(f"<{' '.join(parts)}>{joined(children)}</{name}>")


def joined(parts: Iterable[object]) -> Html:
    """One after the other."""
    return Html("".join(map(escape, parts)))


def broken(name: str) -> Html:
    """A dotted name that may break after dots and underscores, not in the middle of words."""
    return Html(re.sub(r"([._]+)", r"\1<wbr>", escape(name)))


def table(
    heads: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    caption: str | None = None,
    numbers: bool = True,
) -> Html:
    """A table whose first column names the row; the others are `numbers`, or words."""
    kind = "numbers" if numbers else "words"
    head = tag("tr", *(tag("th", text, scope="col") for text in heads))
    body = [
        tag("tr", tag("th", first, scope="row"), *(_cell(cell) for cell in rest))
        for first, *rest in rows
    ]
    whole = tag("table", tag("thead", head), tag("tbody", *body), class_=kind)
    # Reachable by the keyboard, which has to scroll what is wider than the screen.
    name = caption or f"Table: {', '.join(map(str, heads))}"
    scrolled = tag("div", whole, class_="wide", tabindex="0", role="region", aria_label=name)
    # Above and not in the table, where it would be as wide as that.
    return joined([tag("p", caption, class_="note"), scrolled]) if caption else scrolled


class Marked(str):
    """A cell that differs from the others of its row."""

    __slots__ = ()


def _cell(value: object) -> Html:
    return tag("td", value, class_="differs" if isinstance(value, Marked) else None)


def data_block(identity: str, value: Any) -> Html:
    """Values for the page's script: nothing in them can end the element, or be run."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(f'<script type="application/json" id="{html.escape(identity)}">{text}</script>')

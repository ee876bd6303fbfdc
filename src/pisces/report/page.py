"""One page that holds everything about some runs, to mail or attach: it needs nothing else.

Words, tables and settings are plain HTML. Figures are drawn by plotly.js, which lies in the page;
its policy lets nothing but that and our own few lines run, and nothing be fetched. The same runs
give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pisces.errors import ConfigError, MissingPackageError, RunError
from pisces.record.reader import Run
from pisces.record.writer import place_file
from pisces.report.chapters import Chapter, chapters, title_of
from pisces.report.charts import LOOK, charts_script
from pisces.report.compare import compare, in_order
from pisces.report.goal import Goal
from pisces.report.ledger.summary import ReadRun
from pisces.report.markup import Html, data_block, joined, tag
from pisces.report.settings import told_apart

SUFFIXES = (".html", ".htm")
NEEDS_SCRIPTS = "Figures are drawn by JavaScript, which is off here; words and tables are whole."


def write_page(path: str | Path, runs: Sequence[Run], goal: Goal | None = None) -> None:
    """Write the page to a file, whole or not at all; without a goal it is what runs are about."""
    path = Path(path)
    if path.is_dir():
        raise RunError(f"cannot write {path}: it is a folder; give --html a file")
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"a page is saved as .html, not {path.name!r}: change its suffix")
    # Names may have halves of characters, which no encoding knows.
    place_file(path, page(runs, goal).encode(errors="replace"))


def page(runs: Sequence[Run], goal: Goal | None = None) -> str:
    """The page as text."""
    if not runs:
        raise RunError("there are no runs to tell of: give at least one run folder")
    read = told_apart([_read(run) for run in runs])
    goal = Goal.of(read) if goal is None else goal
    goal.check(read)
    texts = (_plotly(), LOOK.read_text("utf-8"), _file("page.js"))
    scripts = [_Script.of(text) for text in texts]
    rows = None
    if goal.target is not None and len(read) > 1:
        rows = compare(read, goal.target, metric=goal.metric, reference=goal.reference)
        read = in_order(read, rows)
    parts = list(chapters(read, rows, goal))
    figures = [figure for chapter in parts for figure in chapter.figures]
    title = title_of(read)
    head = joined(
        [
            Html('<meta charset="utf-8">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{_policy(*scripts)}">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<meta name="referrer" content="no-referrer">'),
            tag("title", title),
            tag("style", Html(_file("page.css"))),
        ]
    )
    body = tag(
        "body",
        tag("header", tag("h1", title), *_contents(parts)),
        tag("main", *(_section(chapter) for chapter in parts)),
        data_block("figures", {f.key: {"data": f.data, "layout": f.layout} for f in figures}),
        *(script.element for script in scripts),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{tag("head", head)}{body}</html>\n'


def _read(run: Run) -> ReadRun:
    """The run as far as its log can be read: the page says where it ends."""
    read = ReadRun.whole(run)
    if read.ledger.problem is not None and not read.ledger.notes.num_lines:
        raise RunError(read.ledger.problem)
    return read


def _contents(parts: Sequence[Chapter]) -> Iterator[Html]:
    links = [tag("a", part.title, href=f"#{part.key}") for part in parts if part.title]
    yield tag("nav", *links, aria_label="Contents")
    yield tag("noscript", tag("p", NEEDS_SCRIPTS, class_="warning"))


def _section(chapter: Chapter) -> Html:
    return tag("section", tag("h2", chapter.title), *chapter.content, id=chapter.key)


# --- scripts --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Script:
    """A script in the page, and the hash by which the page's policy knows it."""

    text: str
    hash: str

    @classmethod
    def of(cls, text: str) -> _Script:
        digest = hashlib.sha256(text.encode()).digest()
        return cls(text, f"'sha256-{base64.b64encode(digest).decode()}'")

    @property
    def element(self) -> Html:
        return Html(f"<script>{self.text}</script>")


def _policy(*scripts: _Script) -> str:
    """Nothing may be fetched, and only these run; plotly.js sets styles, and saves pictures."""
    hashes = " ".join(script.hash for script in scripts)
    rules = (
        *("default-src 'none'", f"script-src {hashes}", "style-src 'unsafe-inline'"),
        *("img-src data: blob:", "base-uri 'none'", "form-action 'none'"),
    )
    return "; ".join(rules)


def _plotly() -> str:
    """The script as text that may stand in an element."""
    path = charts_script("--html")
    text = path.read_bytes().decode().replace("\r\n", "\n")
    if "</script" in text.lower() or "<!--" in text:  # it would end, or hide, its own element
        raise MissingPackageError(
            f"{path} cannot be put into a page: install another plotly, "
            "pip install 'pisces-fl[watch]'"
        )
    return text


def _file(name: str) -> str:
    return resources.files("pisces.report").joinpath(name).read_text("utf-8")

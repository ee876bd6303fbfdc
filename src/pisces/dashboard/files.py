"""The files of the page: our own, and the charts' from the installed package `plotly`."""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pisces.report.charts import LOOK, SCRIPT, charts_script

OWN = Path(__file__).parent / "static"
# The charts bring inline styles (of maps, which we do not draw) unless something has their id: a
# strict policy would block them, and the browser complain. So the page has something of that id.
MARKS = b"<!-- marks of the charts -->"
STYLE_ID = re.compile(rb"""document\.getElementById\("([0-9a-f]{32,128})"\)""")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class File:
    """One file, held in memory: whatever happens on disk, the page stays in one piece."""

    kind: str
    content: bytes

    @cached_property
    def tag(self) -> str:
        """Another one whenever the content is another."""
        return f'"{hashlib.blake2b(self.content, digest_size=12).hexdigest()}"'

    @cached_property
    def packed(self) -> bytes:
        """Compressed, for whoever is far away."""
        return gzip.compress(self.content, 6)


def files() -> dict[str, File]:
    """All files by their paths; `/` is the page."""
    found = {f"/static/{path.name}": path for path in OWN.iterdir() if path.suffix in TYPES}
    found[f"/static/{LOOK.name}"] = LOOK
    found[f"/static/{SCRIPT}"] = charts_script("pisces watch")
    read = {name: File(TYPES[path.suffix], path.read_bytes()) for name, path in found.items()}
    page, charts = read.pop("/static/index.html"), read[f"/static/{SCRIPT}"]
    return {**read, "/": File(page.kind, _marked(page.content, charts.content))}


def _marked(page: bytes, charts: bytes) -> bytes:
    ids = dict.fromkeys(STYLE_ID.findall(charts))
    return page.replace(MARKS, b"".join(b'<template id="%s"></template>' % id_ for id_ in ids))

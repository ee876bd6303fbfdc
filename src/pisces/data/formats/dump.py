"""The data dumps of Stack Exchange: `Posts.xml` and `Comments.xml`, a `row` per post.

Code, quotes and markup are left out; so are posts whose author is gone.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.parsers import expat

from pisces.data import words
from pisces.data.raw import Documents, Found, Tell, reading

_CHUNK = 1 << 20
_MOST_TEXT = 1 << 17  # characters of a post; the sites allow fewer
_QUESTION, _ANSWER = "1", "2"
_LEFT_OUT = re.compile(r"<(pre|code|blockquote)\b")
_MARKUP = re.compile(r"<[^<>]*>")
_ADDRESS = re.compile(r"https?://\S+")


def posts(found: Found, tell: Tell) -> Documents:
    """What everybody wrote; an author is a user of one site, which is the name of its folder."""
    paths = [path for paths in found for path in paths]
    num_bytes, done = sum(path.stat().st_size for path in paths), 0
    corpus = words.Corpus()
    for path in paths:
        for size, rows in _rows(path):
            tell(done, num_bytes)
            done += size
            for user, text in rows:
                corpus.add(f"{path.parent.name}/{user}", words.split(text))
    return corpus.documents()


def plain(text: str) -> str:
    """A post's words, without code, quotes and markup."""
    kept = _MARKUP.sub(" ", " ".join(_kept(text[:_MOST_TEXT])))
    return _ADDRESS.sub("url", html.unescape(kept))


def _kept(text: str) -> Iterator[str]:
    """What is outside of code and quotes; each kind of end is looked for in vain only once."""
    at, endless = 0, set()
    for begin in _LEFT_OUT.finditer(text):
        kind = begin[1]
        if begin.start() < at or kind in endless:
            continue
        end = text.find(f"</{kind}>", begin.end())
        if end < 0:
            endless.add(kind)
            continue
        yield text[at : begin.start()]
        at = end + len(f"</{kind}>")
    yield text[at:]


def _rows(path: Path) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Chunk by chunk its size, and author and text of each row in it that has both."""
    rows: list[Mapping[str, str]] = []
    parser = _parser(rows)
    with reading(path), path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            parser.Parse(chunk, False)
            authored = [(_user(row), _text(row)) for row in rows]
            yield len(chunk), [(user, text) for user, text in authored if user and text]
            rows.clear()
        parser.Parse(b"", True)


def _user(row: Mapping[str, str]) -> str:
    return row.get("OwnerUserId") or row.get("UserId") or ""


def _text(row: Mapping[str, str]) -> str:
    if row.get("PostTypeId", _ANSWER) not in (_QUESTION, _ANSWER):
        return ""  # descriptions of tags and the like
    return plain(row.get("Body") or row.get("Text") or "")


def _parser(rows: list[Mapping[str, str]]) -> expat.XMLParserType:
    def element(name: str, attributes: dict[str, str]) -> None:
        if name == "row":
            rows.append(attributes)

    def doctype(*_: object) -> None:
        raise ValueError("it declares a document type, which no dump does")

    parser = expat.ParserCreate()
    parser.StartElementHandler = element
    parser.StartDoctypeDeclHandler = doctype  # entities could be made to fill the memory
    return parser

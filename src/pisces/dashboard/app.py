"""The web application: files of the page, and answers to its questions."""

from __future__ import annotations

import gzip
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pisces.dashboard.answer import GONE, Answer, NoSuchRun
from pisces.dashboard.answers import ANSWERS
from pisces.dashboard.asking import Asked, BadQuestion
from pisces.dashboard.extra import needed
from pisces.dashboard.files import File, files
from pisces.dashboard.guard import App
from pisces.dashboard.index import Index
from pisces.dashboard.places import hidden
from pisces.errors import PiscesError
from pisces.record.lines import plain

with needed():
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

LARGE_BYTES = 8_000  # from here on an answer is compressed
NUM_KEPT = 64  # answers, for whoever else looks at the same
JSON = "application/json"
BUG = "the page could not be answered: a bug in Pisces; its terminal says more"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Body:
    """An answer as it goes over the wire."""

    revision: str
    text: bytes
    packed: bytes | None


@dataclass(eq=False)
class KeptAnswer:
    """The last answer to one question; who finds it being worked out waits."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    body: Body | None = None


@dataclass(eq=False)
class Kept:
    """The last answers, so that two who look at the same cost as much as one."""

    most: int = NUM_KEPT
    _answers: OrderedDict[Hashable, KeptAnswer] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, question: Hashable, answer: Answer) -> Body:
        """The answer, worked out if it is not there."""
        kept = self._kept(question)
        with kept.lock:
            if kept.body is None or kept.body.revision != answer.revision:
                kept.body = _body(answer)
            return kept.body

    def _kept(self, question: Hashable) -> KeptAnswer:
        with self._lock:
            kept = self._answers.setdefault(question, KeptAnswer())
            self._answers.move_to_end(question)
            while len(self._answers) > self.most:
                self._answers.popitem(last=False)
            return kept


def app(index: Index, *, pack_files: bool = False) -> App:
    """Everything but the guard; `pack_files` where browsers are far away."""
    kept = Kept()

    def answer(request: Request) -> Response:
        return _answered(index, kept, request)

    served = [_route(path, file, pack_files) for path, file in files().items()]
    return Starlette(routes=[*served, Route("/api/{question}", answer, methods=["GET"])])


def _route(path: str, file: File, pack: bool) -> Route:
    def serve(request: Request) -> Response:
        headers = {"etag": file.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        if pack and len(file.content) > LARGE_BYTES and _takes_packed(request):
            headers["content-encoding"] = "gzip"
            return Response(file.packed, media_type=file.kind, headers=headers)
        return Response(file.content, media_type=file.kind, headers=headers)

    return Route(path, serve, methods=["GET"])


def _answered(index: Index, kept: Kept, request: Request) -> Response:
    try:
        return _answer(index, kept, request)
    except BadQuestion as error:
        return _problem(400, str(error))
    except NoSuchRun:
        return _problem(404, GONE)
    except PiscesError as error:
        return _problem(422, hidden(str(error), index.root))
    except OSError as error:
        return _problem(422, f"cannot read the run folder: {error.strerror or 'it is gone'}")
    except Exception:
        _log.exception("pisces watch could not answer %s", request.url.path)
        return _problem(500, BUG)


def _answer(index: Index, kept: Kept, request: Request) -> Response:
    question = request.path_params["question"]
    if question not in ANSWERS:
        return _problem(404, "nothing is here")
    asked = Asked.read(request.url.query)
    since = asked.text("since")
    answer = ANSWERS[question](index, asked)
    asked.refuse_unread()
    if since == answer.revision:
        return Response(status_code=204)
    body = kept.of(_key(question, asked), answer)
    if body.packed is not None and _takes_packed(request):
        headers = {"content-encoding": "gzip", "vary": "accept-encoding"}
        return Response(body.packed, media_type=JSON, headers=headers)
    return Response(body.text, media_type=JSON)


def _key(question: str, asked: Asked) -> Hashable:
    """What tells answers apart: what was understood, however it was spelt; not what is known."""
    told = {name: value for name, value in asked.understood.items() if name != "since"}
    return question, frozenset(told.items())


def _body(answer: Answer) -> Body:
    text = _json({"revision": answer.revision, **answer.make()})
    packed = gzip.compress(text, 1) if len(text) > LARGE_BYTES else None
    return Body(answer.revision, text, packed)


def _json(value: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError):  # something in it is of numpy, or not finite
        return json.dumps(plain(value), allow_nan=False, separators=(",", ":")).encode()


def _takes_packed(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _problem(status: int, why: str) -> Response:
    return Response(_json({"problem": why}), status, media_type=JSON)

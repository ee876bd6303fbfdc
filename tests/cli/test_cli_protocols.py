"""`pisces protocols`: every protocol is listed, and each can be asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pisces.build import settings_of
from pisces.names import PROTOCOLS

Pisces = Callable[..., Any]


def test_every_protocol_is_listed(pisces: Pisces) -> None:
    ran = pisces("protocols")
    assert (ran.code, ran.err) == (0, "")
    assert all(f" {name} " in ran.out for name in PROTOCOLS)


def test_each_tells_its_answers_and_settings(pisces: Pisces) -> None:
    told = {facts["name"]: facts for facts in json.loads(pisces("protocols", "--json").out)}
    assert list(told) == list(PROTOCOLS)
    for name, facts in told.items():
        assert all(facts[question] for question in ("who", "when", "how", "trusts", "about"))
        settings = settings_of(name, {}).model_dump()
        assert {key: each["default"] for key, each in facts["settings"].items()} == settings
        assert all(each["about"] for each in facts["settings"].values())


def test_one_is_explained(pisces: Pisces) -> None:
    ran = pisces("protocols", "papaya")
    assert ran.code == 0
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["trusts", "everybody"] in lines
    assert ["[protocols.papaya]"] in lines
    assert any(line[:2] == ["server", "adam"] for line in lines)
    # A wrapped aggregator is told with what it is wrapped around.
    words = " ".join(ran.out.split())
    assert "how FedAdam: the step as a gradient for Adam. A weighted mean" in words


@pytest.mark.parametrize("wrong", ["fedbuf", "nothing-like-it"])
def test_an_unknown_one_is_refused(pisces: Pisces, wrong: str) -> None:
    ran = pisces("protocols", wrong)
    assert ran.code == 2
    assert ("did you mean 'fedbuff'?" in ran.err) == (wrong == "fedbuf")

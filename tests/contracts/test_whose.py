"""Every policy says whose it is: of a paper, and how it differs from it, or ours."""

from __future__ import annotations

import inspect
import re
import sys
from types import ModuleType

import pytest
from runs import implementations

import pisces.aggregate
import pisces.judge
import pisces.pace
import pisces.select

ROOMS: list[tuple[ModuleType, str]] = [
    (pisces.select, "pick"),
    (pisces.pace, "ready"),
    (pisces.aggregate, "combine"),
    (pisces.judge, "judge"),
]
POLICIES = sorted(
    (policy for room, verb in ROOMS for policy in implementations(room, verb)),
    key=lambda policy: f"{policy.__module__}.{policy.__name__}",
)
A_YEAR = re.compile(r"\b(19|20)\d\d\b")


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_it_cites_its_paper_and_how_it_differs_or_is_ours(policy: type) -> None:
    said = f"{inspect.getdoc(sys.modules[policy.__module__])}\n{inspect.getdoc(policy)}"
    is_ours = re.search(r"^Ours[:,]", said, re.MULTILINE) is not None
    is_cited = A_YEAR.search(said) and "Differs from " in said
    assert is_ours or is_cited, (
        f"{policy.__module__}: cite the paper with its year and list what 'Differs from' it, or "
        "begin a paragraph with 'Ours'"
    )

"""`pisces config`: a file that says every key, its default and what it means."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pisces.build import resolved, settings_of
from pisces.config import Config, all_keys, parse, sections
from pisces.names import PARTS, PROTOCOLS
from pisces.policy import ANSWERS
from pisces.settings import checked, defaults_of

KEY = re.compile(r"^(?:# )*([a-z_]+) =")


@pytest.fixture
def text(pisces: Callable[..., Any]) -> str:
    ran = pisces("config")
    assert (ran.code, ran.err) == (0, "")
    return str(ran.out)


def test_it_parses_to_the_defaults(text: str) -> None:
    config = parse(text)
    assert config.model_copy(update={"protocols": {}}) == Config()


def test_protocols_have_their_defaults(text: str) -> None:
    given = parse(text).protocols
    assert set(given) == set(PROTOCOLS)
    for name, settings in given.items():
        assert settings_of(name, settings).model_dump() == settings_of(name, {}).model_dump()


def test_variants_follow_what_is_set_for_the_original(text: str) -> None:
    changed = parse(text, ["protocol=pisces-without-guard", "protocols.pisces.full_share=0.9"])
    assert resolved(changed).protocols["pisces-without-guard"]["full_share"] == 0.9


def test_every_key_is_there_with_a_comment(text: str) -> None:
    lines = [line for line in text.splitlines() if KEY.match(line)]
    assert all(re.search(r"# \S", line.partition("=")[2]) for line in lines)
    named = {match[1] for line in lines if (match := KEY.match(line))}
    tables = {name for name, _ in sections()} | {"protocols", *ANSWERS}
    assert {key.rpartition(".")[2] for key in all_keys() if key not in tables} <= named
    for name in PROTOCOLS:
        assert set(type(settings_of(name, {})).model_fields) <= named


def test_other_kinds_of_latency_only_need_uncommenting(text: str) -> None:
    kinds = re.findall(r'^# kind = "(\w+)"', text, re.MULTILINE)
    assert kinds == ["constant", "uniform", "lognormal", "compute", "trace"]
    for kind in kinds[:-1]:  # a trace needs a path besides
        block = next(b for b in text.split("\n\n") if f'# kind = "{kind}"' in b)
        alone = "\n".join(line.removeprefix("# ") for line in block.splitlines()[1:])
        assert parse(alone).latency.kind == kind


def test_policies_for_mixing_only_need_uncommenting(text: str) -> None:
    for table, makers in PARTS.items():
        told = [b for b in text.split("\n\n") if b.startswith(f"# [{table}]")]
        assert len(told) == len(makers)
        for block, (name, maker) in zip(told, makers.items(), strict=True):
            alone = "\n".join(line.removeprefix("# ") for line in block.splitlines())
            needed = [key for key, value in defaults_of(maker).items() if value is ...]
            changes = [f"{table}.{key}=1" for key in needed]
            told_by_it = parse(alone, changes).replaced[table]
            assert told_by_it.pop("policy") == name
            given = checked(maker, {**told_by_it, **dict.fromkeys(needed, 1.0)}, table)
            without = checked(maker, dict.fromkeys(needed, 1.0), table)
            assert given.model_dump() == without.model_dump()


def test_a_run_of_it_works(pisces: Callable[..., Any], text: str) -> None:
    Path("my.toml").write_text(text)
    ran = pisces("run", "my.toml", "--set", "stop.time_s=20", "--out", "r", "-q")
    assert ran.code == 0
    assert "time, at 20 s" in ran.out

"""The guide to clusters: the settings it shows are those there are, at their defaults."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pisces import tables
from pisces.cli.commands import app

PATH = Path(__file__).parents[1] / "docs" / "cluster.md"

pytestmark = pytest.mark.skipif(not PATH.is_file(), reason="not in a source distribution")


def blocks(kind: str) -> list[str]:
    found = re.findall(r"```(\w*)\n(.*?)```", PATH.read_text("utf-8"), re.DOTALL)
    return [text for its, text in found if its == kind]


def test_every_key_is_there_with_its_default() -> None:
    (text,) = blocks("toml")
    train = tomllib.loads(text)["train"]
    assert train.pop("ray") == tables.Ray().model_dump()
    assert train == {"backend": "ray"}


def test_its_commands_are_ours() -> None:
    lines = [line for block in blocks("") for line in block.splitlines()]
    typed = [line.partition("#")[0].split() for line in lines if line.startswith("pisces")]
    assert {words[1] for words in typed} == {"config", "run", "compare", "reproduce"}
    for words in typed:
        explained = CliRunner().invoke(app, [words[1], "--help"], terminal_width=200).output
        for option in (word for word in words if word.startswith("--")):
            assert option in explained

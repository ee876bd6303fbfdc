"""The walk-through of docs/walk.md, done: four edits to a copy of the house make a new protocol.

What is added is what the page says, block by block, each under the name of the file it belongs to:
a file that is not there is made; into one that is, the block goes where things of its kind stand.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("src", "tests", "docs")
SECTION = "## Adding a policy"
# What a block goes below, in a file that is there already.
BELOW = {
    "src/pisces/names.py": "PROTOCOLS: Mapping[str, Callable[..., Policies]] = {\n",
    "tests/conformance/table.py": "ROWS: dict[str, Row] = {\n",
    "docs/protocols.md": "| name | who | when | how |\n|---|---|---|---|\n",
}
IMPORTS = "from __future__ import annotations\n"
CONFIG = """
[clients]
count = 6
concurrency = 3
[data]
size = 64
[model]
hidden = [8]
[stop]
versions = 3
"""


def edits() -> dict[str, str]:
    """By file, what the page adds to it."""
    page = (ROOT / "docs/walk.md").read_text()
    section = page.partition(SECTION)[2].partition("\n## ")[0]
    headed = re.findall(r"`([\w/.-]+\.(?:py|md))`[^\n`]*\n\n?```\w*\n(.*?)```", section, re.DOTALL)
    return dict(headed)


def apply(edit: str, text: str, house: Path) -> None:
    path = house / edit
    if edit not in BELOW:
        assert not path.exists(), f"{edit} is there: say in BELOW where the block goes"
        path.write_text(text)
        return
    for line in text.splitlines():
        below = IMPORTS if line.startswith("from ") else BELOW[edit]
        before, found, after = path.read_text().partition(below)
        assert found
        indent = "    " if edit.endswith(".py") and below != IMPORTS else ""
        path.write_text(f"{before}{found}{indent}{line}\n{after}")


def changed(house: Path) -> set[str]:
    """The files of the copy's rooms that differ from ours, or that we have not."""
    files = [p.relative_to(house) for room in ROOMS for p in (house / room).rglob("*.*")]
    return {str(f) for f in files if f.suffix != ".pyc" and not _is_ours(house, f)}


def _is_ours(house: Path, file: Path) -> bool:
    ours, theirs = ROOT / file, house / file
    return ours.is_file() and filecmp.cmp(ours, theirs, shallow=False)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, as a newcomer has it."""
    copy = tmp_path_factory.mktemp("house")
    without = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=without)
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def python(house: Path, *args: str) -> tuple[int, str]:
    """What Python says that knows the copy only."""
    path = os.pathsep.join([str(house / "src"), str(house / "tests")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *args], cwd=house, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


# One process for what a newcomer types one after the other: imports take longest.
TRIED = """
import sys
import pytest
from pisces.cli.main import main

name = sys.argv.pop()
table = ["tests/conformance/test_table.py", "-k", name, "-q", "-n0", "-p", "no:cacheprovider"]
assert pytest.main(table) == 1
for said in (["protocols"], ["run", "tiny.toml", "--set", f"protocol={name}", "--out", "made"]):
    sys.argv = ["pisces", *said]
    try:
        main()
    except SystemExit as end:
        assert not end.code, said
"""


def test_four_edits_make_a_protocol(house: Path) -> None:
    told, row = edits(), "tests/conformance/table.py"
    assert len(told) == 4
    (file,) = told.keys() - BELOW.keys()
    (name,) = re.findall(r'"([\w-]+)":', told["src/pisces/names.py"])
    for edit in told.keys() - {row}:
        apply(edit, told[edit], house)

    (house / "tiny.toml").write_text(CONFIG)
    code, said = python(house, "-c", TRIED, name)
    assert code == 0, said
    # What is missing is said, with what to add where; all else works.
    assert f"the protocol '{name}' has no row: add '{name}': Row(" in said
    assert f"to ROWS in {row}" in " ".join(said.replace("\nE  ", "").split())
    assert re.search(rf"^\W*{name}\b", said.partition("pisces protocols")[0], re.MULTILINE)
    assert json.loads((house / "made/summary.json").read_text())["versions"] == 3

    apply(row, told[row], house)
    assert changed(house) == {file, *BELOW}
    suite = ("-m", "pytest", "tests/conformance", "-k", name, "-q", "-n0", "-p", "no:cacheprovider")
    code, said = python(house, *suite)
    assert code == 0, said
    assert int(re.findall(r"(\d+) passed", said)[0]) > 20

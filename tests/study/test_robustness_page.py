"""docs/robustness.md has the numbers of results.json, and no others."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from pisces import config
from pisces.study import plan, records
from pisces.study.records import Record

MakeRecord = Callable[..., Record]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("robustness", ROOT / "scripts" / "robustness.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_as_the_script_writes_it(script: ModuleType) -> None:
    text = (ROOT / "docs" / "robustness.md").read_text("utf-8")
    assert script.page(text, script.measured()) == text


def test_every_attack_of_the_study_is_explained_on_the_page() -> None:
    text = (ROOT / "docs" / "robustness.md").read_text("utf-8")
    for case in plan.load(ROOT / "experiments" / "hostile").case:
        assert f"\n| {case.name.replace('_', ' ')} | " in text


def test_the_recipe_is_what_was_measured() -> None:
    text = (ROOT / "docs" / "robustness.md").read_text("utf-8")
    recipe = config.parse(text.rpartition("```toml")[2].partition("```")[0])
    huge = next(c for c in plan.load(ROOT / "experiments" / "hostile").case if c.name == "huge")
    (measured,) = [v for v in huge.variant or () if v.name == "random-usual-krum"]
    assert recipe.replaced == config.parse("", measured.set).replaced
    assert recipe.protocol == measured.protocol


def test_a_cell_is_the_median_over_seeds(
    script: ModuleType, record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [
        record("pisces", seed, 10.0, x=20.0, case="huge", measures={"late": (v, v)})
        for seed, v in enumerate((0.9, 0.95, 0.97), start=1)
    ]
    monkeypatch.setattr(records, "load", lambda _folder: made)
    row = next(line for line in script.measured().splitlines() if line.startswith("| huge"))
    # undefended and guard-only were not run; of 90, 95 and 97 the middle one, and the range.
    assert row.startswith("| huge |  |  | 95.0 (90.0 to 97.0) |  |")

"""Failures: as likely as they are said to be, and the same whoever asks."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.errors import ConfigError
from pisces.execute.failures import Failures, Fate
from pisces.seeds import generator


def test_nothing_goes_wrong_by_default() -> None:
    assert all(Failures().draw(client, 0) is None for client in range(50))


def test_each_trouble_comes_as_often_as_it_is_likely() -> None:
    failures = Failures(crash=0.1, dropout=0.2, vanish=0.3, seed=4)
    fates = [failures.draw(client, turn) for client in range(100) for turn in range(20)]
    counts = Counter(fate.kind if fate else "well" for fate in fates)
    # 2000 draws: the sd of a share is at most sqrt(0.25 / 2000) = 1.1 %
    shares = [counts[k] / 2000 for k in ("crash", "dropout", "vanish", "well")]
    assert shares == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.05)
    fractions = [fate.fraction for fate in fates if fate]
    assert sum(fractions) / len(fractions) == pytest.approx(0.5, abs=0.05)


def test_a_fate_is_the_draw_of_its_client_and_turn() -> None:
    failures = Failures(vanish=1.0, seed=9)
    _, part = generator(9, "failure", 3, 5).random(2)
    assert failures.draw(3, 5) == failures.draw(3, 5) == Fate("vanish", part)
    assert failures.draw(3, 6) != failures.draw(3, 5) != failures.draw(4, 5)
    assert failures.draw(3, 5) != Failures(vanish=1.0, seed=8).draw(3, 5)


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_a_sure_failure_strikes_while_the_task_runs(client: int, turn: int, seed: int) -> None:
    fate = Failures(crash=1.0, seed=seed).draw(client, turn)
    assert fate is not None
    assert fate.kind == "crash"
    assert 0 < fate.fraction < 1


def test_a_draw_of_zero_is_not_at_the_very_start(monkeypatch: pytest.MonkeyPatch) -> None:
    class Zero:
        def random(self, num: int) -> list[float]:
            return [0.0] * num

    monkeypatch.setattr("pisces.execute.failures.generator", lambda *_: Zero())
    assert Failures(crash=0.5).draw(0, 0) == Fate("crash", 2.0**-53)


def test_probabilities_may_add_up_to_one() -> None:
    Failures(crash=0.1, dropout=0.2, vanish=0.7)
    Failures(crash=0.7, dropout=0.1, vanish=0.2, return_after_s=60.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"crash": -0.1}, "not -0.1, 0.0 and 0.0"),
        ({"dropout": 1.1}, "not 0.0, 1.1 and 0.0"),
        ({"vanish": math.nan}, "not 0.0, 0.0 and nan"),
        ({"crash": 0.5, "dropout": 0.5, "vanish": 0.1}, "at most 1"),
        ({"return_after_s": 0.0}, "return_after_s .* not 0.0"),
        ({"return_after_s": math.inf}, "return_after_s .* not inf"),
    ],
)
def test_impossible_failures_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Failures(**settings)  # type: ignore[arg-type]

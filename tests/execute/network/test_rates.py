"""How often is too often."""

from __future__ import annotations

import logging

import pytest

from pisces.errors import ConfigError
from pisces.execute.network.server import rates
from pisces.execute.network.server.rates import Bucket, Buckets, Once
from pisces.execute.network.server.stats import MOST_KINDS, Stats
from pisces.execute.network.server.terms import Terms


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_fills_with_time() -> None:
    clock = Clock()
    bucket = Bucket(2.0, 3.0, clock)
    assert bucket.is_full
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    clock.now = 1.0
    assert not bucket.is_full
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    clock.now = 99.0
    assert bucket.is_full
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_names_have_buckets_of_their_own_and_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    buckets = Buckets(1.0, 2.0, clock, _look_at=10)
    monkeypatch.setattr(rates, "MOST_REMEMBERED", 10)
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
    assert buckets.take("b")
    for number in range(1000):
        clock.now += 1.0
        assert buckets.take(f"c{number}")
    assert len(buckets._of) <= 10
    crowd = Buckets(1.0, 2.0, clock, _look_at=10)
    for number in range(1000):  # none of them may be forgotten
        crowd.take(f"c{number}")
    assert len(crowd._of) == 1000


def test_a_thing_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    once = Once(Clock())
    with caplog.at_level(logging.WARNING, "pisces"):
        for number in range(5):
            once.warn(("a", "kind"), f"a: {number}")
        once.warn(("b", "kind"), "b")
    assert caplog.messages == ["a: 0", "b"]


def test_a_flood_of_different_things_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    once = Once(clock)
    with caplog.at_level(logging.WARNING, "pisces"):
        for number in range(20_000):
            once.warn((str(number),), str(number))
        assert len(caplog.messages) == rates.MOST_SAID_AT_ONCE
        clock.now = 10.0
        once.warn(("later",), "later")
    assert caplog.messages[-1] == "later"


def test_kinds_are_few() -> None:
    stats = Stats()
    for number in range(1000):
        stats.refuse(f"kind {number}")
    stats.refuse("kind 0")
    assert len(stats.refused) == MOST_KINDS + 1
    assert (stats.refused["kind 0"], stats.refused.total()) == (2, 1001)


def test_terms_make_sense() -> None:
    assert Terms(beat_s=2.0).silent_after_s == 6.0
    Terms(linger_s=0.0)
    for name in ("at_least", "patience_s", "beat_s", "messages_per_s"):
        with pytest.raises(ConfigError, match=f"network.{name}: must be greater than 0"):
            Terms(**{name: 0})
    with pytest.raises(ConfigError, match=r"network\.linger_s"):
        Terms(linger_s=float("inf"))
    with pytest.raises(ConfigError, match="must be float32 or float16, not 'float8'"):
        Terms(encoding="float8")  # type: ignore[arg-type]

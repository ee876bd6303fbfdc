"""The record's format, entry by entry."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.errors import ConfigError
from pisces.record.lines import Memory, Tee, encode, line, plain
from pisces.types import (
    Aggregated,
    Distrusted,
    Dropped,
    Entry,
    Evaluated,
    Failed,
    Joined,
    Layout,
    Left,
    Outlier,
    Report,
    Started,
    Stopped,
    Update,
    Weights,
)

NAN, INF = math.nan, math.inf
WEIGHTS = Weights(torch.zeros(1), Layout(()))


def update(report: Report) -> Update:
    return Update(3, 7, 2, WEIGHTS, WEIGHTS, report, arrived_at=9.5, latency_s=4.25)


FORMAT: list[tuple[Entry, str]] = [
    (Joined(0.0, 7, 50), '{"kind":"joined","at":0.0,"client":7,"num_examples":50}'),
    (Started(1.5, 3, 7, 2), '{"kind":"started","at":1.5,"task":3,"client":7,"version":2}'),
    (
        update(Report(50, loss=0.5, loss_rms=0.75, loss_left=0.25)),
        '{"kind":"arrived","at":9.5,"task":3,"client":7,"version":2,"num_examples":50,'
        '"loss":0.5,"loss_rms":0.75,"loss_left":0.25,"latency_s":4.25}',
    ),
    (
        update(Report(50)),
        '{"kind":"arrived","at":9.5,"task":3,"client":7,"version":2,"num_examples":50,'
        '"loss":null,"loss_rms":null,"loss_left":null,"latency_s":4.25}',
    ),
    (
        Failed(2.0, 7, "late", task_id=3),
        '{"kind":"failed","at":2.0,"task":3,"client":7,"reason":"late"}',
    ),
    (Failed(2.0, 7, "late"), '{"kind":"failed","at":2.0,"client":7,"reason":"late"}'),
    (Left(2.0, 7, "off", task_id=0), '{"kind":"left","at":2.0,"task":0,"client":7,"reason":"off"}'),
    (Left(2.0, 7, "off"), '{"kind":"left","at":2.0,"client":7,"reason":"off"}'),
    (Dropped(2.0, 3, "stale"), '{"kind":"dropped","at":2.0,"task":3,"reason":"stale"}'),
    (
        Aggregated(3.0, 4, (3, 5), (1, 0), (0.25, 0.5)),
        '{"kind":"aggregated","at":3.0,"version":4,"tasks":[3,5],"staleness":[1,0],'
        '"weights":[0.25,0.5]}',
    ),
    (
        Evaluated(3.0, 4, {"accuracy": 0.5, "loss": NAN, "perplexity": INF}),
        '{"kind":"evaluated","at":3.0,"version":4,"accuracy":0.5,"loss":null,"perplexity":null}',
    ),
    (
        Outlier(3.0, 7, 3, credits=4),
        '{"kind":"outlier","at":3.0,"client":7,"task":3,"credits":4}',
    ),
    (Distrusted(3.0, 7), '{"kind":"distrusted","at":3.0,"client":7}'),
    (Stopped(4.0, "time limit"), '{"kind":"stopped","at":4.0,"reason":"time limit"}'),
]


@pytest.mark.parametrize(("entry", "text"), FORMAT, ids=[text[9:20] for _, text in FORMAT])
def test_an_entry_is_written_exactly_so(entry: Entry, text: str) -> None:
    assert encode(line(entry)) == text.encode() + b"\n"


@pytest.mark.parametrize("name", ["kind", "at", "version"])
def test_a_metric_cannot_hide_a_key(name: str) -> None:
    with pytest.raises(ConfigError, match=f"called '{name}'.*rename"):
        line(Evaluated(1.0, 1, {name: 0.5}))


def test_numbers_of_numpy_and_torch_become_plain() -> None:
    entry = Aggregated(1.0, 2, (np.int64(5),), (np.int32(1),), (np.float32(0.5),))  # type: ignore[arg-type]
    metrics = {"accuracy": torch.tensor(0.5), "loss": np.float64(NAN)}
    assert line(entry)["tasks"] == [5]
    assert type(line(entry)["tasks"][0]) is int
    assert encode(line(entry)).endswith(b'"tasks":[5],"staleness":[1],"weights":[0.5]}\n')
    assert line(Evaluated(1.0, 2, metrics))["accuracy"] == 0.5  # type: ignore[arg-type]
    assert line(Evaluated(1.0, 2, metrics))["loss"] is None  # type: ignore[arg-type]


def test_what_is_no_entry_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        line("joined")  # type: ignore[arg-type]


def test_a_reason_may_hold_anything() -> None:
    text = encode(line(Failed(1.0, 7, 'a "b"\nü\x00')))
    assert text.count(b"\n") == 1
    assert json.loads(text)["reason"] == 'a "b"\nü\x00'


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=30)
@given(st.dictionaries(st.text(), VALUES))
def test_what_is_plain_survives_json_unchanged(value: dict[str, Any]) -> None:
    assert json.loads(encode(plain(value)), parse_constant=pytest.fail) == plain(value)


class Refusing(Memory):
    def close(self) -> None:
        raise OSError("no")


class Closing(Memory):
    closed = False

    def close(self) -> None:
        self.closed = True


def test_a_tee_hands_every_entry_to_all() -> None:
    one, other = Memory(), Memory()
    tee = Tee(one, other)
    tee.record(Joined(0.0, 7, 50))
    tee.record(Stopped(4.0, "time limit"))
    tee.close()
    assert one.lines == other.lines
    assert [entry["kind"] for entry in one.lines] == ["joined", "stopped"]


def test_a_tee_closes_all_even_if_one_cannot() -> None:
    first, last = Closing(), Closing()
    with pytest.raises(OSError, match="no"):
        Tee(first, Refusing(), last).close()
    assert first.closed
    assert last.closed

"""What ClientApps say of their training, whatever they call it."""

from __future__ import annotations

import logging
import math
import re
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, MetricRecord, RecordDict

from pisces.clients.checks import Limits, wrong_report
from pisces.execute.flower.arrays import RecordError
from pisces.execute.flower.replies import Metrics
from pisces.types import Report


def told(metrics: dict[str, Any], reader: Metrics | None = None) -> Report:
    content = RecordDict({"metrics": MetricRecord(metrics)})
    report, record = (reader or Metrics()).report(content)
    assert dict(record) == metrics
    return report


@pytest.mark.parametrize("name", ["train_loss", "train-loss", "loss"])
def test_a_mean_by_its_usual_names_stands_for_the_root_mean_square(name: str) -> None:
    assert told({"num-examples": 7, name: 1.5}) == Report(7, 1.5, 1.5)
    assert told({"num-examples": 7, name: -1.5}) == Report(7, -1.5, 1.5)  # none is negative


def test_the_first_of_the_usual_names_counts() -> None:
    metrics = {"num-examples": 7, "loss": 3.0, "train-loss": 2.0, "train_loss": 1.0}
    assert told(metrics).loss == 1.0


def test_whoever_tells_more_is_heard() -> None:
    metrics = {"num-examples": 7, "train_loss": 1.0, "loss-rms": 1.25, "loss-left": 0.5}
    assert told(metrics) == Report(7, 1.0, 1.25, loss_left=0.5)
    assert told({"num-examples": 7, "loss-rms": 1.25}) == Report(7, None, 1.25)


def test_names_of_ones_own() -> None:
    metrics = {"samples": 7.0, "my_loss": 1.0, "train_loss": 2.0}
    assert told(metrics, Metrics("samples", "my_loss")) == Report(7, 1.0, 1.0)


def test_the_record_with_the_number_is_the_one() -> None:
    content = RecordDict(
        {
            "others": MetricRecord({"loss": 9.0}),
            "config": ConfigRecord({"num-examples": 3}),
            "metrics": MetricRecord({"num-examples": 7, "loss": 1.0}),
        }
    )
    assert Metrics().report(content)[0] == Report(7, 1.0, 1.0)


def test_says_once_what_it_does_without(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pisces")
    reader = Metrics()
    for _ in range(3):
        assert told({"num-examples": 7, "acc": 0.5}, reader) == Report(7)
    [said] = caplog.messages
    assert said.startswith("ClientApps tell no loss (train_loss or train-loss or loss) but ")
    assert "'acc'" in said
    assert said.endswith("Name theirs: loss=...")
    caplog.clear()
    for _ in range(3):
        told({"num-examples": 7, "loss": 0.5}, reader)
    [said] = caplog.messages
    assert "'loss', which is taken for the root mean square" in said
    caplog.clear()
    told({"num-examples": 7, "loss": 0.5, "loss-rms": 0.5}, Metrics())
    assert not caplog.messages


def test_names_of_any_length_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    told({"num-examples": 7, **{f"{n}" * 1000: 1.0 for n in range(100)}})
    assert len(caplog.messages[0]) < 500


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.5, [7], [], [7.0, 8.0]])
def test_numbers_of_examples_that_are_none(number: Any) -> None:
    with pytest.raises(RecordError, match=r"num-examples is .*, not a whole number"):
        told({"num-examples": number})


def test_without_a_number_nothing_can_be_weighted() -> None:
    for content in (RecordDict(), RecordDict({"metrics": MetricRecord({"loss": 1.0})})):
        with pytest.raises(RecordError, match="no metric 'num-examples', by which updates are"):
            Metrics().report(content)


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ({"num-examples": 0}, "0 examples, outside 1"),
        ({"num-examples": -3.0}, "-3 examples, outside 1"),
        ({"num-examples": 1e300}, "examples, outside 1"),
        ({"num-examples": 10**400}, "examples, outside 1"),
        ({"num-examples": 7, "loss": math.nan}, "loss nan, not a finite number"),
        ({"num-examples": 7, "loss": 10**400}, "loss 1000.*, not a finite number"),
        ({"num-examples": 7, "loss": 1.0, "loss-rms": math.inf}, "RMS loss inf, not a finite"),
        ({"num-examples": 7, "loss": 1.0, "loss-rms": 0.5}, "RMS loss 0.5, below 1"),
        ({"num-examples": 7, "loss": 1.0, "loss-left": math.nan}, "loss left nan, not a finite"),
    ],
)
def test_what_is_absurd_is_passed_on_to_be_refused(metrics: dict[str, Any], says: str) -> None:
    # There it costs the client a credit, as it does everywhere.
    problem = wrong_report(told(metrics), 10**9, Limits())
    assert problem is not None
    assert re.search(says, problem)


def test_a_list_is_no_loss() -> None:
    assert told({"num-examples": 7, "loss": [1.0, 2.0]}) == Report(7)

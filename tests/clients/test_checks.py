"""What is refused of what clients send, and in which words."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from worlds import weights

from pisces.clients.checks import (
    Limits,
    Shape,
    is_finite,
    most_buffered,
    update_bytes,
    wrong_client,
    wrong_report,
    wrong_size,
    wrong_weights,
)
from pisces.errors import ConfigError
from pisces.types import Layout, Report, Slice, Weights

LIMITS = Limits(max_examples=1000, max_loss=50.0)
LAYOUT = weights([0.0, 0.0]).layout
SHAPE = Shape.of(LAYOUT)


def flat(values: list[float], dtype: torch.dtype = torch.float32) -> Weights:
    return Weights(torch.tensor(values, dtype=dtype), LAYOUT)


SENT = flat([0.0, 0.0])


@pytest.mark.parametrize("num", [1, 1000])
def test_sizes_within_the_limits_are_right(num: int) -> None:
    assert wrong_size(num, LIMITS) is None


@pytest.mark.parametrize(
    ("num", "says"),
    [
        (0, "0 examples, outside 1..1000"),
        (-5, "-5 examples, outside 1..1000"),
        (1001, "1001 examples, outside 1..1000"),
        (10**30, "outside 1..1000"),
        (2.5, "must be an integer, not 2.5"),
        (3.0, "must be an integer, not 3.0"),
        (math.nan, "must be an integer, not nan"),
        (True, "must be an integer, not True"),
        ("12", "must be an integer, not '12'"),
        (None, "must be an integer, not None"),
    ],
)
def test_absurd_sizes_are_refused(num: Any, says: str) -> None:
    assert says in str(wrong_size(num, LIMITS))


def test_finite_weights_of_the_right_shape_are_right() -> None:
    assert wrong_weights(flat([1.0, -9e14]), SENT, SHAPE, LIMITS) is None


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (flat([1.0]), "weights of shape (1,), not (2,)"),
        (flat([1.0, 2.0, 3.0]), "weights of shape (3,), not (2,)"),
        (Weights(torch.zeros(1, 2), LAYOUT), "weights of shape (1, 2), not (2,)"),
        (flat([]), "weights of shape (0,), not (2,)"),
        (flat([1, 2], torch.int64), "int64"),
        (flat([1.0, 2.0], torch.complex64), "complex64"),
        # Finite now, infinite once added to a float32 model.
        (flat([1.0, 1e300], torch.float64), "float64"),
        (flat([1.0, 2.0], torch.float16), "float16"),
        (flat([1.0, math.nan]), "not finite"),
        (flat([math.inf, 0.0]), "not finite"),
        (flat([-math.inf, 0.0]), "not finite"),
        (flat([3e15, -4e15]), "weights 5e+15 away from those it was sent, above 1e+15"),
        (flat([1.0, -3e38]), "weights inf away from those it was sent"),  # its square is
    ],
)
def test_weights_that_cannot_be_added_are_refused(sent: Weights, says: str) -> None:
    assert says in str(wrong_weights(sent, SENT, SHAPE, LIMITS))


def test_whoever_was_sent_large_weights_may_answer_with_such() -> None:
    # or, once somebody had moved the model there, everybody else would be refused
    assert wrong_weights(flat([3e15, 5e15]), flat([3e15, 4.9e15]), SHAPE, LIMITS) is None


@pytest.mark.parametrize(("value", "is_wrong"), [(3e38, False), (math.inf, True), (math.nan, True)])
def test_without_a_limit_weights_must_be_finite_all_the_same(value: float, is_wrong: bool) -> None:
    problem = wrong_weights(flat([value, 0.0]), SENT, SHAPE, Limits(max_norm=math.inf))
    assert (problem == "weights that are not finite") is is_wrong


def test_a_float64_model_takes_float64_weights() -> None:
    layout = Layout((Slice("w", (2,), "float64", "parameter", 0, 2),))
    shape = Shape.of(layout)
    assert wrong_weights(flat([1.0, 1e14], torch.float64), SENT, shape, LIMITS) is None
    says = "weights of type torch.float32, not float64"
    assert wrong_weights(flat([1.0, 2.0]), SENT, shape, LIMITS) == says


@pytest.mark.parametrize(
    ("values", "finite"),
    [
        ([3e38, 3e38], True),  # their sum is no float32 any more, but they are
        ([], True),
        ([1.0, math.nan], False),
        ([math.inf, -math.inf], False),
        ([3e38, 3e38, -math.inf], False),
    ],
)
def test_numbers_are_finite_whatever_their_sum_is(values: list[float], finite: bool) -> None:
    assert is_finite(torch.tensor(values)) is finite
    assert is_finite(torch.tensor(values, requires_grad=True)) is finite


@pytest.mark.parametrize(
    "report",
    [
        Report(10),
        Report(10, loss=1.0),
        Report(10, loss=1.0, loss_rms=1.0),
        Report(3, loss=1.0, loss_rms=2.0),
        Report(10, loss_rms=0.0),
        Report(10, loss=50.0, loss_rms=50.0),
        Report(10, loss=-2.0, loss_rms=2.0),  # some losses may be negative
        Report(10, loss=1.0, loss_rms=1.0, loss_left=0.5),
        Report(10, loss_left=50.0),
        Report(10, loss=1.0, loss_left=2.0),  # training may make it worse
        Report(10, loss=-2.0, loss_left=-3.0),
        Report(10, loss=1.0, loss_rms=0.9995),  # float32 sums miss by a little
    ],
)
def test_plausible_reports_are_right(report: Report) -> None:
    assert wrong_report(report, declared=10, limits=LIMITS) is None


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (Report(0), "0 examples"),
        (Report(11), "11 examples, more than the 10 it joined with"),
        (Report(2.0), "must be an integer"),  # type: ignore[arg-type]
        (Report(10, loss=math.nan), "loss nan, not a finite number up to 50"),
        (Report(10, loss=math.inf), "loss inf"),
        (Report(10, loss=50.1), "loss 50.1, not a finite number up to 50"),
        (Report(10, loss=-50.1), "loss -50.1"),
        (Report(10, loss=10**400), "loss 1000"),
        (Report(10, loss="low"), "loss 'low'"),  # type: ignore[arg-type]
        (Report(10, loss=1.0, loss_rms=math.nan), "RMS loss nan"),
        (Report(10, loss=1.0, loss_rms=60.0), "RMS loss 60.0, not a finite number up to 50"),
        (Report(10, loss=1.0, loss_rms=[2.0]), "RMS loss [2.0]"),  # type: ignore[arg-type]
        (Report(10, loss=1.0, loss_rms=0.99), "RMS loss 0.99, below 1, the least its mean allows"),
        (Report(10, loss=-2.0, loss_rms=1.0), "RMS loss 1, below 2,"),
        (Report(10, loss_rms=-0.1), "RMS loss -0.1, below 0,"),
        (Report(10, loss=1.0, loss_left=math.nan), "loss left nan, not a finite number up to 50"),
        (Report(10, loss_left=math.inf), "loss left inf"),
        (Report(10, loss=1.0, loss_left=50.1), "loss left 50.1, not a finite number up to 50"),
        (Report(10, loss=1.0, loss_left=-50.1), "loss left -50.1"),
        (Report(10, loss_left=10**400), "loss left 1000"),
        (Report(10, loss_left="low"), "loss left 'low'"),  # type: ignore[arg-type]
    ],
)
def test_implausible_reports_are_refused(report: Report, says: str) -> None:
    assert says in str(wrong_report(report, declared=10, limits=LIMITS))


def test_what_a_client_sent_cannot_flood_the_record() -> None:
    absurd = Report(10, loss="x" * 10_000)  # type: ignore[arg-type]
    assert len(str(wrong_report(absurd, declared=10, limits=LIMITS))) < 300
    assert len(str(wrong_size("9" * 10_000, LIMITS))) < 300


# --- memory ---------------------------------------------------------------------------------------


def test_an_update_takes_four_bytes_a_number_or_eight_where_one_tensor_has_them() -> None:
    assert update_bytes(LAYOUT, Limits()) == 8  # 2 x float32
    double = Layout((*LAYOUT.slices, Slice("b", (1,), "float64", "parameter", 2, 3)))
    assert update_bytes(double, Limits()) == 24  # 3 x float64


def test_a_model_beyond_the_largest_update_is_refused() -> None:
    assert update_bytes(LAYOUT, Limits(max_update_bytes=8)) == 8
    with pytest.raises(
        ConfigError, match=r"max_update_bytes: .* takes 8 bytes, more than 7; raise"
    ):
        update_bytes(LAYOUT, Limits(max_update_bytes=7))


def test_how_many_updates_may_wait() -> None:
    limits = Limits(max_buffered_bytes=31)  # of 8 bytes each
    assert most_buffered(3, LAYOUT, limits) == 3
    with pytest.raises(ConfigError, match=r"lets 4 updates wait, which takes 32 bytes \(4 x 8\)"):
        most_buffered(4, LAYOUT, limits)
    assert most_buffered(1, Layout(()), limits) == 31  # a model without weights


@pytest.mark.parametrize("name", ["max_update_bytes", "max_buffered_bytes"])
def test_limits_of_nothing_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="must be at least 1"):
        Limits(**{name: 0})


@pytest.mark.parametrize(
    "client", ["1", 1.0, True, None, [1], 2**63, -(2**16000)], ids=lambda c: type(c).__name__
)
def test_what_is_no_clients_number_is_refused_in_few_words(client: Any) -> None:
    problem = wrong_client(client, LIMITS)
    assert problem is not None
    assert problem.startswith("a client must be an integer")
    assert len(problem) < 200


@pytest.mark.parametrize("client", [-1, 10_000_000])
def test_a_number_outside_the_table_is_refused(client: int) -> None:
    assert wrong_client(client, LIMITS) == f"client {client}, outside 0..9999999"


def test_there_are_not_more_clients_than_a_log_can_have() -> None:
    with pytest.raises(ConfigError, match="max_clients must be from 1 to 10000000, not 20000000"):
        Limits(max_clients=20_000_000)

"""A Flower app's arrays as one vector, and back; nothing that comes back is believed."""

from __future__ import annotations

import io
import re
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord
from postbox import record

from pisces.errors import ConfigError
from pisces.execute.flower.arrays import Arrays, RecordError
from pisces.types import Weights

# As PyTorch has BatchNorm's: statistics between parameters, and an integer counter.
APP = {
    "conv.weight": np.arange(4, dtype=np.float32).reshape(2, 2),
    "norm.running_mean": np.array([10.0, 11.0], np.float32),
    "norm.num_batches_tracked": np.array(7, np.int64),
    "fc.bias": np.array([20.0], np.float32),
}


def of(arrays: dict[str, np.ndarray], buffers: list[str] | None = None) -> tuple[Arrays, Weights]:
    return Arrays.of(record(**arrays), buffers)


def values(found: ArrayRecord) -> dict[str, list[float]]:
    return {name: array.numpy().tolist() for name, array in found.items()}


def test_parameters_lie_before_buffers_and_integers_stay_outside() -> None:
    arrays, weights = of(APP)
    assert weights.flat.tolist() == [0, 1, 2, 3, 20, 10, 11]
    assert [(s.name, s.role, s.shape) for s in arrays.layout.slices] == [
        ("conv.weight", "parameter", (2, 2)),
        ("fc.bias", "parameter", (1,)),
        ("norm.running_mean", "buffer", (2,)),
    ]
    assert weights.parameters.tolist() == [0, 1, 2, 3, 20]


def test_the_app_finds_its_own_order_shapes_and_integers() -> None:
    arrays, weights = of(APP)
    found = arrays.record(Weights(weights.flat + 1, weights.layout))
    assert [*found] == [*APP]
    assert values(found) == {
        "conv.weight": [[1, 2], [3, 4]],
        "norm.running_mean": [11, 12],
        "norm.num_batches_tracked": 7,
        "fc.bias": [21],
    }
    assert found["norm.num_batches_tracked"].numpy().dtype == np.int64
    assert found["fc.bias"].numpy().dtype == np.float32


def test_buffers_can_be_named() -> None:
    arrays, _ = of(APP, ["conv.weight"])
    assert [s.role for s in arrays.layout.slices] == ["parameter", "parameter", "buffer"]
    assert of(APP, [])[1].parameters.numel() == 7
    with pytest.raises(
        ConfigError, match=r"buffers: 'fc' is none of what is averaged: conv\.weight"
    ):
        of(APP, ["fc"])
    with pytest.raises(ConfigError, match=r"'norm\.num_batches_tracked' is none of"):
        of(APP, ["norm.num_batches_tracked"])


def test_each_keeps_its_kind_and_the_vector_holds_them_all() -> None:
    app = {"half": np.array([1.5], np.float16), "double": np.array([1 + 2**-40], np.float64)}
    arrays, weights = of(app)
    assert weights.flat.dtype == torch.float64
    found = arrays.record(weights)
    assert [array.numpy().dtype.name for array in found.values()] == ["float16", "float64"]
    assert values(found) == {"half": [1.5], "double": [1 + 2**-40]}
    assert arrays.flat(found).tolist() == [1.5, 1 + 2**-40]


def test_one_number_without_a_shape() -> None:
    arrays, weights = of({"scale": np.array(3.0, np.float32)})
    found = arrays.record(weights)
    assert found["scale"].numpy().shape == ()
    assert arrays.flat(found).tolist() == [3.0]


@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=4),
        elements={"allow_nan": False, "allow_infinity": False},
    ),
    st.booleans(),
)
def test_there_and_back_again(value: np.ndarray, is_fortran: bool) -> None:
    arrays, weights = of({"a": value})
    sent = np.array(value, order="F" if is_fortran else "C")
    assert np.array_equal(arrays.record(weights)["a"].numpy(), value)
    assert np.array_equal(arrays.flat(record(a=sent)), value.reshape(-1))


# --- what is refused at once ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("initial", "says"),
    [
        ([np.zeros(2)], r"must be an ArrayRecord, such as ArrayRecord\(.*\), not list"),
        (np.zeros(2), "must be an ArrayRecord, .* not ndarray"),
        (None, "must be an ArrayRecord, .* not NoneType"),
        (ArrayRecord(), "must hold at least one array, not none"),
        (record(a=np.zeros(2, np.int64)), "none of a holds numbers of float16, float32, float64"),
        (record(a=np.zeros((0, 3), np.float32)), "none of a holds numbers"),
        (record(a=np.zeros(2, np.complex64)), "a is of complex64: can be float16"),
        (record(a=np.array(["x"])), "a is of <U1: can be float16"),
        (record(b=[1.0], a=[np.nan]), "a must be finite; mend it"),
        (record(a=[np.inf]), "a must be finite; mend it"),
    ],
)
def test_initial_arrays_that_cannot_be_trained(initial: ArrayRecord, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^initial_arrays: .*{says}"):
        Arrays.of(initial, None)


# --- what comes back ------------------------------------------------------------------------------

ARRAYS, _ = of({"w": np.zeros((2, 3), np.float32), "n": np.array(1, np.int32)})
GOOD = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(5, np.int32)}


def npy(header: str, content: bytes = b"", *, magic: bytes = b"\x93NUMPY\x01\x00") -> Array:
    text = header.encode() + b"\n"
    data = magic + len(text).to_bytes(2, "little") + text + content
    return Array("float32", (2, 3), "numpy.ndarray", data)


def refused(w: Array | np.ndarray) -> str:
    sent = record(**GOOD)
    sent["w"] = w if isinstance(w, Array) else Array(w)
    with pytest.raises(RecordError) as caught:
        ARRAYS.flat(sent)
    assert len(str(caught.value)) < 300
    return str(caught.value)


def test_integers_that_come_back_are_not_looked_at() -> None:
    sent = record(**GOOD)
    sent["n"] = Array("int32", (), "pickle", b"cos\nsystem")
    assert ARRAYS.flat(sent).tolist() == [0, 1, 2, 3, 4, 5]


def test_other_names_are_refused() -> None:
    for sent, says in (
        (record(w=GOOD["w"]), "no array 'n'"),
        (record(**GOOD, x=[1.0]), "an array 'x' that was not sent"),
        (record(n=GOOD["n"], W=GOOD["w"]), "an array 'W' that was not sent"),
        (record(**GOOD, **{"a" * 10_000: [1.0]}), "an array 'aaa"),
    ):
        with pytest.raises(RecordError, match=f"^{says}") as caught:
            ARRAYS.flat(sent)
        assert len(str(caught.value)) < 200


def test_another_kind_of_float_is_converted() -> None:
    # As numpy makes of float32 when nobody looks: 1 + 2^-40 is 1 then, and 1e300 infinite.
    found = ARRAYS.flat(record(**{**GOOD, "w": np.full((2, 3), 1 + 2.0**-40)}))
    assert (found.dtype, found.tolist()) == (np.float32, [1.0] * 6)
    found = ARRAYS.flat(record(**{**GOOD, "w": np.full((2, 3), 1e300)}))
    assert np.isinf(found).all()


@pytest.mark.parametrize(
    ("w", "says"),
    [
        (np.zeros((3, 2), np.float32), r"w: of shape \(3, 2\), not \(2, 3\)"),
        (np.zeros(6, np.float32), r"w: of shape \(6,\), not \(2, 3\)"),
        (np.zeros((), np.float32), r"w: of shape \(\), not \(2, 3\)"),
        (np.zeros((2, 3), np.int64), "w: of <i8, not float32"),
        (np.zeros((2, 3), ">f4"), "w: of >f4, not float32"),
        (np.zeros((2, 3), np.int32), "w: of <i4, not float32"),
        (np.zeros((2, 3), np.dtype([("a", "<f4")])), "w: no array as numpy writes it"),
        (Array("float32", (2, 3), "torch.save", b"x" * 100), "w: written as 'torch.save', not"),
        (Array("float32", (2, 3), "numpy.ndarray", b""), "w: no array as numpy writes it"),
        (Array("float32", (2, 3), "numpy.ndarray", b"\x80\x04\x95"), "w: no array as numpy"),
    ],
)
def test_other_arrays_are_refused(w: Array | np.ndarray, says: str) -> None:
    assert re.match(says, refused(w)), refused(w)


LIKE = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"


def test_headers_by_hand() -> None:
    numbers = np.arange(6, dtype="<f4").tobytes()
    sent = record(**GOOD)
    sent["w"] = npy(LIKE, numbers)
    assert ARRAYS.flat(sent).tolist() == [0, 1, 2, 3, 4, 5]
    sent["w"] = npy(LIKE.replace("False", "True"), numbers)  # columns first: 0 2 4 / 1 3 5
    assert ARRAYS.flat(sent).tolist() == [0, 2, 4, 1, 3, 5]
    assert "28 bytes, which are not of (2, 3)" in refused(npy(LIKE, numbers + b"more"))
    assert "20 bytes" in refused(npy(LIKE, numbers[:-4]))
    terabytes = LIKE.replace("(2, 3)", "(1000000, 1000000)")
    assert "of shape (1000000, 1000000)" in refused(npy(terabytes, numbers))
    long = LIKE.replace("(2, 3)", f"({'9' * 5000},)")
    assert "of no shape" in refused(npy(long, numbers))
    assert "no array" in refused(npy(LIKE.replace("<f4", "|O"), b"cos\nsystem\n(S'true'\ntR."))
    assert "no array" in refused(npy("(" * 60_000))
    assert "no array" in refused(npy("__import__('os').abort()"))
    assert "no array" in refused(npy(LIKE, numbers, magic=b"\x93NUMPY\x03\x00"))


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    refused(Array("float32", (2, 3), "numpy.ndarray", data))


@given(st.data())
def test_a_good_array_with_some_bytes_changed(data: st.DataObject) -> None:
    buffer = io.BytesIO()
    np.save(buffer, GOOD["w"])
    octets = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(octets)))
    sent = record(**GOOD)
    for content in (bytes(octets), bytes(octets[:cut])):
        sent["w"] = Array("float32", (2, 3), "numpy.ndarray", content)
        with suppress(RecordError):
            assert ARRAYS.flat(sent).shape == (6,)

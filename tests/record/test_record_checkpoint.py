"""Checkpoints on disk: whole or not at all, each tensor once, damage found, nothing left over."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pisces.errors import ConfigError, RunError
from pisces.record import blobs as blobs_module
from pisces.record import writer
from pisces.record.blobs import LARGE_BYTES
from pisces.record.checkpoint import FORMAT, Checkpoints, Found, Saved, Store
from pisces.record.writer import Position
from pisces.types import State

CPU = torch.device("cpu")
NUM = LARGE_BYTES // 4  # float32 numbers of the smallest tensor with a file of its own


def saved(arrays: dict[str, Any], **values: Any) -> Saved:
    return Saved(State(values, arrays), Position(12, 34), {"seed": 1}, "pisces 0", 5.0)


def last(run: Path) -> Found:
    return Store(run).last(lambda _saved: None, CPU)


def arrays_of(run: Path) -> dict[str, Any]:
    found = last(run).saved
    assert found is not None
    return found.state.arrays


def tensors(run: Path) -> set[str]:
    return {path.name for path in (run / "checkpoints" / "tensors").iterdir()}


def numbers(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").glob("*.json"))


# --- what comes back ------------------------------------------------------------------------------

ARRAYS: dict[str, Any] = {
    "float32": torch.tensor([1.5, -0.0, float("nan"), float("inf")]),
    "float64": torch.tensor([0.1], dtype=torch.float64),
    "bfloat16": torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
    "large": torch.arange(NUM, dtype=torch.float32),
    "large, every other": torch.arange(2 * NUM, dtype=torch.float32)[::2],
    "none": torch.zeros(0, 3),
    "one": torch.tensor(7),
    "ids": np.arange(5, dtype=np.int32),
    "flags": np.array([True, False]),
    "nothing": np.zeros(0),
    "matrix": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "scalar": np.array(3.5),
}


def bits(array: Any) -> bytes:
    whole = array.double().numpy() if isinstance(array, torch.Tensor) else array
    return bytes(whole.tobytes())


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    Store(tmp_path).save(saved(ARRAYS), keep=2)
    found = arrays_of(tmp_path)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert type(found[name]) is type(array)
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert bits(found[name]) == bits(array)
    found["ids"][0] = 9  # what comes back can be worked with


def test_values_come_back_as_they_were(tmp_path: Path) -> None:
    values = {"at": 0.1 + 0.2, "none": None, "big": 2**100, "nan": float("nan"), "ä": [1, "x"]}
    Store(tmp_path).save(saved({}, **values), keep=2)
    found = last(tmp_path).saved
    assert found is not None
    assert repr(found.state.values) == repr(values)
    assert (found.position, found.made, found.wall_s) == (Position(12, 34), {"seed": 1}, 5.0)


def test_one_object_stays_one_and_two_stay_two(tmp_path: Path) -> None:
    one, like_it = torch.zeros(NUM), torch.zeros(NUM)
    Store(tmp_path).save(saved({"a": one, "b": one, "c": like_it}), keep=2)
    found = arrays_of(tmp_path)
    assert found["a"] is found["b"]
    found["a"] += 1  # whoever changes its own must not change another's that was only alike
    assert float(found["c"].sum()) == 0.0
    assert len(tensors(tmp_path)) == 1


# --- each tensor once -----------------------------------------------------------------------------


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files of arrays, as they are written."""
    names: list[str] = []

    def noted(path: Path, content: bytes) -> None:
        names.append(path.name)
        writer.replace_file(path, content)

    monkeypatch.setattr(blobs_module, "replace_file", noted)
    return names


def test_what_was_written_is_not_written_again(tmp_path: Path, written: list[str]) -> None:
    old, new = torch.ones(NUM), torch.zeros(NUM)
    store = Store(tmp_path)
    store.save(saved({"version/1": old}), keep=2)
    store.save(saved({"version/1": old, "version/2": new}), keep=2)
    assert len(written) == len(tensors(tmp_path)) == 2
    resumed = Store(tmp_path)  # also not by the next process
    found = resumed.last(lambda _saved: None, CPU).saved
    assert found is not None
    resumed.save(
        saved({"x": found.state.arrays["version/2"], "y": torch.full((NUM,), 2.0)}), keep=2
    )
    assert len(written) == 3


def test_nor_is_it_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor, hashed = torch.ones(NUM), []
    real = blobs_module.digest
    monkeypatch.setattr(blobs_module, "digest", lambda c: hashed.append(len(c)) or real(c))
    store = Store(tmp_path)
    for _ in range(3):
        store.save(saved({"weights": tensor}), keep=2)
    assert len(hashed) == 1


def test_what_was_changed_in_place_is_written_anew(tmp_path: Path) -> None:
    tensor = torch.ones(NUM)
    store = Store(tmp_path)
    store.save(saved({"momentum": tensor}), keep=2)
    tensor.mul_(3)
    store.save(saved({"momentum": tensor}), keep=2)
    assert float(arrays_of(tmp_path)["momentum"][0]) == 3.0


def test_a_new_tensor_in_an_old_ones_memory_is_another(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(20):  # freed at once, so identities come again
        store.save(saved({"x": torch.full((NUM,), float(number))}), keep=1)
        assert float(arrays_of(tmp_path)["x"][0]) == number


def test_only_the_last_are_kept_with_what_they_need(tmp_path: Path) -> None:
    store, first = Store(tmp_path), torch.full((NUM,), 9.0)
    for number in range(5):
        more = {"first": first} if number < 4 else {}
        store.save(saved({**more, "own": torch.full((NUM,), float(number))}), keep=2)
        assert len(tensors(tmp_path)) == min(number + 2, 3)
    assert numbers(tmp_path) == ["000004.json", "000005.json"]
    store.save(saved({}), keep=1)
    assert numbers(tmp_path) == ["000006.json"]
    assert tensors(tmp_path) == set()


def test_what_a_crash_has_left_is_removed_and_not_believed(tmp_path: Path) -> None:
    Store(tmp_path).save(saved({"x": torch.ones(NUM)}), keep=2)
    folder = tmp_path / "checkpoints" / "tensors"
    (torn,) = folder.iterdir()
    (tmp_path / "checkpoints" / "000001.json").unlink()  # the crash came before it was written
    torn.write_bytes(b"half of it")
    (folder / "x.part").write_bytes(b"")
    Store(tmp_path).save(saved({"x": torch.ones(NUM)}), keep=2)
    assert float(arrays_of(tmp_path)["x"].sum()) == NUM
    assert tensors(tmp_path) == {torn.name}


# --- what is refused ------------------------------------------------------------------------------


def spoil(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 9)


DAMAGES = {
    "another value": (lambda run: spoil(run / "000002.json", b"5.0", b"6.0"), "its checksum is"),
    "cut short": (lambda run: cut(run / "000002.json"), "its checksum is another"),
    "emptied": (lambda run: (run / "000002.json").write_bytes(b""), "does not begin as"),
    "something else": (lambda run: (run / "000002.json").write_bytes(b"\x80\x04"), "begin as"),
    "a folder": (
        lambda run: ((run / "000002.json").unlink(), (run / "000002.json").mkdir()),
        "it cannot be read: it is not an ordinary file",
    ),
    "a pipe": (
        lambda run: ((run / "000002.json").unlink(), os.mkfifo(run / "000002.json")),
        "it cannot be read: it is not an ordinary file",
    ),
    "without end": (
        lambda run: ((run / "000002.json").unlink(), (run / "000002.json").symlink_to("/dev/zero")),
        "it cannot be read: it is not an ordinary file",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_checkpoint_that_is_not_whole_is_refused_for_the_one_before(
    damage: str, tmp_path: Path
) -> None:
    spoilt, why = DAMAGES[damage]
    store = Store(tmp_path)
    for number in (1, 2):
        store.save(saved({"x": torch.full((NUM,), float(number))}, number=number), keep=2)
    spoilt(tmp_path / "checkpoints")
    found = last(tmp_path)
    assert found.saved is not None
    assert found.path is not None
    assert (found.saved.state.values, found.path.name) == ({"number": 1}, "000001.json")
    (refused,) = found.refused
    assert "000002.json: " in refused
    assert why in refused


def test_one_of_a_newer_format_is_neither_taken_nor_passed_over(tmp_path: Path) -> None:
    # Going on from the one before would end in its being removed.
    store, newer = Store(tmp_path), tmp_path / "checkpoints" / "000002.json"
    for number in (1, 2):
        store.save(saved({"x": torch.full((NUM,), float(number))}, number=number), keep=2)
    spoil(newer, b'"format": 1', b'"format": 2')
    says = f"it has format 2.* up to {FORMAT}: .*or remove it to go on from .*000001.json"
    with pytest.raises(RunError, match=says):
        last(tmp_path)
    newer.unlink()
    assert last(tmp_path).saved is not None


def test_an_array_that_an_older_checkpoint_needs_outlives_a_save_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Store(tmp_path)
    for value in (1.0, 2.0):
        before.save(saved({"x": torch.full((NUM,), value)}), keep=2)
    after = Store(tmp_path)
    after.last(lambda _: None, torch.device("cpu"))  # which knows nothing of the first's array

    def full(*_: object) -> None:
        raise RunError("no space left")

    again = saved({"x": torch.full((NUM,), 1.0)})
    with monkeypatch.context() as patched:
        patched.setattr("pisces.record.checkpoint.replace_file", full)
        with pytest.raises(RunError, match="no space"):
            after.save(again, keep=2)
    (tmp_path / "checkpoints" / "000002.json").unlink()
    found = last(tmp_path)
    assert found.saved is not None, found.refused


@pytest.mark.parametrize("damage", ["missing", "one bit", "cut short"])
@pytest.mark.parametrize("num", [4, NUM])
def test_so_is_one_whose_arrays_are_not(damage: str, num: int, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(saved({"x": torch.zeros(num)}), keep=2)
    before = tensors(tmp_path)
    store.save(saved({"x": torch.ones(num)}), keep=2)
    (name,) = tensors(tmp_path) - before
    path = tmp_path / "checkpoints" / "tensors" / name
    if damage == "missing":
        path.unlink()
    elif damage == "one bit":
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    else:
        cut(path)
    found = last(tmp_path)
    (refused,) = found.refused
    assert name in refused
    assert ("No such file" if damage == "missing" else "is damaged") in refused
    assert found.saved is not None
    assert float(found.saved.state.arrays["x"].sum()) == 0.0


def test_where_all_are_refused_there_is_none(tmp_path: Path) -> None:
    def refuse(_saved: Saved) -> None:
        raise RunError("it is of another run")

    store = Store(tmp_path)
    for _ in range(2):
        store.save(saved({}), keep=2)
    found = Store(tmp_path).last(refuse, CPU)
    assert found.saved is None
    assert [why.rpartition("/")[2] for why in found.refused] == [
        "000002.json: it is of another run",
        "000001.json: it is of another run",
    ]


def test_a_checkpoint_that_was_refused_goes_with_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for _ in range(2):
        store.save(saved({}), keep=2)
    spoil(tmp_path / "checkpoints" / "000002.json", b"5.0", b"6.0")
    resumed = Store(tmp_path)
    resumed.last(lambda _saved: None, CPU)
    resumed.save(saved({}), keep=2)
    assert numbers(tmp_path) == ["000001.json", "000003.json"]


def test_nothing_in_a_checkpoint_is_code(tmp_path: Path) -> None:
    Store(tmp_path).save(saved(ARRAYS), keep=2)
    paths = [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]
    assert {path.suffix for path in paths} == {".json", ".safetensors"}
    json.loads((tmp_path / "checkpoints" / "000001.json").read_text())


@pytest.mark.parametrize("wrong", [{"every_s": 0.0}, {"every_s": float("nan")}, {"keep": 0}])
def test_impossible_rhythms_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint\.every_s must be greater than 0"):
        Checkpoints(**wrong)


# --- a full disk ----------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1, 2])  # files that still fit
def test_a_full_disk_leaves_the_last_one_and_nothing_else(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.save(saved({"x": torch.zeros(NUM)}, number=1), keep=2)
    before = tensors(tmp_path)
    left = iter(range(room))
    real = writer._replace

    def full(path: Path, content: bytes) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content)

    monkeypatch.setattr(writer, "_replace", full)
    more = {"x": torch.ones(NUM), "y": torch.full((NUM,), 2.0)}
    with pytest.raises(RunError, match="No space left on device; make room"):
        store.save(saved(more, number=2), keep=2)
    assert (numbers(tmp_path), tensors(tmp_path)) == (["000001.json"], before)
    monkeypatch.undo()
    store.save(saved(more, number=3), keep=2)
    assert float(arrays_of(tmp_path)["y"][0]) == 2.0


def test_state_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for wrong in (saved({}, rng=object()), saved({"names": np.array(["a"])})):
        with pytest.raises(RunError, match="some state is neither JSON nor an array of numbers"):
            Store(tmp_path).save(wrong, keep=2)
    assert last(tmp_path) == Found(None, None, [])

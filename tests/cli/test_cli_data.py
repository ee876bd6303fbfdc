"""`pisces data`: what there is, getting it once, and checking it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafiles
import numpy as np
import pytest

from pisces.data.catalogue import CATALOGUE

Pisces = Callable[..., Any]


@pytest.fixture
def cache(folder: Path) -> Path:
    """Where datasets are got to."""
    return folder / "cache" / "pisces"


def test_help_of_every_command(pisces: Pisces) -> None:
    assert "List, get and check datasets" in pisces("data").out
    for command in ("list", "get", "check"):
        ran = pisces("data", command, "--help")
        assert ran.code == 0
        assert f"pisces data {command}" in ran.out.partition("Example")[2]
        assert max(map(len, ran.out.splitlines())) <= 80


def test_list_names_every_dataset(pisces: Pisces) -> None:
    ran = pisces("data", "list")
    assert (ran.code, ran.err) == (0, "")
    for name in ("digits", *CATALOGUE):
        assert f" {name} " in ran.out
    assert ran.out.count("not here") == len(CATALOGUE)


def test_list_says_where_each_is(pisces: Pisces, folder: Path) -> None:
    datafiles.mnist_idx(folder / "data" / "mnist")
    rows = {
        row["name"]: row
        for row in json.loads(pisces("data", "list", "--folder", "data", "--json").out)
    }
    assert set(rows) == set(CATALOGUE)
    assert rows["mnist"]["folder"] == "data/mnist"
    assert rows["mnist"]["size_bytes"] == 8 * 784 + 8 + 2 * 16 + 2 * 8  # and four headers
    assert rows["femnist"]["folder"] is None
    assert rows["femnist"]["hub"] == "flwrlabs/femnist"
    assert all(row["licence"] and row["cite"] for row in rows.values())


def test_get_then_get_again_then_run(pisces: Pisces, folder: Path, cache: Path) -> None:
    datafiles.mnist_idx(folder / "files", zipped=True)
    ran = pisces("data", "get", "mnist", "--from", "files")
    assert ran.code == 0
    assert ran.out.startswith(f"mnist: {cache / 'mnist' / 'mnist.npz'}, ")
    written_at = (cache / "mnist" / "mnist.npz").stat().st_mtime_ns
    ran = pisces("data", "get", "mnist")  # needs no hub
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"mnist is ready: {cache / 'mnist' / 'mnist.npz'}, ")
    assert ran.out.endswith("not the published one; to replace it: pisces data get mnist --force\n")
    assert (cache / "mnist" / "mnist.npz").stat().st_mtime_ns == written_at
    (folder / "tiny.toml").write_text(
        "[clients]\ncount = 2\nconcurrency = 1\n[data]\ndataset = 'mnist'\n[stop]\ntime_s = 200\n"
        "[train]\ndevice = 'cpu'\n"
    )
    ran = pisces("run", "tiny.toml", "-q")
    assert (ran.code, ran.err) == (0, "")


def test_what_is_there_is_replaced_only_by_force(pisces: Pisces, folder: Path, cache: Path) -> None:
    datafiles.mnist_idx(folder / "files")
    datafiles.mnist_npz(folder / "others")
    path = cache / "mnist" / "mnist.npz"
    pisces("data", "get", "mnist", "--from", "files")
    before = path.read_bytes()
    ran = pisces("data", "get", "mnist", "--from", "others")
    assert ran.code == 0
    assert "others was not read; to replace it: pisces data get mnist --from others" in ran.out
    assert path.read_bytes() == before
    assert pisces("data", "get", "mnist", "--from", "nowhere", "--force").code == 2
    assert path.read_bytes() == before
    ran = pisces("data", "get", "mnist", "--from", "others", "--force")
    assert (ran.code, ran.out.startswith(f"mnist: {path}, ")) == (0, True)
    assert path.read_bytes() != before
    (row,) = json.loads(pisces("data", "check", "--json").out)
    assert (row["good"], row["has_checksums"], row["num_clients"]) == (True, True, 3)


def test_a_copy_that_comes_before_the_one_that_was_got_is_named(
    pisces: Pisces, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PISCES_DATA", str(folder / "data"))
    get = ("data", "get", "mnist", "-q", "--from", datafiles.mnist_idx(folder / "files"))
    assert pisces(*get).err == ""  # PISCES_DATA has none: the cache's is found
    datafiles.mnist_npz(folder / "data" / "mnist")
    for args in (get, (*get, "--force")):
        (line,) = pisces(*args).err.splitlines()
        assert f"runs read {folder / 'data' / 'mnist'} instead: PISCES_DATA comes first" in line
        assert f"--folder {folder / 'data'}" in line
    assert pisces(*get, "--folder", "mine").err == ""  # whoever names a folder knows


def test_get_into_another_folder(pisces: Pisces, folder: Path) -> None:
    datafiles.mnist_idx(folder / "files")
    ran = pisces("data", "get", "mnist", "--from", "files", "--folder", "mine", "-q")
    assert (ran.code, ran.err) == (0, "")
    assert sorted(p.name for p in (folder / "mine" / "mnist").iterdir()) == [
        "mnist.npz",
        "sha256.json",
    ]


def test_mistakes_are_one_line(pisces: Pisces) -> None:
    for args, words in (
        (["get", "mnits"], "did you mean 'mnist'?"),
        (["get", "mnist", "--from", "nowhere"], "--from nowhere: no such file or folder"),
        (["get", "stackexchange"], "pisces data get stackexchange --from FOLDER"),
        (["check", "mnist"], "pisces data get mnist"),
        (["check", "nmist"], "did you mean 'mnist'?"),
    ):
        ran = pisces("data", *args)
        assert (ran.code, ran.out) == (2, "")
        (line,) = ran.err.splitlines()
        assert words in line


def test_check_of_a_folder_that_is_not_there(
    pisces: Pisces, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ((), ("mnist",)):
        ran = pisces("data", "check", *name, "--folder", "nowhere")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == "error: no such folder: nowhere, which --folder names\n"
    monkeypatch.setenv("PISCES_DATA", str(folder / "nowhere"))
    ran = pisces("data", "check")
    assert (ran.code, ran.out) == (1, "")
    assert f"no such folder: {folder / 'nowhere'}, which the variable PISCES_DATA names" in ran.err
    datafiles.mnist_npz(folder / "data" / "mnist")
    assert pisces("data", "check", "--folder", "data").code == 0  # the variable is not asked


@pytest.mark.parametrize("command", ["get", "check"])
def test_digits_need_no_getting(pisces: Pisces, command: str) -> None:
    ran = pisces("data", command, "digits")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "digits comes with scikit-learn: nothing to get\n"


def test_check_says_what_is_there(pisces: Pisces, folder: Path) -> None:
    assert "no datasets are there" in pisces("data", "check").out
    datafiles.mnist_npz(folder / "data" / "mnist")
    ran = pisces("data", "check", "--folder", "data")
    assert (ran.code, ran.err) == (0, "")
    words = " ".join(ran.out.split())
    assert re.search(
        r"mnist 6 2 10 3 7\.\d\d kB good, but not the published one, no checksums", words
    )
    assert "of text" not in words
    (row,) = json.loads(pisces("data", "check", "mnist", "--folder", "data", "--json").out)
    assert row["good"]
    assert (row["num_train"], row["num_clients"], row["has_checksums"]) == (6, 3, False)


def test_check_tells_copies_of_text_apart(pisces: Pisces, folder: Path) -> None:
    posts = {"author": ["a", "b"], "text": ["to be or not to be " * 9] * 2}
    datafiles.parquet(folder / "posts.parquet", posts)
    pisces("data", "get", "stackexchange", "--from", "posts.parquet", "--folder", "ready")
    datafiles.parquet(folder / "same" / "stackexchange" / "a.parquet", posts)
    posts["text"][0] += "why"
    datafiles.parquet(folder / "other" / "stackexchange" / "a.parquet", posts)

    def digest(where: str) -> str:
        (row,) = json.loads(pisces("data", "check", "--folder", where, "--json").out)
        return str(row["digest"])

    assert digest("ready") == digest("same") != digest("other")
    shown = " ".join(pisces("data", "check", "--folder", "ready").out.split())
    assert "of text, samples are windows of 32 words and classes are the words known" in shown
    assert f"good, digest {digest('ready')[:12]}" in shown


def test_a_dataset_that_is_there_twice_is_a_fault_not_absent(pisces: Pisces, folder: Path) -> None:
    for below in ("a", "b"):
        datafiles.mnist_npz(folder / "data" / "mnist" / below)
    ran = pisces("data", "list", "--folder", "data")
    assert ran.out.count("not here") == len(CATALOGUE) - 1
    assert "data/mnist/a and in data/mnist/b: name one" in " ".join(ran.out.split())
    rows = json.loads(pisces("data", "list", "--folder", "data", "--json").out)
    faults = {row["name"]: row["error"] for row in rows if row["error"] is not None}
    assert list(faults) == ["mnist"]
    for name in ([], ["mnist"]):
        ran = pisces("data", "check", *name, "--folder", "data")
        assert ran.code == 1
        assert ran.err == f"error: {faults['mnist']}\n"
        (row,) = json.loads(pisces("data", "check", *name, "--folder", "data", "--json").out)
        assert row == {"name": "mnist", "good": False, "error": faults["mnist"]}


def test_a_package_that_is_not_installed_keeps_no_other_dataset_from_being_checked(
    pisces: Pisces, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datafiles.mnist_npz(folder / "data" / "mnist")
    datafiles.parquet(folder / "data" / "femnist" / "a.parquet", {"image": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    ran = pisces("data", "check", "--folder", "data", "--json")
    assert ran.code == 1
    mnist, femnist = json.loads(ran.out)
    assert mnist["good"]
    assert "pip install 'pisces-fl[data]'" in femnist["error"]


def test_check_finds_a_flipped_bit_and_exits_with_1(
    pisces: Pisces, folder: Path, cache: Path
) -> None:
    pisces("data", "get", "mnist", "--from", datafiles.mnist_idx(folder / "files"))
    assert pisces("data", "check").code == 0
    path = cache / "mnist" / "mnist.npz"
    content = bytearray(path.read_bytes())
    content[2000] ^= 1
    path.write_bytes(content)
    ran = pisces("data", "check")
    assert ran.code == 1
    assert "wrong" in ran.out
    (line,) = ran.err.splitlines()
    assert line.startswith(f"error: {path} has changed since it was written")
    (row,) = json.loads(pisces("data", "check", "--json").out)
    assert (row["good"], "has changed" in row["error"]) == (False, True)
    ran = pisces("data", "get", "mnist")  # nor is it said to be ready
    assert f"get it again: pisces data get mnist --force --folder {cache}" in ran.err
    ran = pisces("data", "get", "mnist", "--from", folder / "files", "--force", "--folder", cache)
    assert ran.code == 0
    assert pisces("data", "check").code == 0


def test_ctrl_c_leaves_nothing_behind(
    start: Callable[..., subprocess.Popen[str]], folder: Path, cache: Path
) -> None:
    images = np.insert(datafiles.colour(2000).reshape(-1, 3072), 0, 1, axis=1).tobytes()
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(images)  # 37 MB of noise: a second or more to write
    process = start("data", "get", "cifar10", "--from", ".")
    ends_at = time.monotonic() + 60
    while not list(cache.glob("cifar10/.*.part")) and time.monotonic() < ends_at:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert list((cache / "cifar10").iterdir()) == []

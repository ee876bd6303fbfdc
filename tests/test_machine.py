"""The machine and its software, in words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import torch

import pisces
from pisces import machine


def test_a_checkout_is_named_by_its_commit(tmp_path: Path) -> None:
    package = tmp_path / "src" / "pisces"
    package.mkdir(parents=True)
    (package / "a.py").write_text("")
    assert machine._commit(package) == ""
    git(tmp_path, "init", "-q")
    assert machine._commit(package) == ""  # nothing is committed yet
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "--short", "HEAD")
    assert machine._commit(package) == commit
    (tmp_path / "results.json").write_text("")  # beside the package: no change of it
    assert machine._commit(package) == commit
    (package / "a.py").write_text("a = 1")
    assert machine._commit(package) == f"{commit}+"
    # Installed below another project, whose commit is not ours to tell.
    installed = tmp_path / ".venv" / "lib" / "site-packages" / "pisces"
    installed.mkdir(parents=True)
    assert machine._commit(installed) == ""


def git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_software_in_words() -> None:
    words = machine.software()
    assert words.startswith(f"pisces {pisces.__version__}")
    assert words.endswith(f", torch {torch.__version__}")


def test_a_device_in_words() -> None:
    assert machine.in_words(torch.device("cpu")) == "cpu"

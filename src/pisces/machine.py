"""What this machine has to compute on, and with which software."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import torch

import pisces
from pisces.errors import ConfigError


def num_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device_of(name: str) -> torch.device:
    """The device of that name; `auto` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ConfigError(f"train.device: must be auto, cpu, cuda or cuda:NUMBER, not {name!r}")
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"train.device: {name!r} cannot be used here ({reason}); auto takes what there is"
        ) from error


def in_words(device: torch.device) -> str:
    """The kind of device and, of a GPU, which: for people who compare times."""
    if device.type != "cuda":
        return device.type
    return f"{device.type} ({torch.cuda.get_device_name(device)})"


@cache
def software() -> str:
    """The versions of Pisces and torch; of a checkout also its commit, `+` if it was changed."""
    commit = _commit(Path(pisces.__file__).parent)
    at = f" ({commit})" if commit else ""
    return f"pisces {pisces.__version__}{at}, torch {torch.__version__}"


def _commit(package: Path) -> str:
    """The commit a package was taken from; nothing if it does not lie in its own checkout."""
    if not (package.parents[1] / ".git").exists():  # installed, perhaps below another project
        return ""
    commit = _git(package, "rev-parse", "--short", "HEAD")
    return commit + ("+" if commit and _git(package, "status", "--porcelain", "--", ".") else "")


def _git(folder: Path, *arguments: str) -> str:
    """What git says there; nothing where it cannot be asked."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()

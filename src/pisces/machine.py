"""What this machine has to compute on."""

from __future__ import annotations

import os
import re

import torch

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

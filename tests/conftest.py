"""What every test shares: one torch thread, and hypothesis without a stopwatch."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch
from hypothesis import settings

# Flower would make gRPC of every process that tests start keep quiet; this is as if it was not set.
os.environ.setdefault("GRPC_VERBOSITY", "")
torch.set_num_threads(1)  # small tensors: more threads cost more than they bring
settings.register_profile("pisces", deadline=None, print_blob=True)
settings.load_profile("pisces")


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard() -> None:
    """Every test begins as a process does, whatever the one before did to signals."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)

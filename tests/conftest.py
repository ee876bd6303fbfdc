"""What every test shares: one torch thread, and hypothesis without a stopwatch."""

from __future__ import annotations

import os
import signal

import torch
from hypothesis import settings
from telling import pytest_terminal_summary as pytest_terminal_summary  # what is measured is told

# Flower would make gRPC of every process that tests start keep quiet; this is as if it was not set.
os.environ.setdefault("GRPC_VERBOSITY", "")
torch.set_num_threads(1)  # small tensors: more threads cost more than they bring
settings.register_profile("pisces", deadline=None, print_blob=True)
settings.load_profile("pisces")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as scripts start what is in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

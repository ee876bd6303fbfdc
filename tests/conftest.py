"""What every test shares: one torch thread, and hypothesis without a stopwatch."""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)  # small tensors: more threads cost more than they bring
settings.register_profile("pisces", deadline=None, print_blob=True)
settings.load_profile("pisces")

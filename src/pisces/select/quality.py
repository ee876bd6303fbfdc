"""How much there is to learn from a client's data."""

from __future__ import annotations

import numpy as np

from pisces.clients.view import View
from pisces.select.top import Floats, Ids


def data_quality(view: View, clients: Ids) -> Floats:
    """Samples times RMS loss of each of `clients` (Lai et al., Oort, OSDI 2021, section 4.2).

    A loss nobody told is guessed to be the median of the known ones, or 1 when none is known.
    """
    quality: Floats = _losses(view, clients) * view.clients.num_examples[clients]
    return quality


def _losses(view: View, clients: Ids) -> Floats:
    loss = view.clients.loss_rms[clients]
    untold = np.isnan(loss)
    if untold.any():
        loss[untold] = 1.0 if untold.all() else np.median(loss[~untold])
    return loss

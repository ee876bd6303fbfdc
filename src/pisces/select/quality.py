"""How much there is to learn from a client's data."""

from __future__ import annotations

from typing import Literal

import numpy as np

from pisces.clients.view import View
from pisces.select.top import Floats, Ids

# "rms": root of the mean square of a client's losses; "root": square root of their mean
LossTerm = Literal["rms", "root"]


def data_quality(view: View, clients: Ids, term: LossTerm = "rms") -> Floats:
    """Samples times RMS loss of each of `clients` (Lai et al., Oort, OSDI 2021, section 4.2).

    A loss nobody told is guessed to be the median of the known ones, or 1 when none is known.
    """
    losses = told_losses(view, clients, term)
    untold = np.isnan(losses)
    if untold.any():
        losses[untold] = 1.0 if untold.all() else np.median(losses[~untold])
    quality: Floats = losses * view.clients.num_examples[clients]
    return quality


def told_losses(view: View, clients: Ids, term: LossTerm = "rms") -> Floats:
    """The loss of each of `clients`, NaN where it told none."""
    if term == "rms":
        return view.clients.loss_rms[clients]
    root: Floats = np.sqrt(np.maximum(view.clients.loss[clients], 0.0))
    return root

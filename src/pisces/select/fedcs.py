"""FedCS's selection: as many clients as fit into a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated

import numpy as np

from pisces.clients.view import View
from pisces.policy import Assignment, Selector, Trait, Traits
from pisces.select.settings import check
from pisces.select.top import Floats, Ids, choose
from pisces.words import AskedShare, NotNegative, RoundLimit, SequentialUpload


@dataclass(eq=False, kw_only=True)
class Fitting(Selector):
    """Of some clients asked at random, those that lengthen the round least, up to a deadline.

    Nishio and Yonetani, "Client Selection for Federated Learning with Heterogeneous Resources in
    Mobile Edge", ICC 2019, Algorithm 3: `asked_share` of the free clients, and at least as many as
    there are slots, are asked for their resources; then whoever lengthens the estimated round least
    is added while the round stays under `deadline_s`.

    Differs from the paper:

    * clients are not asked: how long one takes is what its last update took. One nobody has heard
      from is thought to take `unseen_latency_s` or, by default, the median of those known
      (0 s where nobody is known);
    * in the paper clients compute side by side and upload one after the other. Here uploads overlap
      too, so a round is as long as its slowest client, and adding in order of latency is the greedy
      rule. With `sequential_upload_s` > 0 there is an upload of so many seconds per client on top,
      one at a time: the round so far, or the client's latency if that is longer, plus the upload.
      That, too, is least for the fastest client;
    * at most `slots` clients are added; the paper adds whoever fits;
    * the time to choose, to send the model out and to aggregate is not part of the round;
    * where none of those asked fits and nobody runs, the fastest of them is started all the same: a
      round of nobody would never end.

    From memory of the paper, not checked: a tenth is asked, the deadline is 180 s.
    """

    deadline_s: RoundLimit = 180.0
    asked_share: AskedShare = 0.1
    unseen_latency_s: Annotated[
        NotNegative | None, "of a client not seen yet; none: the median of those known"
    ] = None
    sequential_upload_s: SequentialUpload = 0.0

    def __post_init__(self) -> None:
        check(self)

    @property
    def needs(self) -> Traits:
        """Without a round to fit into everybody fits."""
        return frozenset({Trait.ROUNDS})

    def pick(self, view: View, slots: int, rng: np.random.Generator) -> Sequence[Assignment]:
        """Ask some, the fastest first."""
        slots = min(slots, len(view.free))
        if slots <= 0:
            return []
        num_asked = max(slots, ceil(self.asked_share * len(view.free)))
        asked = view.free.nth(
            choose(num_asked, len(view.free), rng)
        )  # in any order: ties are drawn
        latencies = self._latencies(view, asked)
        fastest = np.argsort(latencies, kind="stable")[:slots]
        num = int(np.count_nonzero(self._rounds(latencies[fastest]) < self.deadline_s))
        if num == 0 and not len(view.running):
            num = 1
        return [Assignment(client) for client in asked[fastest[:num]].tolist()]

    def terms(self, view: View, clients: Ids) -> Mapping[str, Floats]:
        """How long each is thought to take: the shorter, the better."""
        latencies = self._latencies(view, clients)
        return {"latency_s": latencies, "score": -latencies}

    def _rounds(self, latencies: Floats) -> Floats:
        """How long a round of the first, the first two, ... of ascending `latencies` takes.

        A round of k + 1 takes max(round of k, latency) + upload; less k uploads, that is a maximum.
        """
        uploads = self.sequential_upload_s * np.arange(len(latencies))
        waits: Floats = np.maximum.accumulate(latencies - uploads)
        return waits + uploads + self.sequential_upload_s

    def _latencies(self, view: View, clients: Ids) -> Floats:
        """How long each of `clients` is thought to take."""
        latencies = view.clients.latency_s[clients]
        unknown = np.isnan(latencies)
        if unknown.any():
            latencies[unknown] = self._unseen(view.clients.latency_s)
        return latencies

    def _unseen(self, latencies: Floats) -> float:
        if self.unseen_latency_s is not None:
            return self.unseen_latency_s
        known = latencies[~np.isnan(latencies)]
        return float(np.median(known)) if len(known) else 0.0

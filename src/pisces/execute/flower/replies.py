"""What a ClientApp says of its training, read from the metrics of its reply."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from reprlib import repr as shortened

from pisces.execute.flower.api import MetricRecord, RecordDict
from pisces.execute.flower.arrays import RecordError
from pisces.types import Report

log = logging.getLogger("pisces")

USUAL_LOSSES = ("train_loss", "train-loss", "loss")  # as Flower's own templates call it
LOSS_RMS, LOSS_LEFT = "loss-rms", "loss-left"  # as pisces.flower.Losses calls them


@dataclass(slots=True)
class Metrics:
    """Where to find what in a reply's metrics; says once what it does without.

    Pisces' utility asks for the root mean square of the losses (Eq. 2 of its paper). A ClientApp
    that knows nothing of that tells a mean, which takes its place: the two are equal where all
    samples have the same loss, and rank clients alike where losses are spread alike.
    """

    num_examples: str = "num-examples"
    loss: str | None = None  # none: the first of the usual names
    _said: set[str] = field(default_factory=set)

    def report(self, content: RecordDict) -> tuple[Report, MetricRecord]:
        """What it says, and the record it was said in."""
        record = self._record(content)
        loss, rms = self._loss(record), _number(record, LOSS_RMS)
        if rms is None and loss is not None:
            rms = abs(loss)
        left = _number(record, LOSS_LEFT)
        return Report(self._num_examples(record), loss, rms, loss_left=left), record

    def _record(self, content: RecordDict) -> MetricRecord:
        for record in content.metric_records.values():
            if self.num_examples in record:
                return record
        raise RecordError(f"no metric {self.num_examples!r}, by which updates are weighted")

    def _num_examples(self, record: MetricRecord) -> int:
        told = record[self.num_examples]
        is_whole = isinstance(told, int) or (isinstance(told, float) and told.is_integer())
        if not is_whole:
            raise RecordError(f"{self.num_examples} is {shortened(told)}, not a whole number")
        return int(told)  # type: ignore[arg-type]

    def _loss(self, record: MetricRecord) -> float | None:
        names = USUAL_LOSSES if self.loss is None else (self.loss,)
        name = next((name for name in names if _number(record, name) is not None), None)
        if name is None:
            self._say_once(
                "none",
                f"ClientApps tell no loss ({' or '.join(names)}) but {shortened(list(record))}: "
                "all count as having the usual one, so they are picked by examples and staleness "
                "alone. Name theirs: loss=...",
            )
            return None
        if LOSS_RMS not in record:
            self._say_once(
                "mean",
                f"ClientApps tell {name!r}, which is taken for the root mean square of the losses "
                "as well; pisces.flower.Losses tells both, and what "
                "training leaves, without which nobody's labels are doubted",
                logging.INFO,
            )
        return _number(record, name)

    def _say_once(self, about: str, words: str, level: int = logging.WARNING) -> None:
        if about not in self._said:
            self._said.add(about)
            log.log(level, words)


def _number(record: MetricRecord, name: str) -> float | None:
    told = record.get(name)
    return told if isinstance(told, int | float) else None

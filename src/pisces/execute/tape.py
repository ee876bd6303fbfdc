"""What the loop was told and what it said, in order: written down, or played again.

The loop is deterministic but for what it is told from outside. So a run goes on exactly if it is
told the same again. A tape first plays what a journal holds, holding the loop to what it said then,
and from the journal's end on records. Questions that are usually answered by "nothing new" are only
counted; an answer that says something stands in the journal with the count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pisces.errors import RunError
from pisces.execute.sound import check
from pisces.record.journal import Journal
from pisces.record.segment import Place, Record


class Tape:
    """Plays a journal to its end, then records to it."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.is_over = False  # the run is: nothing is played or recorded any more
        self._records: Iterator[Record] = iter(())
        self._next: Record | None = None
        self._place: Place | None = None  # while it plays
        self._num_asked = 0  # questions since the last record

    @property
    def is_at_end(self) -> bool:
        """Was all played that was recorded before?"""
        return self._next is None

    @property
    def plays(self) -> bool:
        """Is it still told what was recorded before?"""
        return not (self.is_at_end or self.is_over)

    @property
    def state(self) -> list[int]:
        """How far it is."""
        return [*(self._place or self.journal.end), self._num_asked]

    @property
    def segment(self) -> int:
        """Of the journal, in which it is."""
        return self.state[0]

    def go_to(self, state: Sequence[int] = (0, 0, 0, 0)) -> None:
        """Play what was recorded behind there, all of which is looked through for damage first."""
        *place, self._num_asked = state
        self._place = Place(*place)
        self.journal.end = self.journal.check(self._place, check)
        self._records = self.journal.records(self._place)
        self._step()

    # --- telling ----------------------------------------------------------------------------------

    def told(self, kind: str) -> Record | None:
        """What the loop was told here before, if it was."""
        return self._taken(kind) if self.plays else None

    def answered(self, kind: str) -> Record | None:
        """What this question was answered with before; if with nothing, it is counted."""
        if self._next is None or self.is_over or not self._is_answer(self._next, kind):
            self._num_asked += 1
            return None
        return self._taken(kind)

    def tell(
        self, kind: str, facts: Mapping[str, Any], contents: Sequence[memoryview] = ()
    ) -> None:
        """Record what the loop is told now, also in answer to a question not counted yet."""
        if not self.is_over:
            self.journal.append({"kind": kind, "asked": self._num_asked, **facts}, contents)
            self._num_asked = 0

    def say(self, kind: str, facts: Mapping[str, Any]) -> bool:
        """Record what the loop says, or hold it to what it said; is it to be passed on?"""
        if not self.plays:
            self.tell(kind, facts)
            return True
        then = self._taken(kind).facts
        for key, now in facts.items():
            self.hold(f"{kind}: {key}", then.get(key), now)
        return False

    def hold(self, name: str, then: Any, now: Any) -> None:
        """Refuse to go on where something is not as it was."""
        if then != now:
            was = repr(then)[:200]  # whatever it is
            raise RunError(_otherwise(f"{name} was {was}, and is {now!r}"))

    def _is_answer(self, record: Record, kind: str) -> bool:
        facts = record.facts
        return bool(facts["kind"] == kind and facts["asked"] == self._num_asked)

    def _taken(self, kind: str) -> Record:
        record = self._next
        assert record is not None
        facts = record.facts
        if (facts["kind"], facts["asked"]) != (kind, self._num_asked):
            raise RunError(_otherwise(f"now comes {kind!r}, and then it was {facts['kind']!r}"))
        self._place, self._num_asked = record.end, 0
        self._step()
        return record

    def _step(self) -> None:
        self._next = next(self._records, None)
        if self._next is None:
            self._place = None

    # --- keeping ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Where it ends it goes on from now on."""
        self.journal.settle()

    def sync(self) -> None:
        """See to it that what was recorded is on the disk."""
        self.journal.sync()

    def saved(self, segments: Sequence[int]) -> None:
        """A checkpoint was made: begin a segment, remove those before the first one needed."""
        if not self.plays:
            self.journal.begin_next()
        self.journal.remove_before(segments[0])

    def close(self) -> None:
        """Close the journal."""
        self.journal.close()


def _otherwise(what: str) -> str:
    return (
        f"the run does not go as its journal says ({what}): go on with the Pisces, settings and "
        "machine it was made with, or remove its journal to go on from the last checkpoint without "
        "what came after it"
    )

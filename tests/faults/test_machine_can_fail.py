"""Houses with one broken law each: the machine finds every one, or its silence means nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase
from mishaps import play
from runs import START

from pisces.clients.manager import ClientManager
from pisces.clients.table import ClientTable
from pisces.coordinator import Coordinator
from pisces.types import Arrived, Entry, Failed, Left, State, Task

arrive, fail, start = ClientManager._arrive, ClientManager._fail, ClientManager.start
restore, advance = ClientManager.restore, ClientManager.advance


def takes_a_result_twice(self: Any, event: Arrived, wanted: Callable[..., bool]) -> list[Entry]:
    past = self.__dict__.setdefault("past", {})
    past |= {i: (replace(task, weights=START), at) for i, (task, at) in self.running.items()}
    if event.task_id in past and event.task_id not in self.running:
        task, at = self.running[event.task_id] = past[event.task_id]
        self._running_columns.add(task, at)
    return arrive(self, event, wanted)


def takes_anybodys_result(self: Any, task_id: int, client: int) -> bool:
    return task_id in self.running


def loses_a_seat(self: Any, event: Failed) -> Entry:
    runs = event.task_id is not None and self._runs(event.task_id, event.client)
    return event if runs else fail(self, event)


def leaves_with_its_seat(self: Any, event: Left) -> Entry:
    if 0 <= event.client < self.table.num_clients:
        self.table.leave(event.client)
    return replace(event, task_id=None)


def empties_the_buffer_without_a_version(self: Any) -> None:
    self._manager.empty_buffer()


def forgets_who_is_free(self: Any, client: int) -> None:
    self._rows.running[client] = False


def forgets_the_buffer(self: Any, state: State) -> None:
    restore(self, state)
    for update in self.empty_buffer():
        del update


def keeps_every_version(self: Any, task: Task, at: float) -> Any:
    self.__dict__.setdefault("kept", []).append(task)
    return start(self, task, at)


def waits_for_ever(self: Any) -> None:
    """Where a buffer can no longer fill."""


def counts_two_versions(self: Any, *args: Any) -> Any:
    self.version += 1
    return advance(self, *args)


# Whose verb does what instead, and which law is found broken.
BROKEN: list[tuple[type, str, Callable[..., Any], str]] = [
    (ClientManager, "_arrive", takes_a_result_twice, "it ended twice"),
    (ClientManager, "_runs", takes_anybodys_result, "nobody is given two tasks|will end"),
    (ClientManager, "_fail", loses_a_seat, "the log tells who runs|it ended twice"),
    (ClientManager, "_leave", leaves_with_its_seat, "who leaves takes its task along"),
    (Coordinator, "_aggregate", empties_the_buffer_without_a_version, "the log tells what waits"),
    (ClientTable, "end", forgets_who_is_free, "the table tells who is free"),
    (ClientManager, "restore", forgets_the_buffer, "the log tells what waits"),
    (ClientManager, "start", keeps_every_version, "are kept for nobody"),
    (Coordinator, "_mend_dead_end", waits_for_ever, "no version in"),
    (ClientManager, "advance", counts_two_versions, "versions count up by one"),
]


def look_for_it(num: int) -> None:
    """In so many scenarios, as they come: what is broken need not be shown in the simplest way."""
    quickly = {"phases": [Phase.generate], "report_multiple_bugs": False, "database": None}
    play(("fedbuff", {"buffer_size": 3}), 0, num, suppress_health_check=[*HealthCheck], **quickly)


def test_the_house_as_it_is_passes() -> None:
    look_for_it(10)


@pytest.mark.parametrize(
    ("whose", "verb", "does", "law"), BROKEN, ids=[row[2].__name__ for row in BROKEN]
)
def test_a_broken_law_is_found(
    whose: type, verb: str, does: Callable[..., Any], law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whose, verb, does)
    with pytest.raises(AssertionError, match=law):
        look_for_it(60)

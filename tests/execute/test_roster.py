"""Names keep their numbers, whatever happens to the server."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from pisces.errors import RunError
from pisces.execute.roster import NumberError, Roster


def test_numbers_by_wish_or_in_turn() -> None:
    roster = Roster(max_clients=4)
    assert roster.number_of("a", 1) == 1
    assert [roster.number_of(name) for name in "bcb"] == [0, 2, 0]
    assert roster.number_of("a") == roster.number_of("a", 1) == 1
    with pytest.raises(NumberError, match="it is client 1 of this run, and wished to be 3"):
        roster.number_of("a", 3)
    with pytest.raises(
        NumberError, match="another client is number 0 of this run: wish for another"
    ):
        roster.number_of("d", 0)
    with pytest.raises(NumberError, match="client 4 would be beyond the 4"):
        roster.number_of("d", 4)
    assert roster.number_of("d") == 3
    with pytest.raises(NumberError, match="client 4 would be beyond the 4"):
        roster.number_of("e")
    assert roster.names == {0: "b", 1: "a", 2: "c", 3: "d"}


def test_what_is_written_is_known_to_the_next_server(tmp_path: Path) -> None:
    path = tmp_path / "clients.jsonl"
    roster = Roster(path)
    roster.number_of("a", 5)
    roster.sync()
    roster.number_of("lost")  # killed before it was written
    again = Roster(path)
    assert (again.run, again.names) == (roster.run, {5: "a"})
    again.number_of("b")
    again.sync()
    again.sync()
    assert Roster(path).names == {0: "b", 5: "a"}


def test_a_file_cut_anywhere_is_read_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "clients.jsonl"
    roster = Roster(path)
    roster.number_of("a")
    roster.sync()
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        after = Roster(path)
        after.number_of("a")
        after.number_of("b")
        after.sync()
        again = Roster(path)
        assert (again.run, again.names) == (after.run, {0: "a", 1: "b"}), length


@pytest.mark.parametrize(
    "line", ["{}", "[]", "x", '{"client": -1, "name": "a"}', '{"client": 1, "name": 2}', "\xff"]
)
def test_another_file_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "clients.jsonl"
    path.write_bytes(line.encode("latin-1") + b"\n")
    with pytest.raises(RunError, match="is not what a server writes"):
        Roster(path)


def test_a_folder_that_is_gone_is_an_error_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be written"):
        Roster(tmp_path / "gone/clients.jsonl").sync()


def test_no_number_is_lost_between_threads(tmp_path: Path) -> None:
    path = tmp_path / "clients.jsonl"
    roster = Roster(path)
    names = [f"c{number}" for number in range(2000)]
    giving = threading.Thread(target=lambda: [roster.number_of(name) for name in names])
    giving.start()
    while giving.is_alive():
        roster.sync()
    roster.sync()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [line["name"] for line in lines[1:]] == names


def test_a_disk_that_refuses_loses_no_name(tmp_path: Path) -> None:
    roster = Roster(tmp_path / "missing" / "clients.jsonl")
    assert roster.number_of("a") == 0
    with pytest.raises(RunError, match="cannot be written"):
        roster.sync()
    (tmp_path / "missing").mkdir()
    roster.sync()
    again = Roster(tmp_path / "missing" / "clients.jsonl")
    assert (again.run, again.number_of("a")) == (roster.run, 0)

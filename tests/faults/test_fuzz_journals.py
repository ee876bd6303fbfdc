"""Journals that are damaged, or made up by somebody who knows how to make a checksum right."""

from __future__ import annotations

import json
import os
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzzing import LONGEST, MANY, changed_tree, contents, damaged_bytes, few, little_memory
from hypothesis import given
from hypothesis import strategies as st
from journals import Clientele, Federation

from pisces.errors import RunError
from pisces.record.segment import HEAD, Segment, framed

NUM = 100


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """A run killed when there was much in its journal and no checkpoint yet."""
    run = Federation(tmp_path_factory.mktemp("made") / "run", checkpoints=None)
    assert run.serve(80) is None
    return run


def copy_of(killed: Federation) -> Federation:
    folder = killed.folder.parent / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(killed.folder, folder)
    # Clients that know nothing: what they were told is not what a made-up journal says.
    return replace(killed, folder=folder, clients=Clientele())


def go_on(run: Federation) -> str | None:
    """It goes on, or is refused in a line; returns that."""
    before = contents(run.folder / "journal")
    try:
        with little_memory():
            run.serve()
    except RunError as error:
        said = str(error)
        assert "\n" not in said
        assert len(said) <= LONGEST
        known = (str(run.folder / "journal"), "as its journal says", "it is of another run")
        assert any(each in said for each in known), said
        assert contents(run.folder / "journal") == before
        return said
    return None


def records_of(path: Path) -> list[tuple[Any, bytes]]:
    """All of a segment, the first one, which says what it follows, included."""
    segment = Segment(path, 1)
    records = [({"follows": list(segment.follows or ()), "made": segment.made}, b"")]
    records += [(record.facts, record.content) for record in segment.records()]
    segment.close()
    return records


def write(path: Path, records: list[tuple[Any, bytes]]) -> None:
    """A segment of these, whatever they are, that is whole as far as can be seen."""
    content, chain = HEAD, 0
    for facts, behind in records:
        text = json.dumps(facts).encode()
        frame, chain = framed(text, [memoryview(behind)], chain)
        content += frame + text + behind
    path.write_bytes(content)


def fuzz_bytes(killed: Federation, data: st.DataObject) -> None:
    run = copy_of(killed)
    (path,) = run.segments
    path.write_bytes(data.draw(damaged_bytes(path.read_bytes())))
    go_on(run)


@given(data=st.data())
@few(NUM)
def test_damaged_journals_are_refused(killed: Federation, data: st.DataObject) -> None:
    fuzz_bytes(killed, data)


@pytest.mark.long
@given(data=st.data())
@few(NUM * MANY)
def test_many_damaged_journals(killed: Federation, data: st.DataObject) -> None:
    fuzz_bytes(killed, data)


def fuzz_records(killed: Federation, data: st.DataObject) -> None:
    run = copy_of(killed)
    (path,) = run.segments
    records = records_of(path)
    for _ in range(data.draw(st.integers(1, 2))):
        number = data.draw(st.integers(0, len(records) - 1))
        facts, behind = records[number]
        if data.draw(st.integers(0, 9)) == 0:
            behind = data.draw(damaged_bytes(behind))
        records[number] = (data.draw(changed_tree(facts)), behind)
    write(path, records)
    go_on(run)


@given(data=st.data())
@few(NUM)
def test_made_up_journals_are_refused(killed: Federation, data: st.DataObject) -> None:
    fuzz_records(killed, data)


@pytest.mark.long
@given(data=st.data())
@few(NUM * MANY)
def test_many_made_up_journals(killed: Federation, data: st.DataObject) -> None:
    fuzz_records(killed, data)


# --- one by one -----------------------------------------------------------------------------------


def wrong(killed: Federation, number: int, facts: Any, behind: bytes | None = None) -> str:
    """What is said of a record with other facts; its file and byte must be named."""
    run = copy_of(killed)
    (path,) = run.segments
    records = records_of(path)
    write(path, records[:number])
    at = path.stat().st_size
    records[number] = (facts, records[number][1] if behind is None else behind)
    write(path, records)
    said = go_on(run)
    assert said is not None
    assert f"{path} is not what it should be at byte {at} (" in said
    return said


@pytest.mark.parametrize("facts", [{}, [], None, 7, {"kind": "x"}, {"kind": []}, {"kind": "turn"}])
def test_records_of_no_kind_are_named(killed: Federation, facts: Any) -> None:
    for number in (0, 1, 5):
        wrong(killed, number, facts)


@pytest.mark.parametrize("key", ["now", "events", "asked"])
def test_what_a_turn_must_say_is_missed(killed: Federation, key: str) -> None:
    number, facts = 1, records_of(killed.segments[0])[1][0]
    assert facts["kind"] == "turn"
    for odd in (None, "x", [1], {"x": 1}, True):
        assert key in wrong(killed, number, {**facts, key: odd})
    wrong(killed, number, {k: v for k, v in facts.items() if k != key})


@pytest.mark.parametrize("made", [{"seed": "y" * 3000}, {"y" * 3000: 1}, {"seed": {"x": []}}, {}])
def test_a_journal_of_another_run_says_so_in_a_line(killed: Federation, made: Any) -> None:
    run = copy_of(killed)
    (path,) = run.segments
    ((facts, _), *rest) = records_of(path)
    write(path, [({**facts, "made": made}, b""), *rest])
    assert "it is of another run" in str(go_on(run))


def test_results_of_what_was_not_looked_at_are_refused(killed: Federation) -> None:
    records = records_of(killed.segments[0])
    number = next(n for n, (facts, _) in enumerate(records) if facts.get("kind") == "evaluated")
    facts = records[number][0]
    for results in ([[0.0, 0]], [7], None, [[0.0, 0, {"accuracy": "high"}]]):
        assert "no results" in wrong(killed, number, {**facts, "results": results})
    run = copy_of(killed)
    records[number] = ({**facts, "results": [[0.0, 77, {"accuracy": 1.0}]]}, b"")
    write(run.segments[0], records)
    assert "evaluated: what was looked at was [[0.0, 77]]" in str(go_on(run))


def test_a_pipe_in_place_of_a_journal_is_no_wait_without_end(killed: Federation) -> None:
    run = copy_of(killed)
    (path,) = run.segments
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(RunError, match=f"cannot read {path}: it is no file"):
        run.serve()


def test_a_tensor_larger_than_what_is_there_takes_no_memory(killed: Federation) -> None:
    records = records_of(killed.segments[0])
    number = next(n for n, (_, behind) in enumerate(records) if behind)
    for shape in ([10**13], [1 << 40, 1 << 40], [-1], [0, 1 << 62, 1 << 62], ["x"], 4, [5], []):
        facts = deepcopy(records[number][0])
        next(e for e in facts["events"] if "weights" in e)["weights"]["shape"] = shape
        assert "shape" in (said := wrong(killed, number, facts)) or "bytes behind it" in said
    for dtype in ("qint8", "nothing", "float16", "nn", None, ["float32"]):
        facts = deepcopy(records[number][0])
        next(e for e in facts["events"] if "weights" in e)["weights"]["dtype"] = dtype
        assert "dtype" in (said := wrong(killed, number, facts)) or "bytes behind it" in said
    assert "bytes behind it" in wrong(killed, number, records[number][0], b"")

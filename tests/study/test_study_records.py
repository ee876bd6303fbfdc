"""What is kept of a run, and how it stands in results.json."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pisces import build
from pisces.errors import RunError
from pisces.record.reader import Run
from pisces.study import plan, records
from pisces.study.facts import Facts
from pisces.study.records import MOST_POINTS, Record, lent, record_of, rounded
from pisces.study.runs import Wish, planned


def test_records_come_back_as_they_were(tmp_path: Path, record: Callable[..., Record]) -> None:
    kept = [record("fast", 1, 20.5), record("slow", 2, (50.0, math.inf), clients=None, x=None)]
    kept.append(record("slow", 3, (-math.inf, math.inf), losses=None))
    records.save(tmp_path, kept)
    assert records.load(tmp_path) == kept


def test_results_have_a_line_per_run(tmp_path: Path, record: Callable[..., Record]) -> None:
    records.save(tmp_path, [record("fast", seed, 20.0) for seed in (1, 2, 3)])
    lines = (tmp_path / "results.json").read_text().splitlines()
    assert len(lines) == 3 + 2
    assert json.loads(lines[1].rstrip(","))["seed"] == 1


def test_there_may_be_no_results_yet(tmp_path: Path) -> None:
    assert records.load(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"runs": [{"case": "a"}]}',
        '{"runs": [3]}',
        '{"runs": 3}',
        "[]",
        b"\xff".decode("latin-1"),
    ],
)
def test_damaged_results_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(RunError, match=r"results\.json"):
        records.load(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"seed":2', '"seed":"2"', "seed"),
        ('"wall_s":2.5', '"wall_s":[]', "wall_s"),
        ('"times":[0,10,20.5]', '"times":[0,10]', "times and values must be of one length"),
        ('"times":[0,10,20.5]', '"times":[0,10,"x"]', "times"),
        ('"times":[0,10,20.5]', '"times":7', "not iterable"),
        ('"versions":[1,2]', '"versions":[1]', "versions_at and versions must be of one length"),
        ('"num_started":[1,2]', '"num_started":[1]', "clients must have columns of one length"),
        ('"honest":[1.5,1.0]', '"honest":[]', "losses must have columns of one length"),
        ('"time_to_target":20', '"speed":20', "unknown measures: speed"),
        ('"time_to_target":20', '"time_to_target":[20,10]', "time_to_target"),
        ('"time_to_target":20', '"time_to_target":"20"', "time_to_target"),
        ('"time_to_target":20', '"time_to_target":[1,2,3]', "time_to_target"),
        ('"digest"', '"digets"', "digets"),
        ('"versions"', '"version"', "there is no 'versions'"),
    ],
)
def test_a_damaged_record_is_named_with_its_line(
    tmp_path: Path, record: Callable[..., Record], old: str, new: str, fault: str
) -> None:
    records.save(tmp_path, [record("fast", seed, 20) for seed in (1, 2, 3)])
    path = tmp_path / "results.json"
    lines = path.read_text().splitlines()
    assert old in lines[2]
    path.write_text("\n".join([*lines[:2], lines[2].replace(old, new), *lines[3:]]))
    with pytest.raises(RunError, match=r"results\.json, line 3: .*" + fault) as error:
        records.load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_line_that_is_no_json_is_named(tmp_path: Path, record: Callable[..., Record]) -> None:
    records.save(tmp_path, [record("fast", seed, 20) for seed in (1, 2, 3)])
    path = tmp_path / "results.json"
    path.write_text(path.read_text().replace('"seed":2', '"seed":'))
    with pytest.raises(RunError, match=r"results\.json, line 3"):
        records.load(tmp_path)


@pytest.mark.parametrize(
    ("value", "kept"),
    [(0.123456789, 0.12346), (1234567.0, 1234600), (5.0, 5), (math.inf, None), (None, None)],
)
def test_few_digits(value: float | None, kept: float | None) -> None:
    assert rounded(value) == kept
    assert type(rounded(5.0)) is int


WISH = Wish(build.resolved, lambda _config: ())
SUMMARY = {"made_with": "pisces 0 (abc), torch 1", "trained_by": "batched on cuda", "wall_s": 2.5}


def facts() -> Facts:
    """250 evaluations and versions; clients 0 and 1 report in turn, client 1 with odd losses."""
    times = np.arange(250.0)
    return Facts(
        metric="accuracy",
        target=0.9,
        concurrency=2,
        corrupted=frozenset([1]),
        end_s=249.0,
        times=times,
        values=times / 250,
        aggregated_at=times + 0.5,
        arrived_at=times,
        arrived_from=np.arange(250) % 2,
        losses=np.where(np.arange(250) % 2, 3.0, 1.0),
        staleness={0: [0, 2, 1]},
        num_examples={0: 10, 1: 20},
        num_started={0: 5},
        distrusted=frozenset(),
        running_s=400.0,
        buffered_s=0.0,
    )


def recorded(folder: Path, *pictures: plan.Picture, target: float = 0.9) -> Record:
    (folder / "events.jsonl").write_text('{"kind": "stopped", "at": 1.0, "reason": "time"}\n')
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    plans = planned(plan.load(folder), folder, WISH)
    return record_of(Run.open(folder), plans[0], replace(facts(), target=target), pictures)


@pytest.fixture
def made(folder: Path) -> Record:
    return recorded(folder, "aggregations", "involvement", "losses")


def test_what_no_picture_needs_is_not_kept(folder: Path) -> None:
    lean = recorded(folder, "curves", "bars", "sweep")
    assert (lean.clients, lean.losses, lean.versions, lean.versions_at) == (None, None, (), ())


def test_curves_are_thinned_and_keep_their_end(made: Record) -> None:
    # Every third of 250 points, and the last one, 249, which is the 84th third already.
    assert len(made.times) == len(made.values) == 84 <= MOST_POINTS
    assert (made.times[-1], made.values[-1]) == (249, 0.996)
    # Every tenth version, the 1st to the 241st, and the last.
    assert (len(made.versions), made.versions[-2:]) == (26, (241, 250))
    assert made.versions_at[-1] == 249.5


@pytest.mark.parametrize(("target", "met"), [(0.9, 225), (0.904, 226), (0.996, 249)])
def test_a_curve_shows_when_the_target_was_met(folder: Path, target: float, met: int) -> None:
    # 225 is one of every third, 226 is kept because it is the first to reach 226/250.
    kept = recorded(folder, "curves", target=target)
    reached = [t for t, v in zip(kept.times, kept.values, strict=True) if v and v >= target]
    assert reached[0] == met == kept.measures["time_to_target"][0]
    assert len(kept.times) == 84 + (met == 226)


def test_a_target_that_is_not_met_adds_nothing(folder: Path) -> None:
    assert len(recorded(folder, "curves", target=0.999).times) == 84


def test_clients_are_kept_of_the_first_seed(made: Record) -> None:
    assert made.clients is not None
    assert made.clients.num_examples == (10, 20)
    assert made.clients.num_started == (5, 0)
    assert made.clients.staleness_median == (1.0, None)


def test_losses_of_honest_and_corrupted_clients_apart(made: Record) -> None:
    assert made.losses is not None
    assert set(made.losses.honest) == {1}
    assert set(made.losses.corrupted) == {3}


EVERY: list[plan.Picture] = ["aggregations", "involvement"]


@pytest.mark.parametrize("pictures", [[], EVERY[:1], EVERY[1:], EVERY])
def test_a_record_is_lent_as_the_other_study_keeps_it(
    folder: Path, pictures: list[plan.Picture]
) -> None:
    run = replace(planned(plan.load(folder), folder, WISH)[0], variant="other", x=7.0)
    expected = replace(recorded(folder, *pictures), variant="other", x=7.0)
    assert lent(recorded(folder, *EVERY), run, pictures) == expected


@pytest.mark.parametrize("lacking", EVERY)
def test_a_record_that_lacks_what_a_picture_needs_is_not_lent(
    folder: Path, lacking: plan.Picture
) -> None:
    run = planned(plan.load(folder), folder, WISH)[0]
    assert lent(recorded(folder, *[p for p in EVERY if p != lacking]), run, EVERY) is None


def test_how_it_was_made_is_what_the_run_says(made: Record) -> None:
    # Whoever collects it may have another commit and other devices.
    assert {key: getattr(made, key) for key in SUMMARY} == SUMMARY

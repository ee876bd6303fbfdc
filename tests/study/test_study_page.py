"""The page of results and its pictures, from records alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from pisces.study import figures
from pisces.study.figures import draw
from pisces.study.material import Material
from pisces.study.page import Missing, Results, index, page
from pisces.study.plan import Claim, Study
from pisces.study.records import Clients, Losses, Record

MakeRecord = Callable[..., Record]


def some(record: MakeRecord) -> list[Record]:
    return [
        record(name, seed, time if seed < 3 else (50.0, math.inf), x=x)
        for name, time in (("fast", 10.0), ("slow", 20.0))
        for x in (10.0, 20.0)
        for seed in (1, 2, 3)
    ]


def test_the_page(study: Study, record: MakeRecord) -> None:
    missing = {"large": Missing(num_runs=20, seconds=1200.0, dataset="femnist")}
    text = page(Results("speed", study, some(record), {}, missing))
    assert text.startswith("# Speed\n\nThe paper (Figure 0): Fast is faster than slow.\n")
    assert "**Verdict: holds.** 1 of 1 claims hold: fast is faster (small at 10)" in text
    claim = "| fast is faster | small at 10 | 2x | 2.00x (? to ?) | 3 | >= 1.5, partly >= 1.0 |"
    assert claim + " holds |" in text
    assert text.count("| fast is faster |") == 1  # not what is not measured
    assert "\nNot measured yet: 1 more.\n" in text
    # Seed 3 did not get there, which leaves the median of three as it is.
    assert "| slow | 10 | 3 | 2.00x (? to ?) | 20 s (20 s to ?) | 0.95 | 0 |" in text
    assert "*Not run: runs to make: 20, about 1,200 s one at a time" in text
    assert "Needs the dataset femnist (`pisces data list` says where it is)" in text
    assert "- 12 runs, seeds 1, 2, 3; wall time together 30 s" in text


@pytest.mark.parametrize(
    ("made_with", "told"),
    [("pisces 0 (0a1b2c3+), torch 2+cu13", True), ("pisces 0 (0a1b2c3), torch 2+cu13", False)],
)
def test_the_page_says_what_a_plus_means(
    study: Study, record: MakeRecord, made_with: str, told: bool
) -> None:
    text = page(Results("speed", study, [record("fast", 1, 10.0, made_with=made_with)], {}, {}))
    assert ("\n\nA + behind a commit: with changes that were not committed.\n" in text) == told


def test_the_page_says_in_which_steps_times_come(study: Study, record: MakeRecord) -> None:
    told = "Target: accuracy 0.9, evaluated every 20 s: times to target come in such steps.\n"
    assert told in page(Results("speed", study, some(record), {}, {}, every_s={"small": 20.0}))
    by_version = page(Results("speed", study, some(record), {}, {}, every_s={"small": math.inf}))
    assert "Target: accuracy 0.9.\n" in by_version


@pytest.mark.parametrize(
    ("where", "command"),
    [
        (Path("experiments"), "pisces reproduce speed"),
        (Path("experiments").resolve(), "pisces reproduce speed"),
        (Path("my own"), "pisces reproduce speed --folder 'my own'"),
    ],
)
def test_commands_on_the_page_work_as_they_are(
    study: Study, record: MakeRecord, where: Path, command: str
) -> None:
    missing = {"large": Missing(num_runs=20, seconds=1200.0, dataset="femnist")}
    text = page(Results("speed", study, some(record), {}, missing, folder=where))
    assert f": `{command} --case large`." in text
    assert f"\n- `{command}`\n" in text
    trial = page(Results("speed", study, some(record), {}, {}, smoke=True, folder=where))
    assert f"\n- `{command} --smoke`\n" in trial


def test_the_page_says_what_open_means(study: Study, record: MakeRecord) -> None:
    records = [record("fast", seed, 100.0) for seed in (1, 2, 3)]
    records += [record("slow", seed, (50.0, math.inf)) for seed in (1, 2, 3)]
    text = page(Results("speed", study, records, {}, {}))
    assert "**Verdict: open.** claims left open: 1." in text
    assert "| 3 | >= 1.5, partly >= 1.0 | open |" in text
    assert "\nOpen: fewer than 3 seeds, or runs that never met their target" in text
    few = page(Results("speed", study, [r for r in records if r.seed < 3], {}, {}))
    assert "**Verdict: open.** claims left open: 1, for fewer than 3 seeds." in few
    assert "| 2 | >= 1.5, partly >= 1.0 | open: fewer than 3 seeds |" in few
    assert "Open:" not in page(Results("speed", study, some(record), {}, {}))


def test_the_page_says_which_seed_judges(study: Study, record: MakeRecord) -> None:
    changes = {"compare": "value", "over": None, "by": "worst", "holds": "<= 15", "partly": None}
    never = Claim.model_validate({**study.claim[0].model_dump(), **changes})
    records = [record("fast", seed, time) for seed, time in enumerate((10.0, 12.0, 16.0))]
    text = page(Results("speed", study.model_copy(update={"claim": [never]}), records, {}, {}))
    assert "| small at 10 | 2x | at worst 16 s | 3 | <= 15 | does not hold |" in text
    assert "\n\nAt worst: not the median but the worst seed" in text
    assert "At worst:" not in page(Results("speed", study, some(record), {}, {}))


def test_a_trial_says_that_it_is_one(study: Study, record: MakeRecord) -> None:
    real = study.case[0].model_copy(update={"about": "Real data."})
    study = study.model_copy(update={"case": [real, *study.case[1:]]})
    assert "Real data." in page(Results("speed", study, some(record), {}, {}))
    text = page(Results("speed", study, some(record), {}, {}, smoke=True))
    assert "*A trial on digits: the numbers mean nothing.*" in text
    assert "Verdict" not in text
    assert "Real data." not in text
    assert "## small\n\nHere: digits, with a small model.\n" in text
    over_all = index([("speed", study, some(record))], smoke=True)
    assert "| [Speed](speed/RESULTS.md) | Figure 0 | **none** | a trial on digits |" in over_all


def test_a_study_need_not_be_of_a_paper(study: Study, record: MakeRecord) -> None:
    claim = study.claim[0].model_copy(update={"paper": None})
    own = study.model_copy(update={"paper": None, "claim": [claim]})
    text = page(Results("speed", own, some(record), {}, {})) + index([("speed", own, some(record))])
    assert "paper" not in text
    assert text.startswith("# Speed\n\nFast is faster than slow.\n")
    assert "| fast is faster | small at 10 | 2.00x (? to ?) | 3 |" in text
    assert "# Studies, measured\n" in text
    assert "| [Speed](speed/RESULTS.md) | **holds** |" in text
    both = index([("speed", own, some(record)), ("other", study, [])])
    assert "| [Speed](speed/RESULTS.md) |  | **holds** |" in both


@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
def test_pictures_of_one_seed_speak_of_no_median(
    study: Study,
    record: MakeRecord,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seeds: tuple[int, ...],
) -> None:
    drawn: dict[str, Figure] = {}
    monkeypatch.setattr(
        figures, "save", lambda figure, path: drawn.update({path.stem.split("-")[1]: figure})
    )
    draw(study, study.case[0], [r for r in some(record) if r.seed in seeds], tmp_path)
    over_seeds = {name for name, one in drawn.items() if "median over seeds" in one.get_suptitle()}
    all_over_seeds = {"curves", "bars", "sweep", "aggregations", "losses"}
    assert over_seeds == (all_over_seeds if len(seeds) > 1 else set())
    assert ("one seed" in drawn["curves"].get_suptitle()) == (len(seeds) == 1)
    assert "hatched: median not reached" in drawn["bars"].get_suptitle()
    assert drawn["sweep"].axes[0].get_title() == "time to target (s)"


@pytest.mark.parametrize("is_trial", [True, False])
def test_pictures_of_a_trial_say_so(
    study: Study,
    record: MakeRecord,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_trial: bool,
) -> None:
    titles: list[str] = []
    monkeypatch.setattr(figures, "save", lambda figure, _path: titles.append(figure.get_suptitle()))
    drawn = draw(study, study.case[0], some(record), tmp_path, is_trial=is_trial)
    assert len(titles) == len(drawn) == len(study.figures)
    assert {title.startswith("a trial on digits: ") for title in titles} == {is_trial}
    assert {"a trial on digits" in one.caption for one in drawn} == {is_trial}


def test_pictures_are_drawn_and_shown(study: Study, record: MakeRecord, tmp_path: Path) -> None:
    records = some(record)
    drawn = draw(study, study.case[0], records, tmp_path / "figures")
    assert [one.path.name for one in drawn] == [f"small-{kind}.png" for kind in study.figures]
    assert all(one.path.read_bytes().startswith(b"\x89PNG") for one in drawn)
    text = page(Results("speed", study, records, {"small": drawn}, {}))
    assert "![the metric over time (small)](figures/small-curves.png)" in text
    assert "## large" not in text  # nothing of it was run, and nothing is left


def test_a_variant_has_one_colour_on_all_pictures(study: Study, record: MakeRecord) -> None:
    small, large = study.case
    own = large.model_copy(update={"variant": list(reversed(study.variant))[:1]})
    study = study.model_copy(update={"case": [small, own]})
    styles = [Material(study, case, []).style("slow") for case in study.case]
    assert styles[0] == styles[1] != Material(study, own, []).style("fast")


def test_sizes_that_are_all_the_same_make_no_picture(
    study: Study, record: MakeRecord, tmp_path: Path
) -> None:
    equal = Clients((4, 4), (1, 2), (0, None), (0.5, None), (1, None))
    picture = tmp_path / "small-involvement.png"
    draw(study, study.case[0], [record("fast", 1, 10.0)], tmp_path)
    assert picture.exists()
    draw(study, study.case[0], [record("fast", 1, 10.0, clients=equal)], tmp_path)
    assert not picture.exists()  # nor the one of before


def test_losses_end_where_there_are_none_any_more(
    study: Study, record: MakeRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "save", lambda figure, _path: drawn.append(figure))
    until = [Losses((5, 15, 25), (1, 1, 1), column) for column in ((2, 4, None), (3, None, None))]
    records = [record("fast", seed, 10.0, losses=part) for seed, part in enumerate(until)]
    only = study.model_copy(update={"figures": ["losses"]})
    draw(only, study.case[0], records, tmp_path)
    _, corrupted = drawn[0].axes[0].get_lines()
    assert corrupted.get_xydata().tolist() == [[5, 2.5], [15, 4]]  # the second has ended at 5


def test_what_was_not_kept_is_not_drawn(study: Study, record: MakeRecord, tmp_path: Path) -> None:
    records = [record("fast", 1, 10.0, clients=None, losses=None)]
    names = {one.path.name for one in draw(study, study.case[0], records, tmp_path)}
    assert names == {f"small-{k}.png" for k in ("curves", "bars", "aggregations")}


def test_the_index_has_a_line_per_study(study: Study, record: MakeRecord) -> None:
    text = index([("speed", study, some(record)), ("other", study, [])])
    assert text.count("](") == 1  # no links but to pages that are beside it
    assert "| [Speed](speed/RESULTS.md) | Figure 0 | **holds** | 1 of 1 claims hold" in text
    assert "| Speed | Figure 0 | **not measured** |" in text  # it has no page yet
    silent = study.model_copy(update={"claim": []})
    assert "| **no claims** |" in index([("silent", silent, some(record))])

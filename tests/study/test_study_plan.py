"""Study files: what they may say, and which runs they ask for."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pisces import build, config
from pisces.errors import ConfigError
from pisces.names import REVISIONS
from pisces.study import plan
from pisces.study.runs import Wish, config_file, digest, planned

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
REAL = sorted(plan.find(EXPERIMENTS))
NOT_IN_IT = ("guard", "hostile", "tuning")  # the paper
WISH = Wish(build.resolved, lambda _config: ())


def test_every_case_runs_every_variant_at_every_point_with_every_seed(folder: Path) -> None:
    runs = planned(plan.load(folder), folder, WISH)
    small = [run for run in runs if run.case == "small"]
    assert len(small) == 2 * 2 * 2
    assert len(runs) - len(small) == 2 * 2 * 5  # five seeds unless said otherwise
    assert len({run.key for run in runs}) == len({run.folder for run in runs}) == len(runs)
    assert [run.seed for run in small] == [1] * 4 + [2] * 4  # whole seeds, to be compared early
    assert {run.is_first for run in small if run.seed == 2} == {False}


def test_a_variant_and_a_point_change_the_config(folder: Path) -> None:
    runs = {run.key: run for run in planned(plan.load(folder), folder, WISH)}
    slow = runs["small", "slow", 20.0, 2].config
    assert (slow.protocol, slow.train.epochs, slow.clients.count, slow.seed) == ("fedavg", 2, 20, 2)
    assert (slow.clients.concurrency, slow.stop.time_s) == (5, 50.0)  # of the file
    fast = runs["small", "fast", 10.0, 1].config
    assert (fast.protocol, fast.train.epochs, fast.clients.count) == ("pisces", 5, 10)
    assert fast.protocols["pisces"]["selection_penalty"] == 0.5  # spelled out
    large = runs["large", "fast", 20.0, 1].config
    assert large.clients.concurrency == 7  # of the case
    assert large.clients.count == 20  # points have the last word


def test_seeds_cases_and_the_small_size_can_be_asked_for(folder: Path) -> None:
    study = plan.load(folder)
    runs = planned(study, folder, replace(WISH, seeds=[7], cases=["large"], smoke=True))
    assert {(run.case, run.seed) for run in runs} == {("large", 7)}
    assert {run.config.data.dataset for run in runs} == {"digits"}
    assert {run.config.clients.count for run in runs} == {10, 20}  # points have the last word


def test_a_study_may_have_seeds_of_its_own(folder: Path) -> None:
    study = plan.load(folder).model_copy(update={"first_seed": 101})
    runs = planned(study, folder, WISH)
    assert {run.seed for run in runs if run.case == "small"} == {101, 102}
    # Counted from its first one: what was chosen on them is never chosen on another study's.
    asked = planned(study, folder, replace(WISH, seeds=[1, 7]))
    assert {run.seed for run in asked} == {101, 107}
    assert {run.seed for run in asked if run.is_first} == {101}


def test_the_digest_knows_what_makes_a_run() -> None:
    plain = digest(config.parse(""))
    same = (
        *("[train]\ndevice = 'cpu'\nworkers = 3", "[clients]\ncount = 100", "[data]\nfolder='x'"),
        "[hostile]\nlabels = 'shifted'",  # of nobody
    )
    assert {digest(config.parse(text)) for text in same} == {plain}
    others = (
        "seed = 2",
        "[latency]\nkind = 'constant'",  # at its defaults, as the other kind is
        "[clients]\ncount = 99",
        "[protocols.pisces]\nexploration = 0.9",
        "[hostile]\nshare = 0.1\nlabels = 'shifted'",
    )
    assert len({plain, *(digest(config.parse(text)) for text in others)}) == 6


def test_every_seed_has_a_digest_of_its_own(folder: Path) -> None:
    runs = planned(plan.load(folder), folder, replace(WISH, seeds=[0, 1, 2, 3], cases=["small"]))
    assert len({run.digest for run in runs}) == len(runs) == 4 * 2 * 2


def test_the_digest_changes_with_a_default() -> None:
    class Later(config.Config):
        tick_s: float = 5.0

    class Grown(config.Config):
        patience: int = 3  # a key that there was not

    assert len({digest(config.parse("")), digest(Later()), digest(Grown())}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("target = 0.9", "targt = 0.9"),
            "case 'small'.targt: unknown key; did you mean case.target?",
        ),
        (('over = "slow"', 'over = "slwo"'), "did you mean 'slow'?"),
        (('"small", "large"', '"small", "lrge"'), "did you mean 'large'?"),
        (("at = 10", "at = 15"), "must be one of [10.0, 20.0], not 15.0"),
        (("at = 10", "at = [10, 15]"), "must be one of [10.0, 20.0], not 15.0"),
        (("at = 10", ""), "must be one of [10.0, 20.0], not None"),
        (("at = 10", "at = []"), "claim 1.at: must name at least one, and each once, not []"),
        (("at = 10", "at = [10, 10]"), "at least one, and each once, not [10.0, 10.0]"),
        (("at = 10", 'at = ["x"]'), "claim 1.at: must be a valid number, not 'x'"),
        (('holds = ">= 1.5"', 'holds = "> 1.5"'), "claim 1.holds"),
        (('partly = ">= 1.0"', 'partly = "<= 1.0"'), "must look the same way"),
        (('over = "slow"', ""), "do not go together"),
        (("at = 10", 'at = 10\nby = "worst"'), "by = 'worst' and compare = 'speedup' do not go"),
        (
            ("at = 10", 'at = 10\nby = "best"'),
            "claim 1.by: must be 'median' or 'worst', not 'best'",
        ),
        (('"time_to_target"', '"time"'), "must be one of time_to_target"),
        (('"time_to_target"', '"time_to_traget"'), "did you mean 'time_to_target'?"),
        (("axis", 'measures = ["finale"]\naxis'), "did you mean 'final'?"),
        (('protocol = "fedavg"\n', ""), "variant 'slow'.protocol: this key is needed"),
        (('name = "slow"\nprotocol = "fedavg"\n', ""), "variant 2.name: this key is needed"),
        (('reference = "fast"', 'reference = "faster"'), "did you mean 'fast'?"),
        (('name = "large"', 'name = "small"'), "different names"),
        (('name = "large"', 'name = "../up"'), "case '../up'.name"),
        (('name = "slow"', 'name = "fast"'), "variants must have different names, not fast, fast"),
        (("x = 20", "x = 10"), "points must have different x, not 10, 10"),
        (('of = "fast"', "of = []"), "claim 1.of: must name at least one, and each once, not []"),
        (('case = ["small", "large"]', "case = []"), "claim 1.case: must name at least one"),
        (('["small", "large"]', '["small", "small"]'), "each once, not ['small', 'small']"),
        (('holds = ">= 1.5"', 'holds = ">= 0.8"'), "partly must ask for less than holds"),
        (('holds = ">= 1.5"', 'holds = ">= 1.0"'), "partly must ask for less than holds"),
        (('over = "slow"', 'over = "fast"'), "'fast' at 10.0 is compared with itself"),
        (('over = "slow"', 'over = "fast"\nover_at = 10'), "is compared with itself"),
        (
            ('over = "slow"\nat = 10', 'over = "fast"\nat = [10, 20]\nover_at = 20'),
            "'fast' at 20.0 is compared with itself",
        ),
        (("train.epochs=2", "seed=9"), "variant 'slow'.set: a study sets seed and"),
        (("clients.count=20", "protocol = fedavg"), "point 2.set: a study sets seed and protocol"),
        (("clients.count=30", "seed=9"), "case 'large'.set: a study sets seed and protocol"),
        (("[[claim]]", "[claim"), "not TOML"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, change: tuple[str, str], message: str) -> None:
    file = folder / "study.toml"
    file.write_text(file.read_text().replace(*change))
    with pytest.raises(ConfigError) as error:
        plan.load(folder)
    assert message in str(error.value)
    assert "study.toml" in str(error.value)


def test_each_that_is_wrong_is_named(folder: Path) -> None:
    file = folder / "study.toml"
    kept = [line for line in file.read_text().splitlines() if not line.startswith("protocol")]
    file.write_text("\n".join(kept))
    with pytest.raises(ConfigError) as error:
        plan.load(folder)
    assert str(error.value).splitlines() == [
        f"{file}: variant {name!r}.protocol: this key is needed" for name in ("fast", "slow")
    ]


def test_a_study_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the study"):
        plan.load(tmp_path)
    assert plan.find(tmp_path) == {}


def guide() -> str:
    """What the docs say of a study of one's own."""
    return (EXPERIMENTS.parent / "docs" / "reproduce.md").read_text().split("## A study of")[1]


def test_the_example_in_the_docs_is_a_study(tmp_path: Path) -> None:
    text = guide().split("```toml\n")[1].split("```")[0]
    assert len(text.splitlines()) <= 60
    (tmp_path / "study.toml").write_text(text)
    (tmp_path / "digits.toml").write_text("")
    runs = planned(plan.load(tmp_path), tmp_path, WISH)
    assert len(runs) == 2 * 3 * 3  # variants, points, seeds
    for run in runs[:2]:
        build.policies_of(run.config)


@pytest.mark.parametrize(
    ("table", "model"),
    [
        ("", plan.Study),
        ("variant", plan.Variant),
        ("point", plan.Point),
        ("case", plan.Case),
        ("claim", plan.Claim),
    ],
)
def test_the_docs_know_every_key(table: str, model: type[plan.Section]) -> None:
    rows = [line.split(" | ") for line in guide().splitlines() if line.startswith("| ")]
    row_of = f"`[[{table}]]`" if table else "(top)"
    told = {key for row in rows if row[0] == f"| {row_of}" for key in row[1].split(", ")}
    assert told == {f"`{key}`" for key in model.model_fields}


def test_the_docs_know_how_many_runs_there_are() -> None:
    text = (EXPERIMENTS.parent / "docs" / "reproduce.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", text, re.MULTILINE))
    runs = {name: planned(plan.load(EXPERIMENTS / name), EXPERIMENTS / name, WISH) for name in REAL}
    assert {name: int(num) for name, num in rows.items()} == {
        name: len(asked) for name, asked in runs.items()
    }
    of_paper = [run for name in REAL if name not in NOT_IN_IT for run in runs[name]]
    num_different = len({run.digest for run in of_paper})
    told = f"Of the {len(of_paper)} runs of the paper's studies {num_different} are different"
    assert told in text


def test_all_of_the_papers_studies_are_there() -> None:
    wanted = {"aggregation", "beta", "concurrency", "corruption", "end_to_end"}
    assert {*wanted, "oort_penalty", "scale", "selection"} <= set(REAL)


@pytest.mark.parametrize("name", REAL)
def test_a_real_study_is_sound(name: str) -> None:
    folder = EXPERIMENTS / name
    study = plan.load(folder)
    runs = planned(study, folder, replace(WISH, seeds=[1]))
    assert {run.case for run in runs} == {case.name for case in study.case}
    assert len({(run.case, run.digest) for run in runs}) == len(runs)  # no two are the same run
    for run in runs:
        build.policies_of(run.config)
    for case in study.case:  # each task also runs by itself
        build.resolved(config.load(folder / config_file(case)))


def test_a_protocol_that_does_other_things_makes_other_runs(folder: Path) -> None:
    study = plan.load(folder)
    before = planned(study, folder, WISH)
    after = planned(study, folder, replace(WISH, revision=lambda _config: 1))
    assert not {run.digest for run in before} & {run.digest for run in after}


def test_variants_have_the_revision_of_what_they_vary() -> None:
    parts = [config.parse(f'protocol = "{name}"') for name in ("pisces", "pisces-without-guard")]
    assert build.revision_of(parts[0]) == build.revision_of(parts[1]) == REVISIONS["pisces"]
    assert build.revision_of(config.parse('protocol = "fedbuff"')) == 0

"""Going on with a comparison: what is done stays, what was cut short is made again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pisces.config import Config, to_toml
from pisces.errors import RunError
from pisces.many.jobs import Job
from pisces.many.left import left_in


def make_run(folder: Path, config: Config, reason: str | None = "time") -> None:
    """A run folder without anything that costs time; for no reason it is not over."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(config))
    line = {"kind": "evaluated", "at": 0.0, "version": 0, "accuracy": 0.5}
    (folder / "events.jsonl").write_text(json.dumps(line) + "\n")
    if reason is not None:
        (folder / "summary.json").write_text(json.dumps({"reason": reason}))


def with_target(target: float | None) -> Config:
    base = Config()
    return base.model_copy(update={"stop": base.stop.model_copy(update={"target": target})})


def test_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, folder = with_target(0.9), tmp_path / "o"
    make_run(folder / "done", config)
    make_run(folder / "cut", config, "interrupted")
    make_run(folder / "killed", config, None)
    (folder / "begun").mkdir()
    (folder / "begun" / "events.jsonl").touch()
    names = ["done", "cut", "killed", "begun", "new"]
    with left_in(folder, [Job(config, folder / name) for name in names]) as left:
        assert [job.out.name for job in left] == ["cut", "killed", "begun", "new"]
        assert [job.again for job in left] == [True, True, True, False]
        assert (folder / "cut" / "events.jsonl").exists()  # until it is begun anew
    assert sorted(path.name for path in folder.iterdir()) == ["cut", "done", "killed"]
    said = capsys.readouterr().err.replace(str(folder), "o")
    told = "going on in o: 1 of 5 runs are done; made again, for they were cut short: "
    assert said == told + "cut, killed, begun\n"


@pytest.mark.parametrize("reason", ["time", None])
@pytest.mark.parametrize(
    ("was", "told"),
    [(0.95, "stop.target was 0.95 and is 0.9;"), (None, "stop.target was none and is 0.9;")],
)
def test_a_run_with_other_settings_is_refused(
    tmp_path: Path, reason: str | None, was: float | None, told: str
) -> None:
    make_run(tmp_path / "a", with_target(was), reason)
    before = sorted(tmp_path.rglob("*"))
    with (
        pytest.raises(RunError, match=f"a was made with other settings: {told}"),
        left_in(tmp_path, [Job(with_target(0.9), tmp_path / "a")]),
    ):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_many_differences_are_not_all_told(tmp_path: Path) -> None:
    make_run(tmp_path / "a", Config())
    (tmp_path / "a" / "config.toml").write_text("seed = 7")
    with (
        pytest.raises(
            RunError, match=r"seed was 7 and is 1, (\S+ was none and .*)*, \d+ more; set"
        ),
        left_in(tmp_path, [Job(Config(), tmp_path / "a")]),
    ):
        pass


def test_two_in_one_folder_would_remove_each_others_runs(tmp_path: Path) -> None:
    jobs = [Job(Config(), tmp_path / "o" / "a")]
    with left_in(tmp_path / "o", jobs):
        with (
            pytest.raises(RunError, match="another pisces is at work in"),
            left_in(tmp_path / "o", jobs),
        ):
            pass
        assert (tmp_path / "o").exists()
    assert not (tmp_path / "o").exists()  # nothing came into it
    (tmp_path / "mine").mkdir()
    with left_in(tmp_path / "mine", jobs):
        pass
    assert (tmp_path / "mine").exists()

"""TensorBoard's files, read back by TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trackedruns import OFTEN, killed, points_of, series_of, simulated

import pisces

pytest.importorskip("tensorboard")
FOLDER = "tensorboard"


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    return found.Reload()


def scalars_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = read(folder)
    return {
        name: [(one.step, one.value) for one in found.Scalars(name)]
        for name in found.Tags()["scalars"]
        if name != "seconds"
    }


def as_expected(run: Path) -> Any:
    """To the precision that TensorBoard keeps."""
    series = series_of(points_of(run))
    return {
        name: [(step, pytest.approx(value, rel=1e-6)) for step, value in values]
        for name, values in series.items()
    }


def test_every_value_is_there_at_its_version_and_second(tmp_path: Path) -> None:
    simulated(tmp_path / "r", trackers=["tensorboard"])
    folder = tmp_path / "r" / FOLDER
    assert scalars_of(folder) == as_expected(tmp_path / "r")
    found = read(folder)
    seconds = [line["at"] for line in pisces.load(tmp_path / "r").events("evaluated")]
    times = [one.wall_time for one in found.Scalars("accuracy")]
    assert [time - times[0] for time in times] == pytest.approx(seconds, abs=1e-3)
    settings, summary = (
        found.Tensors(f"{name}/text_summary")[0].tensor_proto.string_val[0].decode()
        for name in ("settings", "summary")
    )
    assert "| protocol | pisces |" in settings
    assert "| reason | time |" in summary
    assert found.PluginTagToContent("hparams")


def test_a_run_that_goes_on_has_no_point_twice(tmp_path: Path) -> None:
    killed(tmp_path / "r", 12, trackers=["tensorboard"])
    (tmp_path / "r" / FOLDER / "events.out.tfevents.mine").touch()
    simulated(tmp_path / "r", trackers=["tensorboard"], resume=True, checkpoints=OFTEN)
    assert scalars_of(tmp_path / "r" / FOLDER) == as_expected(tmp_path / "r")
    names = [path.name for path in (tmp_path / "r" / FOLDER).iterdir()]
    assert len([name for name in names if name.endswith(".pisces")]) == 1
    assert "events.out.tfevents.mine" in names  # what is not ours stays


def test_one_that_is_open_forgets_what_it_read(tmp_path: Path) -> None:
    run = tmp_path / "r"
    killed(run, 12, trackers=["tensorboard"])
    (old,) = (run / FOLDER).iterdir()
    content = old.read_bytes()
    simulated(run, trackers=["tensorboard"], resume=True, checkpoints=OFTEN)
    old.write_bytes(content)  # as if it had been read before it was removed
    assert scalars_of(run / FOLDER) == as_expected(run)


def test_a_link_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, elsewhere = tmp_path / "r", tmp_path / "elsewhere"
    simulated(run)
    elsewhere.mkdir()
    (run / FOLDER).symlink_to(elsewhere)
    later = pisces.Stop(time_s=30.0)
    simulated(run, trackers=["tensorboard"], resume=True, stop=later)
    assert not list(elsewhere.iterdir())
    assert "tracker tensorboard failed and is left alone" in caplog.text

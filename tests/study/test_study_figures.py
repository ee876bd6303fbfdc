"""What is drawn of a case, and what is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from pisces.study import figures
from pisces.study.figures import draw
from pisces.study.material import Material
from pisces.study.plan import Study
from pisces.study.records import Record

MakeRecord = Callable[..., Record]
Draw = Callable[[Study, Sequence[Record]], dict[str, Figure]]


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Draw:
    """Draw the first case's pictures and return them by kind."""

    def make(study: Study, records: Sequence[Record]) -> dict[str, Figure]:
        made: dict[str, Figure] = {}
        monkeypatch.setattr(
            figures, "save", lambda figure, path: made.update({path.stem.split("-")[1]: figure})
        )
        only = study.model_copy(update={"figures": ["curves", "sweep"]})
        draw(only, study.case[0], records, tmp_path)
        return made

    return make


def test_every_line_is_seen_however_poor(study: Study, record: MakeRecord, drawn: Draw) -> None:
    times = tuple(range(0, 50, 10))
    good = record("fast", 1, 10.0, times=times, values=(0.1, 0.89, 0.9, 0.91, 0.91))
    poor = record("slow", 1, 10.0, times=times, values=(0.1, 0.2, 0.3, 0.4, 0.5))
    # The target is 0.9: a tenth of it is shown below, or a quarter of the poor one (0.4 and above).
    alone, both = (drawn(study, records)["curves"].axes[0] for records in ([good], [good, poor]))
    # Above the best a twentieth of the way is left.
    assert alone.get_ylim() == pytest.approx((0.81, 0.915))
    assert both.get_ylim()[0] == pytest.approx(0.4)


def test_every_line_is_seen_where_less_is_more(
    study: Study, record: MakeRecord, drawn: Draw
) -> None:
    times = tuple(range(0, 50, 10))
    common = {"metric": "loss", "target": 1.0, "times": times}
    good = record("fast", 1, 10.0, values=(9, 1.1, 1, 1, 1), **common)
    poor = record("slow", 1, 10.0, values=(9, 8, 7, 6, 5), **common)
    assert drawn(study, [good])["curves"].axes[0].get_ylim() == pytest.approx((0.995, 1.1))
    assert drawn(study, [good, poor])["curves"].axes[0].get_ylim()[1] == pytest.approx(6)


@pytest.mark.parametrize(
    ("variants", "xs", "is_drawn"),
    [
        (("fast", "slow"), (10.0, 20.0), True),
        (("fast", "slow"), (10.0,), False),
        (("fast",), (10.0, 20.0), False),  # nothing to hold it against yet
    ],
)
def test_a_sweep_needs_points_and_variants(
    study: Study,
    record: MakeRecord,
    drawn: Draw,
    variants: tuple[str, ...],
    xs: tuple[float, ...],
    is_drawn: bool,
) -> None:
    records = [record(variant, 1, 10.0, x=x) for variant in variants for x in xs]
    assert ("sweep" in drawn(study, records)) == is_drawn


def test_a_study_of_one_variant_has_a_sweep_of_three_points(
    study: Study, record: MakeRecord, drawn: Draw
) -> None:
    more = study.point[0].model_copy(update={"x": 30.0})
    changes = {"variant": study.variant[:1], "point": [*study.point, more]}
    study = study.model_copy(update=changes)
    records = [record("fast", 1, 10.0, x=x) for x in (10.0, 20.0, 30.0)]
    assert "sweep" not in drawn(study, records[:2])
    assert "sweep" in drawn(study, records)


def test_a_sweep_left_out_leaves_no_file(study: Study, record: MakeRecord, tmp_path: Path) -> None:
    picture = tmp_path / "small-sweep.png"
    picture.write_text("of before")
    study = study.model_copy(update={"figures": ["curves", "sweep"]})
    paths = [one.path for one in draw(study, study.case[0], [record("fast", 1, 10.0)], tmp_path)]
    assert picture not in paths
    assert not picture.exists()


def test_protocols_have_one_colour_in_all_studies(study: Study) -> None:
    names = (["pisces", "fedbuff"], ["fedbuff", "buffer-8", "oort", "pisces"])
    variants = [[study.variant[0].model_copy(update={"name": n}) for n in ns] for ns in names]
    studies = [study.model_copy(update={"variant": part}) for part in variants]
    colours = [Material(one, one.case[0], []).style("fedbuff").colour for one in studies]
    assert colours[0] == colours[1]

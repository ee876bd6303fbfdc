"""Whatever goes wrong, in whatever order: nothing lost, nothing used twice, nobody stalls the run.

Longer: `PISCES_MACHINE_SEED=7 pytest -m long tests/faults/test_machine.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import Phase
from mishaps import IN_ONE_GO, PLAYED, SEED, play
from scene import Tally

from pisces.execute.faults import Fault


@pytest.mark.parametrize("go", range(30))
def test_whatever_goes_wrong_the_laws_hold(go: int) -> None:
    play(PLAYED[go % len(PLAYED)], go, tally=(tally := Tally()))
    assert tally.num_scenes >= IN_ONE_GO


@pytest.mark.long
def test_ten_thousand_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    for go in range(1000):
        played = PLAYED[go % len(PLAYED)]
        play(played, go, tally=tally, phases=[Phase.generate], database=None)
    assert tally.num_scenes >= 10_000
    assert {fault.name for fault in Fault} == set(tally.faults)
    with capsys.disabled():
        print(f"\n{datetime.now(UTC):%Y-%m-%d}, seed {SEED}: {tally}")  # noqa: T201

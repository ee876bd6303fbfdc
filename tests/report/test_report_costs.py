"""What runs cost, counted by hand."""

from dataclasses import fields
from pathlib import Path

from ledgers import HAND, ledger_of, line

from pisces.report.costs import QUANTITIES, Cost, costs


def test_costs(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    (cost,) = costs([ledger])
    assert (cost.updates, cost.tasks, cost.aggregated) == (3, 4, 2)
    assert (cost.samples, cost.bytes, cost.wall_s) == (30, None, None)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    assert costs([ledger])[0].bytes == 700  # 4 models there and 3 back


def test_what_may_still_be_used_is_not_wasted(tmp_path: Path) -> None:
    # Of tasks 0 to 3 two were aggregated, 2 waits in the buffer, 3 failed.
    assert costs([ledger_of(tmp_path / "goes on")])[0].wasted == 1
    more = line("started", 12.0, task=4, client=7, version=2)
    (running,) = costs([ledger_of(tmp_path / "with a task", [*HAND, more])])
    assert (running.tasks, running.wasted) == (5, 1)
    end = line("stopped", 12.0, reason="time")
    assert costs([ledger_of(tmp_path / "over", [*HAND, end])])[0].wasted == 2


def test_every_quantity_is_told_of_a_run() -> None:
    assert QUANTITIES.keys() <= {field.name for field in fields(Cost)}

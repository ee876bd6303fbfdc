"""What runs cost, counted by hand."""

from dataclasses import fields
from pathlib import Path

from ledgers import ledger_of

from pisces.report.costs import QUANTITIES, Cost, costs


def test_costs(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    (cost,) = costs([ledger])
    assert (cost.updates, cost.tasks, cost.aggregated, cost.wasted) == (3, 4, 2, 2)
    assert (cost.samples, cost.bytes, cost.wall_s) == (30, None, None)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    assert costs([ledger])[0].bytes == 700  # 4 models there and 3 back


def test_every_quantity_is_told_of_a_run() -> None:
    assert QUANTITIES.keys() <= {field.name for field in fields(Cost)}

"""`pisces demo`: the first minute with Pisces works, once, as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.image import imread

PATIENCE_S = 300  # about half a minute on two free cores


def test_the_demo(start: Callable[..., Any], pisces: Callable[..., Any]) -> None:
    process = start("demo", "--jobs", 2)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    first, *lines = err.splitlines()
    assert first == "100 clients, 20 at a time, to 90% accuracy; 5 seeds x 4 protocols"
    assert sum(": finished (" in line for line in lines) == 20
    rows = [line.split()[0] for line in out.splitlines() if line.endswith(" s ")]
    assert rows[0] == "pisces"
    assert sorted(rows) == ["fedavg", "fedbuff", "oort", "pisces"]
    assert "plot: runs/demo/accuracy.png" in out
    assert imread("runs/demo/accuracy.png").std() > 0.05
    listed = pisces("runs", "runs/demo").out
    assert listed.count("folder in runs/demo") == 1
    assert sum("-seed" in line for line in listed.splitlines()) == 20
    # The file it leaves behind is a config to go on with.
    assert Path("runs/demo/demo.toml").exists()
    changes = ("--set", "stop.time_s=5", "--out", "r", "-q")
    assert pisces("run", "runs/demo/demo.toml", *changes).code == 0

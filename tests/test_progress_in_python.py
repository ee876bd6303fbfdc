"""`progress=True`: a run that is watched from a script or a notebook, and is none the worse."""

from __future__ import annotations

import dataclasses
import sys
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

import pisces
from pisces.progress import following, showing


def pair(num: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.linspace(-1, 1, 3 * num).reshape(num, 3)
    return inputs, (inputs.sum(1) > 0).long()


def simulate(**options: Any) -> pisces.Result:
    given: dict[str, Any] = {
        "model": nn.Linear(3, 2),
        "clients": [pair(4)] * 5,
        "test": pair(6),
        "stop": pisces.Stop(versions=5),
        "backend": "sequential",
        "device": "cpu",
    }
    return pisces.simulate("fedbuff", **(given | options))


def test_it_is_silent_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    simulate()
    assert capsys.readouterr() == ("", "")


def test_where_nobody_watches_it_says_lines(capsys: pytest.CaptureFixture[str]) -> None:
    result = simulate(progress=True)
    said = capsys.readouterr()
    begun, *_, over = said.err.splitlines()
    assert begun == "fedbuff, seed 1: begun, until 5 versions"
    assert over.startswith("fedbuff, seed 1: finished (versions) at ")
    assert (said.out, result.summary["reason"]) == ("", "versions")


def test_a_terminal_keeps_the_last_view(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    console = Console(file=screen, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    monkeypatch.setattr(showing, "stderr", console)
    simulate(progress=True)
    text = screen.getvalue()
    assert "finished (versions), took " in text
    assert text.rstrip().endswith("\x1b[?25h")  # and its cursor


def test_a_run_that_goes_on_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(out=tmp_path / "r")
    simulate(out=tmp_path / "r", resume=True, stop=pisces.Stop(versions=8), progress=True)
    begun, *_ = capsys.readouterr().err.splitlines()
    assert begun.startswith("fedbuff, seed 1: goes on at ")
    assert begun.endswith(", until 8 versions")


class Notebook(ModuleType):
    """What of IPython is asked for: a shell with a kernel, and a display that can be changed."""

    def __init__(self) -> None:
        super().__init__("IPython")
        self.shown: list[str] = []
        self.HTML = str

    def get_ipython(self) -> Any:
        return SimpleNamespace(kernel=object())

    def display(self, html: str, *, display_id: bool) -> Any:
        assert display_id
        self.shown.append(html)
        return SimpleNamespace(update=self.shown.append)


def test_a_notebook_has_one_output_that_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    metrics = {"<img onerror>": lambda outputs, targets: 0.5}
    stop = pisces.Stop(versions=5, metric="<img onerror>")
    simulate(progress=True, metrics=metrics, stop=stop)
    first, *_, last = notebook.shown
    assert "finished (versions), took " in last
    assert "100%" not in first
    assert "<img" not in last
    assert "&lt;img onerror&gt;" in last
    assert capsys.readouterr() == ("", "")


def test_nobody_imports_ipython() -> None:
    assert "IPython" not in sys.modules or following.notebook() is None


def test_a_result_in_a_notebook(tmp_path: Path) -> None:
    for result in (simulate(), simulate(out=tmp_path / "r")):
        html = result._repr_html_()
        assert "fedbuff, seed 1" in html
        assert "versions, at " in html
        assert "data:image/svg+xml;base64," in html
    (tmp_path / "r" / "events.jsonl").unlink()
    html = result._repr_html_()  # the facts are there all the same
    assert "fedbuff, seed 1" in html
    assert "<img" not in html


def test_a_result_in_one_line(tmp_path: Path) -> None:
    for result in (simulate(), simulate(out=tmp_path / "r")):
        text = repr(result)
        assert text.startswith("<Result: fedbuff, ")
        assert f"{result.summary['versions']} versions, best accuracy " in text
        assert "\n" not in text
    assert text.endswith(f"{tmp_path / 'r'}>")
    bare = dataclasses.replace(result, summary={}, folder=None)
    assert repr(bare) == "<Result: a run, not over, 0 versions>"

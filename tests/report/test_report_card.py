"""Runs in notebooks: what is shown of them, whatever is in their folder."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pisces.record.reader import Run

EVIL = "<img onerror=alert(1)>"
SUMMARY = {"protocol": "pisces", "seed": 3, "metric": "accuracy", "target": 0.5}


def line(kind: str, at: float, **facts: Any) -> str:
    return json.dumps({"kind": kind, "at": at, **facts}) + "\n"


def write(folder: Path, metric: str = "accuracy", protocol: str = "pisces", num: int = 3) -> Run:
    folder.mkdir(exist_ok=True)
    config = {"protocol": protocol, "seed": 3, "stop": {"metric": metric, "target": 0.5}}
    stop = "".join(f"{key} = {json.dumps(value)}\n" for key, value in config["stop"].items())
    text = f"protocol = {json.dumps(protocol)}\nseed = 3\n[stop]\n{stop}"
    (folder / "config.toml").write_text(text)
    events = [
        line("started", 0.0, task=0, client=0, version=0),
        line("aggregated", 1.0, version=1, tasks=[0], staleness=[2]),
        *(
            line("evaluated", 10.0 * n, version=n, **{metric: n / num, "other": 1.0})
            for n in range(num + 1)
        ),
        line("picked", 30.0, clients=[0], scores=[[None]]),
    ]
    (folder / "events.jsonl").write_text("".join(events))
    return Run.open(folder)


class Seen(HTMLParser):
    """The tags and the words of some HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def picture(html: str) -> str:
    (found,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', html)
    return base64.b64decode(found).decode()


def test_a_run_shows_what_it_came_to_and_its_curve(tmp_path: Path) -> None:
    html = write(tmp_path)._repr_html_()
    seen = Seen(html).words
    facts = dict(zip(seen[::2], seen[1::2], strict=False))
    assert facts["protocol"] == "pisces, seed 3"
    assert facts["ended"] == "not finished, at 30 s"
    assert (facts["versions"], facts["updates"]) == ("1", "0")
    assert facts["accuracy, final and best"] == "1, 1"
    assert facts["time to accuracy 0.5"] == "20 s"  # 1/3 at 10 s, 2/3 at 20 s
    assert facts["staleness, mean and max"] == "2.0, 2"
    svg = picture(html)
    ElementTree.fromstring(svg)
    assert len(html) < 15_000


def test_a_target_of_another_metric_is_not_held_against_this_one(tmp_path: Path) -> None:
    run = write(tmp_path / "run")
    stop = '[stop]\nmetric = "beauty"\ntarget = 0.5\n'
    (tmp_path / "run" / "config.toml").write_text(f'protocol = "pisces"\n{stop}')
    told = {**run.summary, "metric": "beauty", "target": 0.5}
    (tmp_path / "run" / "summary.json").write_text(json.dumps(told))
    words = Seen(Run.open(run.path)._repr_html_()).words
    assert "accuracy, final and best" in words
    assert not [word for word in words if word.startswith("time to")]


def test_a_long_curve_is_a_small_picture(tmp_path: Path) -> None:
    html = write(tmp_path, num=5000)._repr_html_()
    assert len(html) < 20_000
    assert "time to accuracy 0.5" in html


def test_what_folders_say_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    html = write(tmp_path, metric=EVIL, protocol=EVIL)._repr_html_()
    seen = Seen(html)
    assert "".join(seen.words).count(EVIL) >= 3
    assert sorted(set(seen.tags)) == ["div", "figcaption", "figure", "img", "table", "td", "tr"]
    assert seen.tags.count("img") == 1  # the picture
    assert "onerror" not in picture(html)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.toml", "no = toml ["),
        ("summary.json", "{"),
        ("summary.json", '{"final": {"accuracy": "<b>"}}'),
        ("events.jsonl", "<script>\n{}\n"),
    ],
)
def test_a_folder_that_cannot_be_read_is_a_line(tmp_path: Path, file: str, content: str) -> None:
    run = write(tmp_path)
    (tmp_path / file).write_text(content)
    html = run._repr_html_()
    assert Seen(html).tags == ["div"]
    assert "cannot" in html or "not an event" in html


def test_a_folder_that_is_gone_or_empty_is_shown_all_the_same(tmp_path: Path) -> None:
    run = write(tmp_path)
    (tmp_path / "events.jsonl").write_text("")
    assert "not finished, at 0 s" in run._repr_html_()
    (tmp_path / "events.jsonl").unlink()
    assert Seen(Run(tmp_path)._repr_html_()).tags == ["div"]

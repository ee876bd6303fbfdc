"""The page: it needs nothing else, runs nothing it should not, and says what is true."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browsers import Tab, browser
from runs import World, simulate

from pisces.errors import MissingPackageError, RunError
from pisces.record.lines import encode
from pisces.record.reader import Run
from pisces.report import charts
from pisces.report import page as page_module
from pisces.report.goal import Goal
from pisces.report.markup import data_block, tag
from pisces.report.page import page, write_page
from pisces.report.printed.share import picture, table

pytest.importorskip("plotly")

MakeRun = Callable[..., Run]
EVIL = """<script>alert(1)</script><img src=x onerror=alert(2)>"'&\u2028<!--<a href=//x>"""
CHROMIUM = shutil.which("chromium")


class Seen(HTMLParser):
    """What a browser would find in the page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    @property
    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


@pytest.fixture(autouse=True)
def small_library(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Five megabytes less in every page, but for those that need the whole library."""
    if "whole" not in request.fixturenames:
        monkeypatch.setattr(page_module, "_plotly", lambda: "/* plotly.js */")


@pytest.fixture
def whole() -> None:
    """The page with its library."""


def simulated(folder: Path, protocol: str, seed: int, config: str = "") -> Run:
    """A run in virtual time whose training costs nothing."""
    path = folder / f"{protocol}-{seed}"
    path.mkdir(parents=True)
    (path / "config.toml").write_text(f'protocol = "{protocol}"\nseed = {seed}\n{config}')
    lines = simulate(protocol, World(odd_every=4, credits=1, seed=seed))
    (path / "events.jsonl").write_bytes(b"".join(map(encode, lines)))
    return Run.open(path)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return simulated(tmp_path / "one", "pisces", 1, "[clients]\nconcurrency = 3\n")


@pytest.fixture
def several(tmp_path: Path) -> list[Run]:
    return [simulated(tmp_path, p, s) for p in ("pisces", "fedbuff", "fedavg") for s in (1, 2)]


def test_nothing_refers_to_the_network(run: Run, several: list[Run]) -> None:
    for text in (page([run], Goal("accuracy", 0.01)), page(several, Goal("accuracy", 0.01))):
        seen = Seen(text)
        for tag_, attributes in seen.tags:
            for name in ("src", "srcset", "data", "action", "poster", "background", "xlink:href"):
                assert name not in attributes, (tag_, attributes)
            assert attributes.get("href", "#").startswith("#")
            assert not any(name.startswith("on") for name in attributes)
            assert tag_ not in ("link", "iframe", "object", "embed", "base", "form", "img")
        assert "@import" not in text
        assert "url(" not in text


def test_who_logs_in_where_stays_at_home(tmp_path: Path) -> None:
    uri = 'mlflow_uri = "http://bob:hunter2@127.0.0.1:1/runs"'
    run = simulated(tmp_path / "one", "pisces", 1, f"[record]\n{uri}\n")
    text = page([run], Goal("accuracy", 0.01))
    assert "hunter2" not in text
    assert text.count("http://...@127.0.0.1:1/runs") == 2  # among the settings, and in the config


def test_the_policy_lets_only_our_scripts_run(run: Run) -> None:
    seen = Seen(page([run], Goal("accuracy", 0.01)))
    (policy,) = [
        attributes["content"]
        for tag_, attributes in seen.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.split(" ", 1) for rule in str(policy).split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in rules["script-src"]
    data, *scripts = seen.scripts
    assert json.loads(data)
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules["script-src"]
    assert len(scripts) == len(rules["script-src"].split()) == 3


def test_the_same_runs_give_the_same_bytes(several: list[Run], tmp_path: Path) -> None:
    tmp_path = tmp_path / "pages"
    for name in ("one.html", "two.html"):
        again = [Run.open(run.path) for run in several]
        write_page(tmp_path / name, again, Goal("accuracy", 0.01))
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2  # and nothing half done


def test_one_run_is_told_and_drawn(run: Run) -> None:
    seen = Seen(page([run], Goal("accuracy", 0.01)))
    s = run.summary
    assert f"pisces (seed 1) trained a model over {s['num_clients']} clients" in seen.text
    assert f"{s['num_updates']} updates arrived: {s['num_aggregated']} went into" in seen.text
    assert f"{s['num_under_way']} tasks were under way when the run stopped" in seen.text
    assert "clients.concurrency3" in seen.text  # two cells
    assert "pisces run pisces.toml" in seen.text
    places = [a["data-figure"] for _, a in seen.tags if "data-figure" in a]
    assert places == list(seen.figures)
    assert len(places) >= 5


def test_several_runs_are_compared(several: list[Run]) -> None:
    text = Seen(page(several, Goal("accuracy", 0.01))).text
    assert "6 runs of 3 protocols (pisces, " in text
    assert "of seeds 1 to 2: 6 clients." in text
    assert "A closer look: pisces (seed 1)" in text
    assert re.search(r"pisces: updates were \S+ versions stale on average, the .* bound", text)
    assert not re.search(r"Pisces|Fedbuff|Fedavg", text)  # names stay as they are
    assert "for seed in 1 2; do pisces run fedbuff.toml --seed $seed; done" in text


def test_settings_that_differ_are_marked(tmp_path: Path) -> None:
    one = simulated(tmp_path, "pisces", 1, "[data]\nalpha = 0.5\nsize = 3\n")
    two = simulated(tmp_path, "fedavg", 1, "[data]\nalpha = 5.0\nsize = 3\n")
    text = page([one, two], Goal("accuracy", 0.01))
    assert '<th scope="row">data.<wbr>alpha</th><td>0.5</td><td class="differs">5</td>' in text
    assert '<th scope="row">data.<wbr>size</th><td>3</td></tr>' in text  # with what they share
    assert "pisces (seed 1) and fedavg (seed 1) differ in data.alpha" in Seen(text).text


def test_runs_cut_short_do_not_count(make_run: MakeRun) -> None:
    runs = [make_run("pisces", s, {10.0: 0.9}) for s in (1, 2)]
    runs += [make_run("oort", 1, {10.0: 0.9}, reason="interrupted")]
    text = Seen(page(runs, Goal("accuracy", 0.8))).text
    assert "1 run (1 of oort) was interrupted or is not over, and does not count." in text
    assert "A closer look: oort" not in text
    assert page([make_run("tifl", s, {}, reason=None) for s in (1, 2)], Goal("accuracy", 0.8))


@pytest.mark.parametrize("num", [8, 9])  # drawn one by one, or as their median and range
def test_runs_of_one_seed_are_drawn_however_many_they_are(tmp_path: Path, num: int) -> None:
    runs = [simulated(tmp_path / str(n), "pisces", 1) for n in range(num)]
    assert f"pisces: {num} runs" in Seen(page(runs)).text
    for name in ("curve", "staleness", "involvement"):
        picture(runs, name, tmp_path / f"{name}.png")
    table(runs, "staleness", tmp_path / "staleness.csv")


def test_a_run_of_which_little_is_known(make_run: MakeRun) -> None:
    run = make_run("pisces", 1, {}, reason=None)
    (run.path / "config.toml").unlink()
    text = Seen(page([Run.open(run.path)])).text
    assert "Nothing was evaluated" in text
    assert "These runs were recorded without their settings." in text
    assert "no command makes it again" in text


def test_markup_in_a_log_stays_text(make_run: MakeRun, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"kind": "joined", "at": 0.0, "client": 0, "num_examples": 10},
        {"kind": "started", "at": 0.0, "task": 0, "client": 0, "version": 0},
        {"kind": "failed", "at": 1.0, "task": 0, "client": 0, "reason": EVIL},
        {"kind": "started", "at": 1.0, "task": 1, "client": 0, "version": 0},
        {"kind": "evaluated", "at": 2.0, "version": 0, EVIL: 0.5},
    ]
    runs = [
        make_run(name, 1, {}, lines=lines, reason=EVIL, made_with=EVIL, trained_by=EVIL)
        for name in ("a", "b")
    ]
    named, evil = json.dumps({"client": 0, "name": EVIL}) + "\n", json.dumps(EVIL)
    for number, run in enumerate(runs):
        protocol = json.dumps(f"{number}{EVIL}")
        text = f"seed = 1\nprotocol = {protocol}\n[data]\ndataset = {evil}\n{evil} = {evil}\n"
        (run.path / "config.toml").write_text(text)
        (run.path / "clients.jsonl").write_text(named)
    fresh = [Run.open(run.path) for run in runs]
    for chosen in (fresh[:1], fresh):
        text = page(chosen, Goal(EVIL, 0.4))
        seen = Seen(text)
        assert "alert(1)" in seen.text
        assert {tag_ for tag_, _ in seen.tags}.isdisjoint({"img", "iframe"})
        assert len(seen.scripts) == 4
        assert all("href" not in a or str(a["href"]).startswith("#") for _, a in seen.tags)
        # plotly.js reads some HTML in its texts: ours must have none but line breaks.
        raw = json.dumps(seen.figures, ensure_ascii=False)
        assert "&lt;script&gt;" in raw
        assert not re.search(r"<(?!br>|extra></extra>|/extra>|b>|/b>)", raw)


def test_data_cannot_end_its_element() -> None:
    block = data_block("x", {"a": "</script><!--\u2028&"})
    assert block.count("<") == 2
    inside = block[block.index(">") + 1 : block.rindex("<")]
    assert json.loads(inside) == {"a": "</script><!--\u2028&"}
    assert inside.isascii()


def test_attributes_are_escaped() -> None:
    assert tag("p", "<", title='"><b>') == '<p title="&quot;&gt;&lt;b&gt;">&lt;</p>'


def test_hundreds_of_runs_stay_readable(make_run: MakeRun) -> None:
    accuracies = {float(t): min(0.9, t / 100) for t in range(0, 100, 2)}
    runs = [make_run(p, s, accuracies) for p in ("pisces", "oort", "fedavg") for s in range(40)]
    text = page(runs, Goal("accuracy", 0.8))
    assert len(text) < 600_000  # without the library
    assert "Medians over the runs of a protocol." in Seen(text).text


def test_errors_say_what_to_do(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="it is a folder; give --html a file"):
        write_page(tmp_path, [run])
    with pytest.raises(RunError, match="no runs to tell of"):
        page([])
    monkeypatch.undo()
    monkeypatch.setattr(charts, "find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'pisces-fl\[watch\]'"):
        write_page(tmp_path / "it.html", [run])
    assert not (tmp_path / "it.html").exists()


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.usefixtures("whole")
def test_a_browser_draws_it_offline_without_a_word(run: Run, tmp_path: Path) -> None:
    write_page(tmp_path / "it.html", [run], Goal("accuracy", 0.01))
    assert (tmp_path / "it.html").stat().st_size < 6_000_000
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
        *(f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=5000"),
        *("--window-size=1000,6000", "--dump-dom", (tmp_path / "it.html").as_uri()),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    said = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    assert said == []
    assert ran.stdout.count('class="main-svg"') >= 5


@pytest.mark.usefixtures("whole")
def test_what_nobody_scrolled_to_is_drawn_too(run: Run, tmp_path: Path) -> None:
    write_page(tmp_path / "it.html", [run], Goal("accuracy", 0.01))
    with browser() as opened:
        tab = Tab(opened.new_page(viewport={"width": 375, "height": 300}), tmp_path)
        tab.page.goto((tmp_path / "it.html").as_uri())
        tab.until("!document.querySelector('[data-figure]:not(:has(.main-svg))')")
        assert tab.page.evaluate("scrollY") == 0
        height = tab.page.evaluate("document.body.scrollHeight")
        assert height > 1500  # beyond where it draws at once
        tab.check()


@pytest.mark.usefixtures("whole")
def test_lines_are_lighter_in_the_dark_and_paper_is_opened(run: Run, tmp_path: Path) -> None:
    write_page(tmp_path / "it.html", [run], Goal("accuracy", 0.01))
    with browser() as opened:
        dark = opened.new_page(color_scheme="dark", viewport={"width": 375, "height": 800})
        tab = Tab(dark, tmp_path)
        tab.page.goto((tmp_path / "it.html").as_uri())
        lines = "[...document.querySelectorAll('.js-line')].map((e) => e.style.stroke).join()"
        is_open = "document.querySelectorAll('details[open]').length"
        tab.until(f"{lines} !== ''")
        assert "rgb(61, 154, 217)" in tab.page.evaluate(lines)
        assert tab.page.evaluate(is_open) == 0
        tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        tab.until(f"{lines}.includes('rgb(0, 114, 178)')")
        assert tab.page.evaluate(is_open) == 1
        tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert tab.page.evaluate(is_open) == 0
        tab.check()


def test_protocols_stand_in_one_order(make_run: MakeRun) -> None:
    times = {"fedavg": 30.0, "fedbuff": 20.0, "pisces": 10.0}
    runs = [make_run(name, s, {t: 0.9}) for name, t in times.items() for s in (1, 2)]
    seen = Seen(page(runs, Goal("accuracy", 0.8)))
    assert "pisces, fedbuff and fedavg: 6 runs" in seen.text
    curves = seen.figures["comparison-0"]["data"]
    order = [trace["name"].split()[0].strip(",:") for trace in curves if trace.get("name")]
    assert list(dict.fromkeys(order)) == ["pisces", "fedbuff", "fedavg"]


@pytest.mark.parametrize("is_over", [True, False])
def test_of_a_damaged_log_is_told_what_can_be_read_and_where_it_ends(
    make_run: MakeRun, tmp_path: Path, is_over: bool
) -> None:
    told = {"made_with": "pisces 9"} if is_over else {}
    whole = make_run("fedavg", 1, {10.0: 0.9})
    cut = make_run("pisces", 1, {10.0: 0.3, 20.0: 0.9}, **told)
    lines = (cut.path / "events.jsonl").read_bytes().splitlines(keepends=True)
    (cut.path / "events.jsonl").write_bytes(b"".join([lines[0], b"no line\n", *lines[1:]]))
    for runs, whose in (([cut], "The log"), ([whole, cut], "The log of pisces (seed 1)")):
        text = Seen(page([Run(run.path) for run in runs], Goal("accuracy", 0.8))).text
        assert f"{whose} could not be read to its end: {cut.path}" in text
        assert "events.jsonl, line 2: not an event" in text
    assert "1 run (1 of pisces) was interrupted or is not over" in text
    (cut.path / "events.jsonl").write_bytes(b"".join([b"no line\n", *lines]))
    with pytest.raises(RunError, match="line 1: not an event"):
        write_page(tmp_path / "it.html", [cut])
    assert not (tmp_path / "it.html").exists()


def test_of_a_sampled_log_there_is_no_page(make_run: MakeRun) -> None:
    summary = make_run("whole", 1, {10.0: 0.9}).summary
    lines = [{"kind": "sampled", "at": 0.0, "share": 0.5}]
    run = make_run("pisces", 1, {10.0: 0.9}, lines=lines)
    with pytest.raises(RunError, match="is sampled"):
        page([run])
    (run.path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(RunError, match="is sampled"):
        page([Run(run.path)])


def test_how_runs_are_told_of_is_not_their_world(tmp_path: Path) -> None:
    tables = "[record]\ntrackers = {}\n[checkpoint]\nkeep = {}\n[network]\nat_least = {}\n"
    one = simulated(tmp_path, "pisces", 1, tables.format("[]", 1, 1))
    two = simulated(tmp_path, "fedavg", 1, tables.format('["csv"]', 2, 2))
    assert "did not meet the same world" not in Seen(page([one, two], Goal("accuracy", 0.01))).text

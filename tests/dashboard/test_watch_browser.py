"""The live page in a real browser; its pictures are kept (`PISCES_SHOTS`) to be looked at."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browsers import Server, Tab, browser, serving, shots_folder, start_server
from configs import SMALL
from watching_pages import LINK, MARKUP, make_run, some_lines

from pisces.progress.boards import measured
from pisces.quantities import duration, in_bytes
from pisces.record.lines import Line, encode
from pisces.record.reader import Run
from pisces.report import figures
from pisces.report.ledger import Ledger

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("plotly")

RUN = "demo/pisces-seed1"


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("watched") / "runs"
    for protocol in ("pisces", "fedbuff"):
        for seed in (1, 2):
            lines = some_lines(protocol, seed, num=60)
            make_run(root / "demo" / f"{protocol}-seed{seed}", lines, protocol=protocol, seed=seed)
    return root


@pytest.fixture(scope="module")
def server(folder: Path, opened: Any) -> Iterator[Server]:
    with serving(folder) as running:
        yield running


OpenTab = Callable[..., Tab]


@pytest.fixture
def open_tab(opened: Any, tmp_path: Path) -> Iterator[OpenTab]:
    """Opens pages, and at the end sees that nothing went wrong in them."""
    tabs: list[Tab] = []

    def open_(
        link: str,
        *,
        width: int = 1440,
        theme: str = "light",
        ready: Callable[[Any], None] = lambda _: None,
        until: str = "load",
    ) -> Tab:
        context = opened.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
        )
        context.set_default_timeout(45_000)
        tab = Tab(context.new_page(), shots_folder(tmp_path))
        tabs.append(tab)
        ready(tab.page)
        tab.page.goto(link, wait_until=until)
        return tab

    yield open_
    for tab in tabs:
        tab.check()
        tab.page.context.close()


def of(server: Server, run: str, tab: str = "") -> str:
    return f"{server.link}#/run/{quote(run, safe='')}/{tab}"


def tile(tab: Tab, name: str) -> str:
    """The number under that name."""
    found = tab.page.locator(".tile", has=tab.page.get_by_text(name, exact=True))
    return str(found.locator(".big").inner_text())


def drawn(tab: Tab, num: int = 1) -> None:
    """Wait until so many figures are drawn."""
    tab.until("([num]) => document.querySelectorAll('.plot .main-svg').length >= num", num)


def asked_again(tab: Tab, num: int = 2) -> None:
    """Wait until the page has had so many more answers, whatever they were."""
    done = "performance.getEntriesByType('resource').filter((e) => e.name.includes('/api/')).length"
    tab.until(f"([num]) => {done} >= num", tab.page.evaluate(done) + num)


class Writer:
    """Writes a log a few lines at a time, as a run would."""

    def __init__(self, run: Path, lines: list[Line]) -> None:
        self._path, self._lines = run / "events.jsonl", lines
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _write(self) -> None:
        with self._path.open("ab") as file:
            for first in range(0, len(self._lines), 6):
                if self._ending.wait(0.1):
                    return
                file.write(b"".join(map(encode, self._lines[first : first + 6])))
                file.flush()


def test_the_numbers_of_a_live_run_move(folder: Path, server: Server, open_tab: OpenTab) -> None:
    lines = some_lines(num=60)
    run = make_run(folder / "live", lines[:100])
    tab = open_tab(server.link)
    tab.page.get_by_role("link", name="live").click()
    drawn(tab)
    before = int(tile(tab, "Versions"))
    tab.shot("live-begins")
    with Writer(run, lines[100:-1]):
        tab.until(
            "([before]) => Number([...document.querySelectorAll('.tile')]"
            ".find((tile) => tile.innerText.startsWith('Versions'))"
            ".querySelector('.big').innerText) > before + 2",
            before,
        )
    tab.shot("live-goes-on")
    # A resume cuts the log to where the run goes on from.
    with (run / "events.jsonl").open("r+b") as file:
        file.truncate(sum(len(encode(line)) for line in lines[:50]))
    tab.until(
        "([before]) => Number([...document.querySelectorAll('.tile')]"
        ".find((tile) => tile.innerText.startsWith('Versions'))"
        ".querySelector('.big').innerText) < before",
        before,
    )
    with (run / "events.jsonl").open("ab") as file:
        file.write(b"".join(map(encode, lines[50:])))
    tab.page.locator(".badge", has_text="finished").first.wait_for()
    tab.shot("live-is-over")


def test_a_run_that_is_not_there_yet_appears(tmp_path: Path, open_tab: OpenTab) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    with serving(None, cwd=tmp_path) as server:
        tab = open_tab(server.link)
        tab.page.get_by_text("No runs in runs yet.").wait_for()
        tab.shot("empty")
        command = [sys.executable, "-m", "pisces.cli.main", "run", "small.toml", "-q"]
        made = subprocess.Popen([*command, "--out", "runs/first"], cwd=tmp_path)
        try:
            tab.page.get_by_role("link", name="first").click(timeout=40_000)
            tab.page.locator(".badge", has_text="finished").wait_for(timeout=40_000)
            assert made.wait(timeout=20) == 0
        finally:
            made.kill()
        drawn(tab)
        tab.shot("real-run")


def test_a_run_that_is_replaced_is_shown_again(tmp_path: Path, open_tab: OpenTab) -> None:
    with serving(tmp_path) as server:
        tab = open_tab(of(server, "later"))
        tab.page.get_by_text("no such run in the folder", exact=False).wait_for()
        tab.shot("not-there-yet")
        make_run(tmp_path / "later", some_lines())
        drawn(tab)
    missing = "the server responded with a status of 404"
    tab.wrongs[:] = [wrong for wrong in tab.wrongs if missing not in wrong]


def test_a_table_sorted_by_a_term_goes_on_with_a_run_that_has_none_such(
    tmp_path: Path, open_tab: OpenTab
) -> None:
    make_run(tmp_path / "run", some_lines("pisces", num=30))
    make_run(tmp_path / "next", some_lines("oort", num=30), protocol="oort")
    with serving(tmp_path) as server:
        tab = open_tab(of(server, "run", "clients"))
        tab.page.get_by_role("button", name="Discount").click()
        tab.until("() => document.querySelector('th[aria-sort]')?.innerText.startsWith('Discount')")
        (tmp_path / "run").rename(tmp_path / "first")
        (tmp_path / "next").rename(tmp_path / "run")
        tab.page.get_by_role("button", name="Slowdown").wait_for()
        tab.until("() => document.querySelector('th[aria-sort]')?.innerText.startsWith('Client')")
        tab.page.locator("#banner").wait_for(state="hidden")
    of_status = "the server responded with a status of 40"
    tab.wrongs[:] = [wrong for wrong in tab.wrongs if of_status not in wrong]


def test_a_log_without_an_end_says_what_to_do(tmp_path: Path, open_tab: OpenTab) -> None:
    lines = some_lines()
    silent, damaged = make_run(tmp_path / "silent", lines[:40]), make_run(tmp_path / "hurt", lines)
    (damaged / "events.jsonl").write_bytes(b"".join(map(encode, lines[:40])) + b"{garbage}\n")
    stopped = {"kind": "stopped", "at": lines[-1]["at"], "reason": "interrupted"}
    make_run(tmp_path / "interrupted", [*lines[:-1], stopped])
    empty = make_run(tmp_path / "empty", [])
    some = {"kind": "sampled", "at": 0.0, "share": 0.3}
    make_run(tmp_path / "sampled", [some, *lines])
    for run in (silent, damaged, empty):
        os.utime(run / "events.jsonl", (time.time() - 4000,) * 2)
    words = {
        "silent": "silent: nobody has written for 1 h 6 min; pisces resume goes on with it",
        "hurt": "damaged",
        "sampled": "sampled",
        "interrupted": "interrupted: it has no checkpoints: the command that made it makes it "
        "again, with the same --out",
        "empty": "not begun: nobody has written for 1 h 6 min; pisces resume begins it",
    }
    with serving(tmp_path) as server:
        tab = open_tab(server.link, width=375)
        for name, told in words.items():
            tab.page.goto(of(server, name))
            tab.page.locator(".head .badge", has_text=told).wait_for()
            assert tab.page.locator(".head .badge").inner_text() == told
            assert tab.fits(), name
            tab.shot(f"narrow-{name}")
        tab.page.goto(of(server, "sampled"))
        tab.page.get_by_text("has the lines of some clients only, and is not shown").wait_for()
        assert not tab.page.locator(".tiles").first.is_visible()
        tab.page.goto(server.link)
        tab.page.locator("tr", has_text="sampled").get_by_text("not shown").wait_for()
        assert "log damaged" not in tab.page.locator("main").inner_text()


def test_the_list_says_what_nobody_began_and_how_long_ago_it_was(
    tmp_path: Path, open_tab: OpenTab
) -> None:
    for name, age_s in (("old", 4000.0), ("new", 20.0), ("soon", 57.0)):
        run = make_run(tmp_path / name, [])
        os.utime(run / "events.jsonl", (time.time() - age_s,) * 2)
    with serving(tmp_path) as server:
        tab = open_tab(server.link, ready=lambda page: page.add_init_script(TEN_MINUTES_SLOW))
        page = tab.page
        page.locator("tr", has_text="old").get_by_text("not begun", exact=True).wait_for()
        row = page.locator("tr", has_text="new")
        row.get_by_text("about to begin", exact=True).wait_for()
        row.get_by_text(re.compile(r"^[2-5]\d s ago$")).wait_for()
        # Nothing changes but the time, and it is told nevertheless.
        row = page.locator("tr", has_text="soon")
        row.get_by_text("1 min ago", exact=True).wait_for()
        row.get_by_text("not begun", exact=True).wait_for()
        page.get_by_text("(1 about to begin, 2 not begun)").wait_for()
        page.get_by_label("State").select_option("about to begin")
        tab.until("() => document.querySelectorAll('tbody tr').length === 1")


TEN_MINUTES_SLOW = "const now = Date.now; Date.now = () => now() - 600e3"


def test_numbers_of_tasks_add_up_and_say_whose_score_does_not_count(
    tmp_path: Path, open_tab: OpenTab
) -> None:
    lines = some_lines(num=12)
    at = lines[-1]["at"]
    idle = [{"kind": "joined", "at": 0.0, "client": 100 + n, "num_examples": 1} for n in range(48)]
    own = {"at": at, "client": 1}
    end = [
        {**own, "kind": "started", "task": 9000, "version": 1},
        {**own, "kind": "started", "task": 9001, "version": 1},
        {**own, "kind": "left", "task": 9000, "reason": "went"},
        {**own, "kind": "distrusted"},
    ]
    make_run(tmp_path / "a", [*idle, *lines[:-1], *end])
    with serving(tmp_path) as server:
        tab = open_tab(of(server, "a"))
        drawn(tab)
        failed = tab.page.locator(".tiles.small .tile", has_text="Failed")
        assert "1 left" in failed.inner_text()
        assert "by the wall; " in tab.page.locator(".tile", has_text="Time left").inner_text()
        tab.shot("tasks-add-up")
        tab.page.goto(f"{of(server, 'a', 'clients')}")
        drawn(tab)
        pages = tab.page.get_by_role("group", name="Clients shown", include_hidden=True)
        assert not pages.is_visible(), "of 60 clients 12 ever worked"
        tab.page.goto(f"{of(server, 'a', 'clients')}/1")
        tab.page.get_by_text("does not count: distrusted").wait_for()
        picks = tab.page.locator(".tile", has_text="Picks").inner_text()
        assert "1 left, 1 running" in picks
        first, *others = [int(found) for found in re.findall(r"\d+", picks)]
        assert first == sum(others)
        tab.shot("client-adds-up")


def test_a_time_stands_in_one_line(tmp_path: Path, open_tab: OpenTab) -> None:
    lines = [{**line, "at": 20.0 * line["at"]} for line in some_lines()]
    make_run(tmp_path / "a", lines)
    with serving(tmp_path) as server:
        tab = open_tab(of(server, "a"))
        drawn(tab)
        assert re.fullmatch(r"\d\d\d s", tile(tab, "Time"))
        heights = (
            "[...document.querySelectorAll('.tiles:not(.small) .big')].map((b) => b.offsetHeight)"
        )
        assert len(set(tab.page.evaluate(heights))) == 1


def test_the_table_is_sorted_filtered_and_turned(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(of(server, RUN, "clients"))
    head = tab.page.get_by_role("columnheader", name="Picks")
    rows = tab.page.locator("tbody tr")
    rows.nth(5).wait_for()
    head.get_by_role("button").press("Enter")  # by keyboard
    tab.until(
        "() => document.querySelector('th[aria-sort=descending]')?.innerText.startsWith('Picks')"
    )
    tab.until(PICKS_DESCEND)
    assert tab.page.evaluate("document.activeElement.innerText").startswith("Picks")
    head.get_by_role("button").click()
    tab.until("() => document.querySelector('th[aria-sort=ascending]')")
    tab.page.get_by_role("button", name="Next").last.click()
    tab.page.get_by_text("26 to 50 of 60").wait_for()
    tab.page.get_by_label("Find a client").fill("59")
    tab.until("() => document.querySelectorAll('tbody tr').length === 1")
    tab.page.get_by_label("Find a client").fill("nobody")
    tab.page.get_by_text("No client fits").wait_for()


PICKS_DESCEND = """() => {
    const heads = [...document.querySelectorAll('th')];
    const at = heads.findIndex((th) => th.innerText.startsWith('Picks'));
    const rows = [...document.querySelectorAll('tbody tr')];
    const picks = rows.map((row) => Number(row.children[at].innerText));
    return picks.length > 5 && picks[0] > picks.at(-1)
        && picks.every((value, i) => i === 0 || value <= picks[i - 1]);
}"""


def span(tab: Tab) -> list[float]:
    found = tab.page.evaluate("document.querySelector('.plot').layout.xaxis.range")
    return [float(value) for value in found]


def test_the_timeline_is_zoomed(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(of(server, RUN, "clients"))
    drawn(tab)
    whole = span(tab)
    box = tab.page.locator(".nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2
    with tab.page.expect_response(re.compile("name=timeline.*from=")) as asked:
        tab.page.mouse.move(box["x"] + 0.3 * box["width"], y)
        tab.page.mouse.down()
        tab.page.mouse.move(box["x"] + 0.6 * box["width"], y, steps=5)
        tab.page.mouse.up()
    assert asked.value.status == 200
    tab.until("() => !document.querySelector('[aria-label=\"Show all the time\"]').disabled")
    near = span(tab)
    assert near[0] > whole[0]
    assert near[1] < whole[1]
    tab.shot("timeline-zoomed")
    tab.page.get_by_role("button", name="Zoom in").press("Enter")
    tab.until(
        "([width]) => { const [a, b] = document.querySelector('.plot').layout.xaxis.range;"
        " return b - a < width * 0.6; }",
        near[1] - near[0],
    )
    tab.page.get_by_role("button", name="Show all the time").click()
    tab.until(
        "([whole]) => Math.abs(document.querySelector('.plot').layout.xaxis.range[1] - whole) < 1",
        whole[1],
    )
    tab.page.get_by_label("Colour by").select_option("outcome")
    tab.page.get_by_text("aggregated", exact=True).first.wait_for()
    tab.shot("timeline-outcomes")


def test_a_client_says_why(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(of(server, RUN, "clients"))
    tab.page.get_by_role("link", name="3", exact=True).click()
    tab.page.get_by_role("heading", name="Client 3").wait_for()
    tab.page.get_by_role("region", name="Decisions").get_by_text("utility").first.wait_for()
    tab.page.get_by_role("region", name="Tasks").locator("tbody tr").first.wait_for()
    tab.shot("client")
    tab.page.go_back()
    tab.page.get_by_role("heading", name="Every client").wait_for()


def test_decisions_are_turned_and_chosen_by_fate(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(of(server, RUN, "clients/3"))
    tab.page.get_by_text("Of ", exact=False).get_by_text("decisions: picked").wait_for()
    page = tab.page.get_by_label("Why it was picked or not")
    page.get_by_role("button", name="Next").click()
    page.get_by_text("21 to ").wait_for()
    asked_again(tab, 4)  # fewer tasks than that do not turn it back
    assert page.get_by_text("21 to ").is_visible()
    page.get_by_label("Up to second").fill("20")
    page.get_by_label("Up to second").press("Enter")
    first = "[...document.querySelectorAll('[aria-label=Decisions] td:first-child')]"
    instants = f"{first}.map((td) => parseFloat(td.innerText))"
    tab.until(f"() => {instants}.length > 0 && {instants}.every((at) => at <= 20)")
    page.get_by_label("Up to second").fill("")
    page.get_by_label("Up to second").press("Enter")
    page.get_by_label("Fate").select_option("picked")
    fates = "[...document.querySelectorAll('[aria-label=Decisions] td:nth-child(2)')]"
    tab.until(f"() => {fates}.every((td) => td.innerText === 'picked')")
    tab.shot("client-fates")


@pytest.mark.parametrize("place", ["nothing", f"run/{quote(RUN, safe='')}/client/14"])
def test_an_address_that_leads_nowhere_says_so(
    server: Server, open_tab: OpenTab, place: str
) -> None:
    tab = open_tab(f"{server.link}#/{place}")
    tab.page.get_by_text("There is no such page.").wait_for()
    tab.page.locator(".empty a").click()
    where = "Client 14" if "client" in place else "Runs"
    tab.page.get_by_role("heading", name=where, exact=True).wait_for()


def test_a_client_that_is_not_there_has_no_tables(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(of(server, RUN, "clients/999"))
    tab.page.get_by_text("tells of no client 999", exact=False).wait_for()
    assert tab.page.inner_text("#banner").startswith("demo/pisces-seed1 ")
    assert not tab.page.get_by_role("region", name="Tasks").is_visible()
    tab.shot("client-missing")
    tab.expected = "status of 422"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("aggregations", [figures.intervals, figures.contributors, figures.staleness]),
        ("outliers", [figures.losses]),
    ],
)
def test_the_other_pages(
    folder: Path,
    server: Server,
    open_tab: OpenTab,
    name: str,
    shown: list[Callable[[Ledger], figures.Figure]],
) -> None:
    tab = open_tab(of(server, RUN, name))
    drawn(tab, len(shown))
    tab.shot(name)
    made = [draw(Ledger.whole(folder / RUN)) for draw in shown]
    told = tab.page.locator("figure figcaption .words").all_inner_texts()
    assert told == [figure.words for figure in made]
    # What is drawn is what was sent: as many traces, each with all its points.
    num_points = (
        "() => [...document.querySelectorAll('.plot')].map(p => p.data.map(t => t.x.length))"
    )
    assert tab.page.evaluate(num_points) == [
        [len(trace["x"]) for trace in figure.data] for figure in made
    ]


def test_quantities_are_told_as_in_figures_and_reports(server: Server, open_tab: OpenTab) -> None:
    numbers = [0.00042, 0.42, 0.999, 1.0, 7.53, 9.94, 12.0, 310.2, 999.4, 9999.0, 10_000.0, 1e6]
    sizes = [0, 812, 999, 1000, 9_994, 19_500, 99_940, 999_400, 999_600, 999.7e6, 1.2e9, 5e15]
    told = open_tab(server.link).page.evaluate(
        """async ([numbers, sizes]) => {
            const { duration, bytes } = await import("/static/words.js");
            return [numbers.map(duration), sizes.map(bytes)];
        }""",
        [numbers, sizes],
    )
    assert told == [list(map(duration, numbers)), list(map(in_bytes, sizes))]


def test_a_value_is_told_from_the_target_it_has_not_met(server: Server, open_tab: OpenTab) -> None:
    values = [(0.94986, 0.95), (0.95, 0.95), (0.9512, 0.95), (0.94986, None), (0.95000001, 0.95)]
    told = open_tab(server.link).page.evaluate(
        """async ([values]) => {
            const { metric } = await import("/static/words.js");
            return values.map(([value, target]) => metric(value, target));
        }""",
        [values],
    )
    assert told == ["0.9499", "0.950", "0.951", "0.950", "0.95000001"]
    assert [measured(*value) for value in values] == told  # as in terminals


def test_time_left_says_when_a_run_may_end_before(server: Server, open_tab: OpenTab) -> None:
    told = open_tab(server.link).page.evaluate(
        """async () => {
            const { timeLeft } = await import("/static/words.js");
            const run = { state: "running", left_s: 90, may_end_early: false };
            const cases = [{}, { may_end_early: true }, { left_s: null }, { state: "finished" }];
            return cases.map((other) => timeLeft({ ...run, ...other }));
        }"""
    )
    assert told == ["about 1 min 30 s", "at most about 1 min 30 s", "", ""]


def test_the_theme_is_switched_and_remembered(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(of(server, RUN))
    drawn(tab)
    light = tab.page.evaluate(PAPER)
    tab.page.get_by_label("Theme").select_option("dark")
    tab.until(f"([light]) => ({PAPER}) !== light", light)
    ink = "getComputedStyle(document.querySelector('.xtick text')).fill"
    assert min(map(int, re.findall(r"\d+", tab.page.evaluate(ink))[:3])) > 120
    tab.shot("dark")
    tab.page.reload()
    assert tab.page.evaluate(PAPER) != light
    assert tab.page.get_by_label("Theme").input_value() == "dark"


PAPER = "getComputedStyle(document.documentElement).backgroundColor"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_fits_a_telephone(server: Server, open_tab: OpenTab, theme: str) -> None:
    tab = open_tab(server.link, width=375, theme=theme)
    tab.page.get_by_role("link", name=RUN).wait_for()
    assert tab.fits()
    tab.shot(f"narrow-{theme}-runs")
    for name in ("overview", "clients", "clients/3", "aggregations", "outliers"):
        tab.page.goto(of(server, RUN, name))
        if name != "clients/3":
            drawn(tab)
        else:
            tab.page.get_by_role("region", name="Decisions").locator("tr").nth(1).wait_for()
        assert tab.fits(), name
        tab.shot(f"narrow-{theme}-{name.replace('/', '-')}")


def test_runs_are_chosen_and_compared(folder: Path, server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(server.link)
    for seed in (1, 2):
        for protocol in ("pisces", "fedbuff"):
            tab.page.get_by_label(f"Compare demo/{protocol}-seed{seed}").check()
    tab.page.get_by_role("link", name="Compare 4 runs").click()
    tab.page.get_by_label("Target", exact=True).fill("0.5")
    tab.page.get_by_label("Target", exact=True).press("Enter")
    drawn(tab)
    tab.until("() => document.querySelectorAll('section[aria-label=Costs] tbody tr').length === 4")
    heads = tab.page.locator("section[aria-label=Costs] thead").inner_text().split("\t")
    assert (heads[3], heads[4], heads[5]) == ("Ended by", "Time", "Wall time")
    times = tab.page.locator("section[aria-label=Costs] tbody td:nth-child(5)").all_inner_texts()
    ends = [
        Run.open(folder / "demo" / run).counts.at for run in sorted(os.listdir(folder / "demo"))
    ]
    assert sorted(times) == sorted(map(duration, ends))
    tab.shot("compare")
    tab.page.get_by_role("button", name="Take demo/fedbuff-seed2 out").click()
    tab.until("() => document.querySelectorAll('.chips li').length === 3")
    assert "target=0.5" in tab.page.url


def test_a_run_that_is_gone_can_be_taken_out_of_a_comparison(
    server: Server, open_tab: OpenTab
) -> None:
    tab = open_tab(f"{server.link}#/compare?run={quote(RUN)}&run=gone", width=375)
    drawn(tab)
    tab.page.get_by_text("gone is left out: no such run", exact=False).wait_for()
    tab.page.get_by_role("button", name="Take gone out").click()
    tab.until("() => document.querySelectorAll('.chips li').length === 1")
    tab.page.get_by_text("gone is left out", exact=False).wait_for(state="hidden")


def test_the_names_of_axes_fit_a_telephone(server: Server, open_tab: OpenTab) -> None:
    runs = "&".join(f"run=demo/{p}-seed{s}" for p in ("pisces", "fedbuff") for s in (1, 2))
    tab = open_tab(f"{server.link}#/compare?{runs}&target=0.3", width=375)
    drawn(tab, 3)
    tab.shot("narrow-compare")
    outside = """() => [...document.querySelectorAll(".xtitle, .ytitle")].filter((title) => {
        const [inner, outer] = [title, title.closest(".plot")].map((one) => one.getBoundingClientRect());
        return inner.left < outer.left || inner.right > outer.right || inner.top < outer.top;
    }).map((title) => title.textContent)"""  # noqa: E501
    assert tab.page.evaluate(outside) == []


def test_the_page_is_reached_by_keyboard(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(server.link)
    tab.page.get_by_role("link", name=RUN).wait_for()
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.id") == "skip"
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "main"
    tab.page.get_by_role("link", name=RUN).press("Enter")
    tab.page.get_by_role("heading", level=1, name="pisces (seed 1)").wait_for()
    named = """() => [...document.querySelectorAll("button, select, input, a, progress, [role=img]")]
        .filter((one) => !(one.ariaLabel || one.innerText.trim() || one.labels?.length))
        .map((one) => one.outerHTML)"""  # noqa: E501
    for name in ("overview", "clients", "outliers"):
        tab.page.goto(of(server, RUN, name))
        drawn(tab)
        assert tab.page.evaluate(named) == []


def test_the_page_survives_the_server(folder: Path, open_tab: OpenTab) -> None:
    first = start_server(folder)
    tab = open_tab(of(first, RUN))
    drawn(tab)
    first.end(signal.SIGKILL)
    tab.page.get_by_text("not reachable, trying again").wait_for()
    assert tile(tab, "Versions")  # what there was stays
    tab.shot("not-reachable")
    with serving(folder, "--port", str(first.port)):
        tab.page.locator("#banner").wait_for(state="hidden")


# --- answers that are slow, fail or come in another order ----------------------------------------


def held(tab: Tab, routes: list[Any], num: int = 1) -> None:
    """Wait until so many questions are held back."""
    until = time.monotonic() + 30.0
    while len(routes) < num:
        assert time.monotonic() < until
        tab.page.wait_for_timeout(20)


def test_a_late_answer_does_not_take_the_place_of_a_newer(
    server: Server, open_tab: OpenTab
) -> None:
    tab = open_tab(of(server, RUN, "clients"))
    rows = tab.page.locator("tbody tr")
    rows.nth(5).wait_for()
    late: list[Any] = []
    tab.page.route("**/api/clients?*find=x*", lambda route: late.append(route))
    find = tab.page.get_by_label("Find a client")
    find.fill("x")
    held(tab, late)
    find.fill("3")
    tab.until("() => document.querySelectorAll('tbody tr').length === 15")
    for route in late:
        with suppress(Exception):  # whoever asked has gone on
            route.continue_()
    tab.page.wait_for_timeout(500)
    assert rows.count() == 15
    assert find.input_value() == "3"


def test_an_empty_page_that_is_late_turns_nothing_back(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(of(server, RUN, "clients"))
    tab.page.get_by_text("1 to 25 of 60").wait_for()
    late: list[Any] = []
    tab.page.route("**/api/clients?*first=25*", lambda route: late.append(route), times=1)
    turn = tab.page.get_by_role("button", name="Next").last
    turn.click()
    held(tab, late)
    tab.page.get_by_label("Find a client").fill("5")
    tab.until("() => document.querySelectorAll('tbody tr').length === 15")
    with suppress(Exception):
        late[0].fulfill(json={"revision": "x", "rows": [], "found": 60, "first": 25, "terms": []})
    tab.page.wait_for_timeout(300)
    assert tab.page.locator("tbody tr").count() == 15


def test_a_row_that_cannot_be_made_is_told_for_as_long_as_it_is_there(
    server: Server, open_tab: OpenTab
) -> None:
    """An answer that did not change is not sent again: it must not pass for shown."""
    rows: list[dict[str, Any]] = [{"id": "\ud800"}]
    told = {"revision": "x", "folder": "runs", "has_looked": True, "is_cut": False, "total": 1}

    def answer(route: Any) -> None:
        text = json.dumps({**told, "found": 1, "first": 0, "states": {}, "rows": rows})
        is_known = "since=" in route.request.url
        route.fulfill(**({"status": 204} if is_known else {"body": text}))

    tab = open_tab(server.link, ready=lambda page: page.route("**/api/runs*", answer))
    banner = tab.page.locator("#banner", has_text="stumbled")
    banner.wait_for()
    asked_again(tab, 4)
    assert banner.is_visible()
    tab.page.goto("about:blank")
    tab.wrongs.clear()  # it was meant to stumble


UPDATES = "performance.getEntriesByName('update').length"


def test_charts_that_cannot_be_loaded_keep_no_numbers_back(
    server: Server, open_tab: OpenTab
) -> None:
    def refuse(page: Any) -> None:
        page.route("**/plotly.min.js", lambda route: route.abort())
        # The page's own scripts come after that has failed.
        page.route("**/main.js", lambda route: (time.sleep(0.5), route.continue_()))

    tab = open_tab(of(server, RUN), ready=refuse)
    tab.page.get_by_text("The charts could not be loaded").wait_for()
    assert int(tile(tab, "Versions")) > 0
    tab.until(f"() => {UPDATES} > 1")  # it goes on
    tab.shot("no-charts")
    tab.expected = "ERR_FAILED"


def test_charts_that_are_slow_are_not_waited_for(server: Server, open_tab: OpenTab) -> None:
    slow: list[Any] = []
    tab = open_tab(
        of(server, RUN),
        ready=lambda page: page.route("**/plotly.min.js", lambda route: slow.append(route)),
        until="commit",
    )
    tab.until(f"() => {UPDATES} > 1")
    assert tab.page.locator(".plot .main-svg").count() == 0
    slow[0].continue_()
    drawn(tab)


def test_a_run_that_is_gone_is_all_that_is_said(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(of(server, RUN))
    drawn(tab)
    tab.page.route("**/api/overview?*", lambda route: route.abort())
    banner = tab.page.locator("#banner")
    banner.wait_for()
    gone = {"problem": "no such run in the folder watched"}
    tab.page.unroute("**/api/overview?*")
    tab.page.route("**/api/overview?*", lambda route: route.fulfill(status=404, json=gone))
    tab.page.get_by_text("no such run in the folder").wait_for()
    assert not banner.is_visible()
    tab.page.unroute("**/api/overview?*")
    drawn(tab)
    tab.expected = "Failed to load resource"


# --- whoever reads, types or chooses is not disturbed ---------------------------------------------

FOCUSED = "(document.activeElement.labels?.[0] ?? document.activeElement).innerText"


def test_what_is_selected_and_where_the_focus_is_stays(tmp_path: Path, open_tab: OpenTab) -> None:
    with serving(tmp_path) as server:
        tab = open_tab(server.link)
        told = f"pisces run my.toml --out {tmp_path.name}/first"
        command = tab.page.get_by_text(told, exact=True)
        command.evaluate("(code) => getSelection().selectAllChildren(code)")
        asked_again(tab, 4)
        assert tab.page.evaluate("String(getSelection())") == told

        tab.page.goto(of(server, "later"))
        tab.page.locator("main").get_by_role("link", name="All runs").focus()
        asked_again(tab, 4)
        assert tab.page.evaluate(FOCUSED) == "All runs"
        tab.expected = "status of 404"

        lines = some_lines(num=60)
        run = make_run(tmp_path / "live", lines[:100])
        tab.page.goto(of(server, "live"))
        drawn(tab)
        tab.page.locator(".path a").focus()
        before = tile(tab, "Versions")
        with Writer(run, lines[100:160]):
            tab.until(f"([before]) => ({VERSIONS}) !== before", before)
            assert tab.page.evaluate(FOCUSED) == "Runs"
        tab.page.goto(of(server, "live", "clients"))
        drawn(tab)
        tab.page.get_by_label("Colour by").focus()
        tab.page.keyboard.press("ArrowDown")
        tab.page.get_by_text("aggregated", exact=True).first.wait_for()
        assert str(tab.page.evaluate(FOCUSED)).startswith("Colour by")
        with Writer(run, lines[160:220]):
            asked_again(tab, 4)
        assert str(tab.page.evaluate(FOCUSED)).startswith("Colour by")


VERSIONS = (
    "[...document.querySelectorAll('.tile')].find((tile) => tile.innerText.startsWith('Versions'))"
    ".querySelector('.big').innerText"
)


def test_a_comparison_lets_whoever_types_finish(tmp_path: Path, open_tab: OpenTab) -> None:
    lines = some_lines()
    for name in "ab":
        make_run(tmp_path / name, lines[:-1])
    with serving(tmp_path) as server:
        tab = open_tab(f"{server.link}#/compare?run=a")
        drawn(tab)
        metric = tab.page.get_by_label("Metric")
        assert not metric.is_visible()
        target = tab.page.get_by_label("Target", exact=True)
        target.press_sequentially("0.")
        make_run(tmp_path / "c", lines)
        tab.until("() => [...document.querySelectorAll('option')].some((o) => o.value === 'c')")
        assert "target" not in tab.page.url
        target.press_sequentially("5")
        target.press("Enter")
        tab.until("() => location.hash.includes('target=0.5')")
        with (tmp_path / "a" / "events.jsonl").open("ab") as log:
            log.write(encode({"kind": "evaluated", "at": 40.0, "version": 1, "f1": 0.5}))
        metric.wait_for()
        metric.select_option("f1")
        tab.until("() => location.hash.includes('metric=f1')")
        drawn(tab)
        tab.shot("compare-metric")
        more = "&".join(f"run=gone{n}" for n in range(44))
        tab.page.goto(f"{server.link}#/compare?run=a&{more}")
        tab.page.get_by_text("of those chosen the last 5 are left out").wait_for()


def test_markup_out_of_logs_stays_text(tmp_path: Path, open_tab: OpenTab) -> None:
    lines = [dict(line) for line in some_lines()]
    for line in lines:
        if line["kind"] == "evaluated":
            line.pop("accuracy", None)
            line[MARKUP] = 0.5
        if line["kind"] in ("failed", "dropped"):
            line["reason"] = LINK
    name = f"{MARKUP} & <b>bold</b>".replace("/", "")
    run = make_run(tmp_path / "runs" / name, lines, protocol=MARKUP)
    people = [{"client": n, "name": f"{MARKUP} {LINK} {n}"} for n in range(8)]
    (run / "clients.jsonl").write_text("".join(json.dumps(person) + "\n" for person in people))
    with serving(tmp_path / "runs") as server:
        tab = open_tab(server.link)
        tab.page.get_by_role("link", name=name).wait_for()
        tab.page.get_by_label("Compare <img").check()
        for place in ("overview", "clients", "clients/3", "aggregations", "outliers", None):
            link = f"{server.link}#/compare?run={quote(name)}"
            tab.page.goto(link if place is None else of(server, name, place))
            tab.page.wait_for_timeout(300)
            if place not in ("clients/3", None):
                drawn(tab)
            tab.shot(f"markup-{(place or 'compare').replace('/', '-')}")
            assert tab.page.locator("img:not([src^='/static/'])").count() == 0
            hrefs = "[...document.querySelectorAll('a')].map((a) => a.getAttribute('href') ??"
            hrefs += " a.getAttribute('xlink:href') ?? '')"
            assert all(href.startswith("#") for href in tab.page.evaluate(hrefs))
        assert MARKUP in tab.page.inner_text("body")


def test_who_has_no_token_sees_nothing(folder: Path, opened: Any, open_tab: OpenTab) -> None:
    with serving(folder, "--token", "a-token-of-our-own-1") as server:
        tab = open_tab(server.link)
        tab.page.get_by_role("link", name=RUN).wait_for()
        assert "token" not in tab.page.url
        assert tab.page.evaluate("document.cookie") == ""
        tab.page.reload()
        tab.page.get_by_role("link", name=RUN).wait_for()
        other = opened.new_page()
        other.goto(server.link.partition("?")[0])
        assert "needs the whole link" in other.inner_text("body")
        other.close()


@pytest.mark.parametrize("value", [1e-20, 1e16, 1e300, 1.7e308])
def test_numbers_of_any_size_are_no_trouble(
    tmp_path: Path, open_tab: OpenTab, value: float
) -> None:
    lines = [
        {**line, **({"accuracy": value, "loss": value} if line["kind"] == "evaluated" else {})}
        for line in some_lines()
    ]
    make_run(tmp_path / "a", lines)
    with serving(tmp_path) as server:
        tab = open_tab(of(server, "a"))
        drawn(tab)
        tab.page.wait_for_timeout(500)
        if value > 1e100:
            tab.page.get_by_text("beyond 1e+100 cannot be drawn", exact=False).first.wait_for()
        tab.shot(f"values-{value:g}")


def test_losses_far_apart_are_drawn_without_a_style_of_their_own(
    tmp_path: Path, open_tab: OpenTab
) -> None:
    """Raised digits, as in powers of ten, would be styles that the page's policy blocks."""
    lines = some_lines()
    losses = itertools.cycle((0.0002, 0.0003, 900.0))
    far = [{**line, "loss": next(losses)} if "loss" in line else line for line in lines]
    make_run(tmp_path / "a", far)
    with serving(tmp_path) as server:
        tab = open_tab(of(server, "a", "outliers"))
        drawn(tab)
        axis = "document.querySelector('.js-plotly-plot')._fullLayout.yaxis"
        assert tab.page.evaluate(f"{axis}.type") == "log"
        tab.shot("losses-far-apart")


def test_a_metric_may_be_called_anything_on_a_telephone(tmp_path: Path, open_tab: OpenTab) -> None:
    name = "w" * 200
    lines = [{**line, name: 0.5} if line["kind"] == "evaluated" else line for line in some_lines()]
    more = f'stop = {{ time_s = 40.0, target = 0.9, metric = "{name}" }}\n'
    make_run(tmp_path / "a", lines)
    (tmp_path / "a" / "config.toml").write_text(f'protocol = "pisces"\n{more}')
    with serving(tmp_path) as server:
        tab = open_tab(of(server, "a"), width=375)
        drawn(tab)
        assert name in tab.page.inner_text("main")
        tab.shot("narrow-long-metric")
        assert tab.fits()

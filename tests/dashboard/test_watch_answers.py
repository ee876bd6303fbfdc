"""What the page is told, and what it may ask."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
from watching_pages import LINK, MARKUP, Reply, ask, make_run, read_all, some_lines

pytest.importorskip("starlette")
pytest.importorskip("plotly")

from pisces.dashboard import answers
from pisces.dashboard.answer import Answer
from pisces.dashboard.app import Kept, app
from pisces.dashboard.comparing import MAX_COMPARED
from pisces.dashboard.index import Index
from pisces.dashboard.listing import MAX_PAGE, RunRow
from pisces.dashboard.places import find
from pisces.report.figures.timeline import MOST_ROWS
from pisces.report.ledger import FATES, STATES, STATUSES, Ledger, wall
from pisces.report.ledger.book import NO_DECISIONS
from pisces.report.ledger.notes import Notes
from pisces.report.ledger.tables import OUTCOMES


class Page:
    """A page over a folder of runs, as far as they were read."""

    def __init__(self, root: Path) -> None:
        self.index = read_all(Index(root.resolve()))
        self.app = app(self.index)

    def ask(self, question: str, **query: Any) -> Reply:
        return ask(self.app, f"/api/{question}", query)

    def told(self, question: str, **query: Any) -> Any:
        reply = self.ask(question, **query)
        assert reply.status == 200, reply.body
        return reply.json


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("watched") / "runs"
    for protocol in ("pisces", "fedbuff"):
        for seed in (1, 2):
            lines = some_lines(protocol, seed)
            make_run(root / "demo" / f"{protocol}-seed{seed}", lines, protocol=protocol, seed=seed)
    make_run(root / "going", some_lines()[:-20])
    return root


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(folder)


RUN = "demo/pisces-seed1"


def test_the_list_has_every_run(page: Page) -> None:
    told = page.told("runs", order="id")
    assert [row["id"] for row in told["rows"]] == [
        *("demo/fedbuff-seed1", "demo/fedbuff-seed2", "demo/pisces-seed1", "demo/pisces-seed2"),
        "going",
    ]
    assert told["folder"] == "runs"
    assert (told["total"], told["found"]) == (5, 5)
    assert told["states"]["finished"] == 4


def test_every_run_may_be_added_to_others(page: Page) -> None:
    told = page.told("names")
    assert told["runs"] == [row["id"] for row in page.told("runs", order="id")["rows"]]
    assert page.ask("names", since=told["revision"]).status == 204


def test_the_list_is_sorted_filtered_and_cut(page: Page) -> None:
    told = page.told("runs", order="seed", descending="1", find="FEDBUFF", num="1", first="1")
    assert [row["id"] for row in told["rows"]] == ["demo/fedbuff-seed1"]
    assert told["found"] == 2
    assert page.told("runs", state="finished")["found"] == 4


def test_what_is_known_already_is_not_sent_again(page: Page) -> None:
    for question, query in (
        ("runs", {}),
        ("overview", {"run": RUN}),
        ("clients", {"run": RUN}),
        ("client", {"run": RUN, "client": "1"}),
        ("figure", {"run": RUN, "name": "curve"}),
        ("compare", {"run": [RUN, "going"]}),
    ):
        revision = page.told(question, **query)["revision"]
        again = page.ask(question, **query, since=revision)
        assert (again.status, again.body) == (204, b""), question
        assert page.ask(question, **query, since="of another server").status == 200


def test_one_run_at_a_glance(page: Page) -> None:
    told = page.told("overview", run=RUN)
    assert told["name"] == "pisces (seed 1)"
    assert told["state"] == "finished"
    assert told["is_whole"]
    assert told["num_clients"] == 8
    assert told["metric"] in told["metric_names"]


def test_clients_in_order(page: Page) -> None:
    told = page.told("clients", run=RUN, order="picks", descending="1", num="3")
    picks = [row["picks"] for row in told["rows"]]
    assert picks == sorted(picks, reverse=True)
    assert len(picks) == 3
    assert told["total"] == 8


def test_one_client_with_its_reasons(page: Page) -> None:
    told = page.told("client", run=RUN, client="3", num="5")
    assert told["facts"]["client"] == 3
    assert len(told["tasks"]) <= 5
    assert all(decision["why"] for decision in told["decisions"])
    assert told["num_decisions"] > 0


@pytest.mark.parametrize("name", sorted(answers.FIGURES))
def test_figures_come_with_their_words(page: Page, name: str) -> None:
    told = page.told("figure", run=RUN, name=name)
    assert told["words"]
    assert told.keys() == {"revision", "title", "words", "data", "layout"}


def timeline(page: Page, **query: Any) -> Any:
    return page.told("figure", run=RUN, name="timeline", **query)


def bars(figure: Any) -> list[tuple[float, float, str]]:
    """Where each of its bars begins and ends, and whose it is."""
    return [
        (start, start + long, client)
        for trace in figure["data"]
        for start, long, client in zip(
            trace.get("base") or [], trace["x"], trace["y"], strict=False
        )
    ]


def test_a_part_of_the_timeline(page: Page) -> None:
    whole, late = bars(timeline(page)), bars(timeline(page, **{"from": "20"}))
    early = bars(timeline(page, until="10"))
    assert min(begin for begin, _, _ in whole) < 10 < 20 < max(end for _, end, _ in whole)
    assert min(end for _, end, _ in late) >= 20
    assert max(begin for begin, _, _ in early) <= 10
    assert len(whole) > max(len(late), len(early))


def test_the_timeline_in_another_colour(page: Page) -> None:
    usual, other = timeline(page), timeline(page, colour="outcome")
    assert sorted(bars(usual)) == sorted(bars(other))
    scales = [["colorbar" in trace["marker"] for trace in told["data"]] for told in (usual, other)]
    assert (any(scales[0]), any(scales[1])) == (True, False)
    assert timeline(page, colour="staleness")["data"] == usual["data"]


def test_some_clients_of_the_timeline(page: Page) -> None:
    everybody = {client for _, _, client in bars(timeline(page))}
    few = {client for _, _, client in bars(timeline(page, first="2", num="3"))}
    assert (len(everybody), len(few)) == (8, 3)
    assert few < everybody


def test_runs_are_compared(page: Page) -> None:
    runs = [f"demo/{protocol}-seed{seed}" for protocol in ("pisces", "fedbuff") for seed in (1, 2)]
    told = page.told("compare", run=runs, target="0.3")
    assert [row["id"] for row in told["runs"]] == runs
    assert len(told["figures"]) == 3
    assert told["metrics"] == page.told("overview", run=runs[0])["metric_names"]
    assert [row["run"] for row in told["costs"]] == runs
    assert {"key": "wall_s", "label": "wall time", "unit": "seconds"} in told["quantities"]


def test_runs_about_different_metrics_are_compared_by_the_one_that_is_chosen(
    tmp_path: Path,
) -> None:
    for name in ("accuracy", "loss"):
        run = make_run(tmp_path / name, some_lines())
        (run / "config.toml").write_text(f'protocol = "{name}"\n[stop]\nmetric = "{name}"')
        lines = f'{{"kind":"evaluated","at":0.0,"version":0,"accuracy":0.1,"loss":{len(name)}}}\n'
        (run / "events.jsonl").write_text(lines)
    page = Page(tmp_path)
    told = page.told("compare", run=["accuracy", "loss"])
    assert told["figures"] == []
    assert "different metrics (accuracy, loss): choose one" in told["notes"][0]
    assert len(told["costs"]) == 2
    curves, *_ = page.told("compare", run=["accuracy", "loss"], metric="loss")["figures"]
    assert [trace["y"] for trace in curves["data"]] == [[8], [4]]


def test_runs_of_other_worlds_are_compared_with_a_warning(tmp_path: Path) -> None:
    for name, dataset in (("one", "digits"), ("same", "digits"), ("other", "mnist")):
        more = f'[data]\ndataset = "{dataset}"\nalpha = 1.0\n'
        make_run(tmp_path / "deep" / name, some_lines(), protocol=name, more=more)
    make_run(tmp_path / "untold", some_lines())
    (tmp_path / "untold" / "config.toml").unlink()
    page = Page(tmp_path)
    assert page.told("compare", run=["untold", "deep/one", "deep/same"])["notes"] == []
    assert page.told("compare", run=["untold"])["notes"] == []
    (note,) = page.told("compare", run=["untold", "deep/one", "deep/same", "deep/other"])["notes"]
    assert "not the same world: deep/one and deep/other differ in data.dataset;" in note
    assert str(tmp_path) not in note


def test_a_run_is_not_held_to_more_than_it_stopped_at(tmp_path: Path) -> None:
    def run(name: str, *, reason: str, best: float) -> None:
        lines = [
            {"kind": "evaluated", "at": 0.0, "version": 0, "accuracy": 0.1},
            {"kind": "evaluated", "at": 9.0, "version": 1, "accuracy": best},
            {"kind": "stopped", "at": 9.0, "reason": reason},
        ]
        make_run(tmp_path / name, lines, protocol=name)

    run("good", reason="target", best=0.95)  # its own target is 0.9
    run("late", reason="time", best=0.99)
    page = Page(tmp_path)
    both = ["good", "late"]
    for target in (None, 0.9, 0.5):
        for figure in page.told("compare", run=both, **({"target": target} if target else {}))[
            "figures"
        ]:
            assert "stopped once" not in figure["words"]
    curves, *others = page.told("compare", run=both, target=0.97)["figures"]
    assert "target" not in curves["words"]
    assert len(curves["data"]) == 2
    for figure in others:
        assert "good stopped once it had reached 0.9, so nobody knows" in figure["words"]
        assert str(tmp_path) not in figure["words"]
        assert figure["data"] == []
    assert page.told("compare", run="late", target=0.97)["figures"][1]["data"]


def test_large_answers_are_packed_for_those_who_take_it(page: Page) -> None:
    query = {"run": RUN, "client": "3", "num": "200"}
    plain = ask(page.app, "/api/client", query)
    packed = ask(page.app, "/api/client", query, headers=[("accept-encoding", "gzip, br")])
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json == plain.json
    assert len(packed.body) < len(plain.body) / 2


def test_who_asks_the_same_gets_what_was_worked_out(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = page.ask("figure", run=RUN, name="losses")
    monkeypatch.setitem(answers.FIGURES, "losses", lambda *_: lambda: pytest.fail("again"))
    assert page.ask("figure", run=RUN, name="losses").body == first.body


@pytest.mark.parametrize(
    "query",
    [
        *("since=1", "since=%31%32", "since=a%26b", "num=50&first=0", "num=050", "first=000"),
        *("order=changed%5fat", "descending=0&since=", "state=&find=", "find=&order=changed_at"),
    ],
)
def test_the_same_question_is_kept_once_however_it_is_spelt(
    page: Page, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = page.ask("runs")
    monkeypatch.setattr(RunRow, "of", lambda *_: pytest.fail("worked out again"))
    reply = ask(page.app, "/api/runs", query)
    assert (reply.status, reply.body) == (200, first.body)


def test_another_question_has_another_answer(page: Page) -> None:
    told = [
        page.ask("runs", **query).body
        for query in ({}, {"num": 1}, {"first": 1}, {"find": "going"}, {"state": "finished"})
    ]
    assert len(set(told)) == len(told)
    runs = [RUN, "going"]
    assert page.ask("compare", run=runs).body == page.ask("compare", run=[*runs, RUN]).body
    assert page.ask("compare", run=runs).body != page.ask("compare", run=runs[::-1]).body
    assert page.ask("compare", run=runs).body != page.ask("compare", run=runs, target=0.2).body


def answer(revision: str) -> Answer:
    return Answer(revision, lambda: {"told": revision})


def test_what_was_worked_out_counts_until_the_revision_moves_on() -> None:
    kept = Kept()
    first = kept.of("q", answer("1"))
    assert json.loads(first.text) == {"revision": "1", "told": "1"}
    assert kept.of("q", answer("1")) is first
    moved = kept.of("q", answer("2"))
    assert (moved.revision, json.loads(moved.text)["told"]) == ("2", "2")
    assert kept.of("q", answer("2")) is moved
    assert kept.of("other", answer("2")) is not moved


def test_two_who_ask_at_once_cost_as_much_as_one() -> None:
    kept, both, made = Kept(), threading.Barrier(2), []

    def make() -> dict[str, int]:
        time.sleep(0.2)
        made.append(1)
        return {"told": len(made)}

    def ask_too() -> bytes:
        both.wait()
        return kept.of("q", Answer("1", make)).text

    with ThreadPoolExecutor(2) as pool:
        first, second = [pool.submit(ask_too) for _ in range(2)]
    assert first.result() == second.result()
    assert made == [1]


def test_the_answers_that_were_asked_for_last_are_kept() -> None:
    kept = Kept(most=2)
    a, b = kept.of("a", answer("1")), kept.of("b", answer("1"))
    assert kept.of("a", answer("1")) is a
    kept.of("c", answer("1"))
    assert kept.of("a", answer("1")) is a
    assert kept.of("b", answer("1")) is not b


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        *("..", "../runs/going", "demo/../going", "/etc", "going/", "./going", "demo", "", "\0"),
        *("demo%2fpisces-seed1", "C:\\", "demo\\pisces-seed1", "GOING", "x" * 900),
    ],
)
@pytest.mark.parametrize("question", ["overview", "figure", "compare"])
def test_a_run_is_known_by_its_name_only(page: Page, question: str, run: str) -> None:
    reply = page.ask(question, run=run)
    assert reply.status in (400, 404)
    assert "/" not in reply.json["problem"]


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("runs", {"num": "0"}),
        ("runs", {"num": "201"}),
        ("runs", {"first": "-1"}),
        ("runs", {"first": "9" * 30}),
        ("runs", {"first": "1e3"}),
        ("runs", {"first": "٣"}),
        ("runs", {"order": "__class__"}),
        ("runs", {"order": MARKUP}),
        ("runs", {"state": "any"}),
        ("runs", {"descending": "yes"}),
        ("runs", {"find": "x" * 1001}),
        ("runs", {"find": ["a", "b"]}),
        ("runs", {"else": "1"}),
        ("overview", {"run": RUN, "metric": "loss"}),
        ("figure", {"run": RUN, "name": "curve", "colour": "outcome"}),
        ("names", {"first": "1"}),
        ("clients", {"run": RUN, "order": "terms"}),
        ("clients", {"run": RUN, "status": "odd"}),
        ("client", {"run": RUN}),
        ("client", {"run": RUN, "client": "-1"}),
        ("client", {"run": RUN, "client": str(2**40)}),
        ("figure", {"run": RUN, "name": "__init__"}),
        ("figure", {"run": RUN, "name": "curve", "metric": "no such"}),
        ("figure", {"run": RUN, "name": "timeline", "colour": "red"}),
        ("figure", {"run": RUN, "name": "timeline", "from": "nan"}),
        ("figure", {"run": RUN, "name": "timeline", "until": "inf"}),
        ("figure", {"run": RUN, "name": "timeline", "num": "100000"}),
        ("compare", {}),
        ("compare", {"run": [RUN] * 41}),
        ("compare", {"run": RUN, "target": "high"}),
    ],
)
def test_what_is_out_of_bounds_is_refused(page: Page, question: str, query: Any) -> None:
    reply = page.ask(question, **query)
    assert reply.status == 400, reply.body
    assert reply.json["problem"]


def test_queries_have_an_end(page: Page) -> None:
    assert ask(page.app, "/api/runs", "find=" + "x" * 20_000).status == 400
    assert ask(page.app, "/api/compare", "run=a&" * 300).status == 400
    assert ask(page.app, "/api/runs", "find=%ff").status == 400


def test_a_client_that_never_came_is_said_in_words(page: Page) -> None:
    reply = page.ask("client", run=RUN, client="4711")
    assert reply.status == 422
    assert "4711" in reply.json["problem"]


@pytest.mark.parametrize("path", ["/api/", "/api/none", "/api/runs/x", "/static/../app.py", "/x"])
def test_nothing_else_is_there(page: Page, path: str) -> None:
    assert ask(page.app, path).status == 404


def test_a_bug_shows_nothing_of_itself(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("in /home/somebody/secret.py")

    monkeypatch.setitem(answers.FIGURES, "staleness", broken)
    reply = page.ask("figure", run=RUN, name="staleness")
    assert reply.status == 500
    assert b"somebody" not in reply.body
    assert b"Traceback" not in reply.body


# --- folders that are not as they should be -------------------------------------------------------


def test_before_there_is_a_run(tmp_path: Path) -> None:
    told = Page(tmp_path / "runs").told("runs")
    assert (told["total"], told["has_looked"], told["rows"]) == (0, True, [])


def test_a_run_that_nobody_begins_is_counted_and_found_as_such(tmp_path: Path) -> None:
    old = make_run(tmp_path / "old", [])
    make_run(tmp_path / "new", [])
    os.utime(old / "events.jsonl", (time.time() - 4000,) * 2)
    page = Page(tmp_path)
    told = page.told("runs", state="unbegun")
    assert [row["id"] for row in told["rows"]] == ["old"]
    assert (told["states"]["unbegun"], told["states"]["empty"]) == (1, 1)
    assert page.told("overview", run="old")["state"] == "unbegun"


def test_what_a_log_does_not_tell_is_noted(tmp_path: Path) -> None:
    lines = some_lines()
    make_run(tmp_path / "told", lines)
    make_run(tmp_path / "untold", [line for line in lines if line["kind"] != "picked"])
    make_run(tmp_path / "new", [])
    # Nobody was picked yet: what is not recorded so far is not missing.
    make_run(tmp_path / "joined", [line for line in lines if line["kind"] == "joined"])
    page = Page(tmp_path)
    names = ("told", "untold", "new", "joined")
    notes = {name: page.told("overview", run=name)["note"] for name in names}
    assert notes == {"told": None, "untold": NO_DECISIONS, "new": None, "joined": None}
    assert page.told("client", run="untold", client="0")["note"] == NO_DECISIONS
    assert page.told("client", run="joined", client="0")["note"] is None


def test_how_long_nobody_wrote_is_told_again_every_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "a", some_lines()[:40])
    now = time.time()
    os.utime(run / "events.jsonl", (now - 4010,) * 2)
    monkeypatch.setattr(wall, "time", lambda: now)
    page = Page(tmp_path)
    told = page.told("overview", run="a")
    assert (told["state"], told["silent_s"]) == ("silent", pytest.approx(4010, abs=1))
    monkeypatch.setattr(wall, "time", lambda: now + 5)
    assert page.ask("overview", run="a", since=told["revision"]).status == 204
    monkeypatch.setattr(wall, "time", lambda: now + 65)
    later = page.told("overview", run="a", since=told["revision"])
    assert later["silent_s"] == pytest.approx(4075, abs=1)


def test_a_damaged_log_shows_what_there_is_and_the_problem(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "hurt", some_lines())
    text = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    (run / "events.jsonl").write_bytes(b"".join([*text[:60], b"\x00\xff{]\n", *text[60:]]))
    page = Page(tmp_path / "runs")
    told = page.told("overview", run="hurt")
    assert "line 61" in told["problem"]
    assert str(tmp_path) not in told["problem"]
    assert told["num_lines"] == 60
    assert page.told("figure", run="hurt", name="timeline")["data"]
    (row,) = page.told("runs")["rows"]
    assert row["problem"] == told["problem"]


def test_a_config_that_cannot_be_read_hides_where_it_is(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "odd", some_lines())
    (run / "config.toml").write_text("= = =\n")
    page = Page(tmp_path / "runs")
    assert page.told("runs")["total"] == 1
    for question in ("overview", "figure", "clients", "compare"):
        assert str(tmp_path).encode() not in page.ask(question, run="odd").body


def test_a_run_with_a_link_that_leads_out_is_not_read(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "run", some_lines())
    (tmp_path / "secret").write_text('protocol = "secret"\n')
    (run / "config.toml").unlink()
    (run / "config.toml").symlink_to(tmp_path / "secret")
    page = Page(tmp_path / "runs")
    (row,) = page.told("runs")["rows"]
    assert "leads out" in row["problem"]
    for question in ("overview", "figure", "clients", "compare"):
        reply = page.ask(question, run="run")
        assert reply.status == 422
        assert b"secret" not in reply.body


def test_runs_that_cannot_be_shown_do_not_keep_others_from_being_compared(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "here", some_lines())
    linked = make_run(tmp_path / "runs" / "linked", some_lines())
    (tmp_path / "secret").write_text("secret")
    (linked / "config.toml").unlink()
    (linked / "config.toml").symlink_to(tmp_path / "secret")
    page = Page(tmp_path / "runs")
    told = page.told("compare", run=["here", "gone", "linked"])
    assert [run["id"] for run in told["runs"]] == ["here"]
    assert [row["run"] for row in told["costs"]] == ["here"]
    assert {run["id"]: run["why"].split(":")[0] for run in told["left_out"]} == {
        "gone": "no such run in the folder watched",
        "linked": "config.toml is a link that leads out of the folder watched",
    }
    before = told["revision"]
    make_run(tmp_path / "runs" / "gone", some_lines(seed=2))
    page.index._scan_at = 0.0
    read_all(page.index)
    told = page.told("compare", run=["here", "gone", "linked"], since=before)
    assert [run["id"] for run in told["runs"]] == ["here", "gone"]


@pytest.mark.parametrize("has_config", [True, False])
def test_a_run_whose_name_is_no_text_is_shown_like_any_other(
    tmp_path: Path, has_config: bool
) -> None:
    try:
        run = make_run(tmp_path / os.fsdecode(b"bytes\xff\xfe"), some_lines())
    except OSError:
        pytest.skip("this file system takes text only")
    if not has_config:
        (run / "config.toml").unlink()
    make_run(tmp_path / "plain", some_lines())
    page = Page(tmp_path)
    odd = "bytes\\xff\\xfe"
    assert {row["id"] for row in page.told("runs")["rows"]} == {odd, "plain"}
    assert page.told("names")["runs"] == [odd, "plain"]
    assert page.told("overview", run=odd)["num_clients"] == 8
    assert page.told("client", run=odd, client=1)["facts"]["client"] == 1
    for name in answers.FIGURES:
        assert page.told("figure", run=odd, name=name)["words"]
    assert [cost["run"] for cost in page.told("compare", run=[odd, "plain"])["costs"]] == [
        *(odd, "plain")
    ]
    with (run / "events.jsonl").open("ab") as log:
        log.write(b"{broken}\n{}\n")
    assert "line" in Page(tmp_path).told("overview", run=odd)["problem"]


def test_a_sampled_log_is_neither_counted_nor_compared(tmp_path: Path) -> None:
    make_run(tmp_path / "a", some_lines())
    make_run(tmp_path / "b", [{"kind": "sampled", "at": 0.0, "share": 0.3}, *some_lines()])
    page = Page(tmp_path)
    _, row = page.told("runs", order="id")["rows"]
    assert (row["name"], row["state"]) == ("pisces (seed 1)", "sampled")
    assert (row["version"], row["num_updates"], row["num_clients"]) == (None, None, None)
    told = page.told("compare", run=["a", "b"])
    assert [run["id"] for run in told["runs"]] == ["a"]
    (left_out,) = told["left_out"]
    assert left_out["id"] == "b"
    assert "some clients only" in left_out["why"]


def test_why_none_can_be_compared_is_that_of_the_first(tmp_path: Path) -> None:
    linked = make_run(tmp_path / "runs" / "linked", some_lines())
    (tmp_path / "secret").write_text("secret")
    (linked / "config.toml").unlink()
    (linked / "config.toml").symlink_to(tmp_path / "secret")
    page = Page(tmp_path / "runs")
    first, last = page.ask("compare", run=["linked", "gone"]), page.ask("compare", run=["gone"])
    assert "leads out" in first.json["problem"]
    assert (first.status, last.status) == (422, 404)


def test_what_a_log_that_is_not_read_yet_may_have_is_not_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "a", some_lines())
    index = Index(tmp_path.resolve())
    index._take(find(index.root))  # found, and nothing read of it
    unread = app(index)
    by_score = {"run": "a", "order": "utility", "descending": "1"}
    for question, query in (
        ("clients", by_score),
        ("figure", {"run": "a", "name": "curve", "metric": "accuracy"}),
    ):
        assert ask(unread, f"/api/{question}", query).status == 200
    assert ask(unread, "/api/clients", {"run": "a", "order": "utility"}).json["rows"] == []
    read_all(index)
    rows = ask(unread, "/api/clients", by_score).json["rows"]
    known = [row["terms"]["utility"] for row in rows if row["terms"].get("utility") is not None]
    assert known == sorted(known, reverse=True)
    assert ask(unread, "/api/clients", {"run": "a", "order": "reward"}).status == 400
    refused = {"run": "a", "name": "curve", "metric": "none"}
    assert ask(unread, "/api/figure", refused).status == 400


def test_a_run_that_is_removed_is_said_to_be_gone(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "run", some_lines())
    page = Page(tmp_path / "runs")
    page.told("overview", run="run")
    shutil.rmtree(run)
    page.index._scan_at = 0.0
    read_all(page.index)
    reply = page.ask("overview", run="run")
    assert reply.status == 404
    assert "removed or renamed" in reply.json["problem"]


def test_markup_in_names_travels_as_text(tmp_path: Path) -> None:
    lines = [dict(line) for line in some_lines()]
    for line in lines:
        if line["kind"] == "evaluated":
            line[MARKUP] = 0.5
        if line["kind"] in ("failed", "dropped"):
            line["reason"] = LINK
    run = make_run(tmp_path / "runs" / MARKUP.replace("/", ""), lines, protocol=MARKUP)
    names = [{"client": number, "name": f"{LINK} {number}"} for number in range(8)]
    (run / "clients.jsonl").write_text("".join(json.dumps(line) + "\n" for line in names))
    page = Page(tmp_path / "runs")
    for question, query in (
        ("runs", {}),
        ("overview", {"run": run.name}),
        ("clients", {"run": run.name}),
        ("figure", {"run": run.name, "metric": MARKUP}),
        ("figure", {"run": run.name, "name": "timeline"}),
        ("compare", {"run": run.name}),
    ):
        reply = page.ask(question, **query)
        assert reply.headers["content-type"] == "application/json"
        # The charts take some markup. Titles and words beside them are put in as text.
        figures = reply.json.get("figures", [reply.json] if question == "figure" else [])
        for text in _strings([[figure["data"], figure["layout"]] for figure in figures]):
            assert "<img" not in text, text
            assert "<a " not in text, text


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _strings(part)]


# --- the files of the page ------------------------------------------------------------------------


def test_the_page_and_its_files_are_served(page: Page) -> None:
    html = ask(page.app, "/").body.decode()
    for part in html.split('"'):
        if part.startswith("/static/"):
            assert ask(page.app, part).status == 200, part
    assert "<script>" not in html
    assert " style=" not in html
    assert " on" not in html.split("<body>")[1].replace(" on ", "").replace(" one", "")


def test_a_file_that_is_known_is_not_sent_again(page: Page) -> None:
    first = ask(page.app, "/static/plotly.min.js")
    again = ask(
        page.app, "/static/plotly.min.js", headers=[("if-none-match", first.headers["etag"])]
    )
    assert (again.status, again.body) == (304, b"")
    assert b"plotly.js" in first.body[:200]


def test_files_go_packed_to_those_who_are_far_away(page: Page) -> None:
    far = app(page.index, pack_files=True)
    reply = ask(far, "/static/plotly.min.js", headers=[("accept-encoding", "gzip")])
    assert reply.headers["content-encoding"] == "gzip"
    assert len(reply.body) < 2_500_000


def test_no_script_of_ours_makes_markup(page: Page) -> None:
    static = Path(answers.__file__).parent / "static"
    for path in static.glob("*.js"):
        text = path.read_text()
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ):
            assert forbidden not in text, path.name


def test_the_page_knows_every_state_there_is(page: Page) -> None:
    words = ask(page.app, "/static/words.js").body.decode()
    tables = {"STATES": STATES, "STATUSES": STATUSES, "FATES": FATES, "OUTCOMES": OUTCOMES}
    for table, names in tables.items():
        told = words.partition(f"const {table} = {{")[2].partition("};")[0]
        keys = re.findall(r'([a-z ]+)"?: ["\[]', told)
        assert sorted(key.strip() for key in keys) == sorted(names)


def test_the_page_asks_for_what_there_is(page: Page) -> None:
    scripts = [ask(page.app, f"/static/{name}.js") for name in ("compare", "clients")]
    compare, clients = (script.body.decode() for script in scripts)
    (most,) = re.findall(r"const MOST = (\d+);", compare)
    assert int(most) == MAX_COMPARED
    (rows,) = re.findall(r"const ROWS = (\d+);", clients)
    assert int(rows) <= min(MOST_ROWS, MAX_PAGE), "the next page would leave some out"
    (colours,) = re.findall(r"const COLOURS = (\[.*\]);", clients)
    assert tuple(json.loads(colours)) == answers.COLOURS


# --- while a run goes on --------------------------------------------------------------------------

QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("runs", {}),
    ("overview", {"run": "going"}),
    ("clients", {"run": "going", "order": "score"}),
    ("client", {"run": "going", "client": 0}),
    ("compare", {"run": ["going", "demo/fedbuff-seed1"], "target": 0.6}),
    ("names", {}),
    *(("figure", {"run": "going", "name": name}) for name in answers.FIGURES),
]


class Watchful(Ledger):
    """A ledger that notices whoever looks at its notes without holding its lock."""

    caught: ClassVar[list[str]] = []

    @property
    def notes(self) -> Notes:
        if not self.lock._is_owned():  # type: ignore[attr-defined]
            self.caught.append("".join(traceback.format_stack(limit=4)[:-1]))
        return self._notes

    @notes.setter
    def notes(self, notes: Notes) -> None:
        self._notes = notes


def test_no_question_looks_at_a_ledger_that_is_being_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pisces.dashboard.index.Ledger", Watchful)
    page = Page(folder)
    Watchful.caught.clear()
    for question, query in QUESTIONS:
        page.told(question, **query)
    assert Watchful.caught == []
    page.index.find("going").ledger.notes  # type: ignore[union-attr] # noqa: B018
    assert len(Watchful.caught) == 1  # the test can see it


def test_damage_is_told_of_though_nothing_new_was_read(tmp_path: Path) -> None:
    make_run(tmp_path / "a", some_lines())
    page = Page(tmp_path)
    before = page.ask("overview", run="a")
    with (tmp_path / "a" / "events.jsonl").open("ab") as log:
        log.write(b"{broken}\n{}\n")
    page.index.ledger(page.index.runs()[0]).read()
    after = page.ask("overview", run="a")
    assert after.json["problem"] is not None
    assert after.json["revision"] != before.json["revision"]


def test_a_run_that_took_anothers_place_has_another_revision(tmp_path: Path) -> None:
    make_run(tmp_path / "a", some_lines(seed=1))
    page = Page(tmp_path)
    (watched,) = page.index.runs()
    before = page.told("compare", run="a")["revision"]
    watched.ledger = None  # let go
    shutil.rmtree(tmp_path / "a")
    make_run(tmp_path / "a", some_lines(seed=2))
    read_all(page.index)
    assert page.told("compare", run="a")["revision"] != before


def test_what_is_written_after_the_last_line_is_told_all_the_same(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", some_lines())
    page = Page(tmp_path)
    query = {"run": "a"}
    before = page.told("compare", **query)
    assert (before["costs"][0]["wall_s"], before["costs"][0]["bytes"]) == (None, None)
    (run / "summary.json").write_text('{"wall_s": 12.5}')
    told = page.told("compare", **query, since=before["revision"])
    assert (told["costs"][0]["wall_s"], told["costs"][0]["bytes"]) == (12.5, None)
    (run / "model.safetensors").write_bytes(b"x" * 10)
    assert page.told("compare", **query, since=told["revision"])["costs"][0]["model_bytes"] == 10
    rows = page.told("clients", **query)
    assert rows["rows"][0]["name"] is None
    (run / "clients.jsonl").write_text('{"client":0,"name":"Ada"}\n')
    assert page.told("clients", **query, since=rows["revision"])["rows"][0]["name"] == "Ada"


def test_a_run_that_goes_while_it_is_compared_is_told(tmp_path: Path) -> None:
    for name in "ab":
        make_run(tmp_path / name, some_lines())
    page = Page(tmp_path)
    before = page.told("compare", run=["a", "b"])
    assert before["left_out"] == []
    (tmp_path / "b" / "events.jsonl").unlink()
    page.index._scan_at = 0.0
    read_all(page.index)
    after = page.told("compare", run=["a", "b"], since=before["revision"])
    assert [run["id"] for run in after["left_out"]] == ["b"]
    assert after["revision"] != page.told("compare", run=["a"])["revision"]


def test_a_revision_may_come_back_however_many_runs_it_is_of(tmp_path: Path) -> None:
    names = [f"{number:0200}" for number in range(40)]
    make_run(tmp_path / names[0], some_lines())
    page = Page(tmp_path)
    revision = page.told("compare", run=names)["revision"]
    assert page.ask("compare", run=names, since=revision).status == 204


def test_a_config_that_cannot_be_read_hides_no_other_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / name, some_lines())
    (tmp_path / "b" / "config.toml").write_text("[[[")
    told = Page(tmp_path).told("compare", run=["a", "b"], target=0.5)
    assert [run["id"] for run in told["runs"]] == ["a", "b"]
    assert len(told["figures"][0]["data"]) == 2


def test_clients_are_sorted_by_the_terms_of_their_selector(tmp_path: Path) -> None:
    make_run(tmp_path / "a", some_lines("oort"), protocol="oort")
    page = Page(tmp_path)
    told = page.told("clients", run="a", order="reward", descending=1)
    assert told["terms"] == ["reward", "bonus", "slowdown", "score"]
    rewards = [row["terms"].get("reward") for row in told["rows"]]
    known = [reward for reward in rewards if reward is not None]
    assert known == sorted(known, reverse=True)
    assert len(set(known)) > 1
    assert page.ask("clients", run="a", order="utility").status == 400

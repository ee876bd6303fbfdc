"""The live page with 1 000 000 events and 10 000 clients: how long until one sees something.

    python benchmarks/page.py

A log is made up, `pisces watch` reads it, and a real browser without a window (Chromium, driven by
playwright) opens each page of the run, several times, each time as if for the first time. Then
lines are added, as by a run that goes on, and the page measures its own updates: from the question
to the last figure drawn; also those after its timeline is zoomed. At last a real run is timed, with
and without somebody watching it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from results import Row, collect, on_disk, parser, save, scratch

NUM_EVENTS, NUM_CLIENTS, CONCURRENCY = 1_000_000, 10_000, 200
PAGES = {
    "overview": "run/large/overview",
    "clients": "run/large/clients",
    "one client": "run/large/clients/7",
    "aggregations": "run/large/aggregations",
    "outliers": "run/large/outliers",
    "compare": "compare?run=large&run=other",  # the other log is as long, and grows no more
}
ZOOMS = ("Zoom in", "Zoom in", "Later", "Zoom in", "Earlier", "Zoom out", "Zoom in", "Later")
ROUNDS = 5
UPDATE_S = 12.0  # for which a growing log is watched
LINES_PER_S = 2000
RUN = """
[clients]
count = 200
concurrency = 20
[data]
size = 6
[model]
hidden = [16]
[train]
device = "cpu"
[stop]
time_s = %d
"""


# --- a log ----------------------------------------------------------------------------------------


def made_up(num_clients: int, concurrency: int, seed: int = 1) -> Iterator[str]:
    """Lines of a run that never ends: picks, starts, arrivals, versions, evaluations."""
    rng = np.random.default_rng(seed)
    for client in range(num_clients):
        yield f'{{"kind":"joined","at":0.0,"client":{client},"num_examples":{10 + client % 90}}}\n'
    now, version, task = 0.0, 0, 0
    running: dict[int, tuple[int, int, float]] = {}
    latency = 2.0 + 100.0 * rng.random(num_clients) ** 4
    while True:
        free = rng.integers(num_clients, size=30).tolist()
        chosen = list(dict.fromkeys(free))[:10]
        others = list(dict.fromkeys(free))[10:15]
        yield _picked(now, version, chosen, others, rng)
        for client in chosen:
            line = {"kind": "started", "at": now, "task": task, "client": client}
            yield json.dumps({**line, "version": version}) + "\n"
            running[task] = (client, version, now)
            task += 1
        if len(running) < concurrency:
            continue
        first = sorted(running, key=lambda t: running[t][2] + latency[running[t][0]])[:10]
        tasks = []
        for one in first:
            client, base, began = running.pop(one)
            now = max(now, began + latency[client])
            yield _arrived(now, one, client, base, now - began, rng)
            tasks.append((one, version - base))
        version += 1
        yield _aggregated(now, version, tasks)
        if version % 20 == 0:
            accuracy = 0.9 - 0.8 * np.exp(-version / 8000) + 0.01 * rng.standard_normal()
            line = {"kind": "evaluated", "at": now, "version": version, "accuracy": accuracy}
            yield json.dumps({**line, "loss": 2.5 - 2 * accuracy}) + "\n"


def _picked(
    at: float, version: int, chosen: list[int], others: list[int], rng: np.random.Generator
) -> str:
    def rows(num: int) -> list[list[float]]:
        utility, discount = 100 * rng.random(num), rng.random(num)
        found = np.stack([utility, discount, utility * discount], 1)
        return [[round(value, 4) for value in row] for row in found.tolist()]

    facts = {"slots": len(chosen), "num_free": 9000, "clients": chosen}
    terms = {"terms": ["utility", "discount", "score"], "scores": rows(len(chosen))}
    left = {"others": others, "other_scores": rows(len(others))}
    line = {"kind": "picked", "at": at, "version": version, **facts, **terms, **left}
    return json.dumps(line) + "\n"


def _arrived(
    at: float, task: int, client: int, version: int, took_s: float, rng: np.random.Generator
) -> str:
    loss = float(np.round(0.5 + rng.random(), 4))
    losses = {"loss": loss, "loss_rms": loss * 1.1, "loss_left": loss * 0.7}
    line = {"kind": "arrived", "at": at, "task": task, "client": client, "version": version}
    return json.dumps({**line, "num_examples": 50, **losses, "latency_s": took_s}) + "\n"


def _aggregated(at: float, version: int, tasks: Sequence[tuple[int, int]]) -> str:
    facts = {
        "tasks": [task for task, _ in tasks],
        "staleness": [staleness for _, staleness in tasks],
        "weights": [1 / len(tasks)] * len(tasks),
        "pace": {"slowest_s": 100.0, "limit_s": 2.0, "bound": 50},
    }
    return json.dumps({"kind": "aggregated", "at": at, "version": version, **facts}) + "\n"


def write_run(
    folder: Path, num_events: int, num_clients: int, protocol: str = "pisces"
) -> Iterator[str]:
    """A run folder with so many lines; gives those that come next."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'protocol = "{protocol}"\nseed = 1\n[clients]\ncount = {num_clients}\n'
        f"concurrency = {CONCURRENCY}\n[stop]\ntime_s = 1000000.0\ntarget = 0.85\n"
    )
    lines = made_up(num_clients, min(CONCURRENCY, num_clients // 2))
    with (folder / "events.jsonl").open("w") as file:
        file.writelines(next(lines) for _ in range(num_events))
    return lines


# --- who watches ----------------------------------------------------------------------------------


@contextmanager
def watching(folder: Path) -> Iterator[tuple[str, int]]:
    """`pisces watch`: its address and process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pisces", "watch", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield re.findall(r"http://\S+", process.stdout.readline())[0], process.pid
    finally:
        process.terminate()
        process.wait()


def told(link: str, question: str) -> Any:
    with urllib.request.urlopen(f"{link}api/{question}", timeout=60) as reply:
        return json.loads(reply.read())


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has had so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def indexed(link: str, run: str) -> tuple[float, float]:
    """How long until all was read, and the longest that anybody waited for an answer meanwhile."""
    began, longest = time.perf_counter(), 0.0
    while True:
        asked = time.perf_counter()
        try:
            glance = told(link, f"overview?run={run}")
        except urllib.error.HTTPError:
            glance = {"is_whole": False}
        longest = max(longest, time.perf_counter() - asked)
        if glance["is_whole"]:
            return time.perf_counter() - began, longest
        time.sleep(0.1)


# --- what one sees --------------------------------------------------------------------------------

READY = {  # numbers are there; then figures
    "words": "document.querySelector('.tile .big, tbody td, figcaption .words:not(:empty)')"
    " !== null",
    "figures": "document.querySelectorAll('figure').length === 0 || "
    "[...document.querySelectorAll('.plot:not([hidden])')]"
    ".every((plot) => plot.querySelector('.main-svg'))"
    " && document.querySelector('.words:not(:empty)') !== null",
}
UPDATES = "performance.getEntriesByName('update').map((one) => one.duration)"


def paint_ms(browser: Any, link: str, page_name: str) -> dict[str, float]:
    """Milliseconds until numbers and until all figures stand there, in a browser that is new."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    began = time.perf_counter()
    page.goto(f"{link}#/{PAGES[page_name]}", wait_until="commit")
    found = {}
    for what, ready in READY.items():
        while not page.evaluate(ready):
            time.sleep(0.005)
        found[what] = 1000 * (time.perf_counter() - began)
    context.close()
    return found


def updates_ms(browser: Any, link: str, page_name: str, log: Path, more: Iterator[str]) -> Row:
    """Let the log grow, and ask the page how long each of its updates took."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{link}#/{PAGES[page_name]}")
    page.wait_for_timeout(2500)
    page.evaluate("performance.clearMeasures()")
    until = time.monotonic() + UPDATE_S
    with log.open("a") as file:
        while time.monotonic() < until:
            file.writelines(next(more) for _ in range(LINES_PER_S // 4))
            file.flush()
            page.wait_for_timeout(250)
    took = page.evaluate(UPDATES)
    page.close()
    return {"num": len(took), "median_ms": median(took), "max_ms": max(took)}


def zooms_ms(browser: Any, link: str) -> list[float]:
    """How long the page takes from a press of each of these buttons to the timeline it asks for."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{link}#/{PAGES['clients']}")
    page.wait_for_timeout(2500)
    took = []
    for name in ZOOMS:
        page.evaluate("performance.clearMeasures()")
        page.get_by_role("button", name=name, exact=True).click()
        page.wait_for_timeout(500)
        took.append(max(page.evaluate(UPDATES)))  # one at its beat, with nothing new, is shorter
    page.close()
    return took


# --- what it costs the run ------------------------------------------------------------------------


def run_s(folder: Path, name: str, time_s: int) -> tuple[float, float]:
    """Seconds of wall and of processor time that a run takes."""
    config = folder / "run.toml"
    config.write_text(RUN % time_s)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "pisces", "run", str(config), "-q", "--json"]
    out = ["--out", str(folder / "runs" / name)]
    subprocess.run([*command, *out], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, used


def cost(browser: Any, folder: Path, rounds: int, time_s: int) -> Iterator[Row]:
    """The same run, alone and watched in an open page, in turns."""
    (folder / "runs").mkdir(parents=True)
    for number in range(rounds):
        wall_s, used_s = run_s(folder, f"alone{number}", time_s)
        yield {"table": "cost", "run": "alone", "wall_s": wall_s, "run_cpu_s": used_s}
        with watching(folder / "runs") as (link, pid):
            page = browser.new_page()
            page.goto(f"{link}#/run/watched{number}/overview")
            before = cpu_s(pid)
            wall_s, used_s = run_s(folder, f"watched{number}", time_s)
            took = cpu_s(pid) - before
            page.close()
        yield {
            "table": "cost",
            "run": "watched",
            "wall_s": wall_s,
            "run_cpu_s": used_s,
            "watch_cpu_s": took,
        }


def measured(args: argparse.Namespace, folder: Path) -> Iterator[Row]:
    from playwright.sync_api import sync_playwright

    num_events, num_clients = (50_000, 1000) if args.quick else (NUM_EVENTS, NUM_CLIENTS)
    rounds = 1 if args.quick else ROUNDS
    log = folder / "watched" / "large"
    more = write_run(log, num_events, num_clients)
    size = (log / "events.jsonl").stat().st_size / 1e6
    with sync_playwright() as driver, watching(folder / "watched") as (link, pid):
        took_s, longest_s = indexed(link, "large")
        memory = int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])
        yield {
            "table": "index",
            "events": num_events,
            "clients": num_clients,
            "log_mb": size,
            "read_s": took_s,
            "longest_answer_ms": 1000 * longest_s,
            "memory_mb": memory / 1000,
        }
        write_run(folder / "watched" / "other", num_events, num_clients, "fedbuff")
        indexed(link, "other")
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in PAGES:
            paints = [paint_ms(browser, link, name) for _ in range(rounds)]
            moves = updates_ms(browser, link, name, log / "events.jsonl", more)
            yield {
                "table": "pages",
                "page": name,
                "numbers_ms": median(paint["words"] for paint in paints),
                "figures_ms": median(paint["figures"] for paint in paints),
                "update_ms": moves["median_ms"],
                "slowest_update_ms": moves["max_ms"],
            }
        zooms = zooms_ms(browser, link)
        yield {"table": "zoom", "median_ms": median(zooms), "slowest_ms": max(zooms)}
        before, began = cpu_s(pid), time.monotonic()
        time.sleep(5.0)
        share = (cpu_s(pid) - before) / (time.monotonic() - began)
        yield {"table": "idle", "cpu_share_nobody_looking": share}
        yield from cost(
            browser, folder / "cost", 1 if args.quick else 3, 40 if args.quick else 2000
        )
        browser.close()


def main() -> None:
    args = on_disk(parser(__doc__ or "", quick="50 000 events, one round")).parse_args()
    captions = {
        "index": "Reading the log, once.",
        "pages": "From opening a page to its numbers and figures; updates while 2 000 lines a "
        "second are added, as the page measures them (question, answer, drawing).",
        "zoom": "From a press of the timeline's buttons until it is drawn, at rest.",
        "idle": "Of one core, with nothing to read.",
        "cost": "A simulation alone, and with its page open in a browser on the same two cores.",
    }
    with scratch(args) as folder:
        save(args, "page", collect(measured(args, folder)), captions=captions)


if __name__ == "__main__":
    main()

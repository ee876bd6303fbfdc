"""`pisces demo`: the first minute. Real data, 100 clients, four protocols, the same seeds."""

from __future__ import annotations

from importlib import resources

from pisces import config
from pisces.cli.compare import Jobs, Out, run_and_show
from pisces.cli.console import Json, Quiet, stderr
from pisces.cli.options import fresh_folder
from pisces.many.jobs import jobs_of
from pisces.many.left import left_in
from pisces.progress.showing import manner_of

PROTOCOLS = ("pisces", "fedbuff", "oort", "fedavg")
SEEDS = (1, 2, 3, 4, 5)


def demo(
    jobs: Jobs = None,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pisces against FedBuff, Oort and FedAvg on real data, in half a minute.

    The data are handwritten digits, held by 100 clients that differ
    in speed (15 to 180 s per task) and in how much they have of what.
    Every protocol meets the same clients: same data, latencies and seeds.
    Whatever comes out is printed.
    """
    text = resources.files("pisces.cli").joinpath("demo.toml").read_text("utf-8")
    base = config.parse(text, source="demo.toml")
    folder = out or fresh_folder("demo")
    todo = jobs_of(base, PROTOCOLS, SEEDS, folder)
    assert base.stop.target is not None
    with left_in(folder, todo, quiet=quiet) as left:
        (folder / "demo.toml").write_text(text, "utf-8")
        if not (quiet or as_json):
            stderr.print(
                f"{base.clients.count} clients, {base.clients.concurrency} at a time, to "
                f"{base.stop.target:.0%} accuracy; {len(SEEDS)} seeds x {len(PROTOCOLS)} protocols"
            )
        manner = manner_of(quiet=quiet, as_json=as_json)
        run_and_show(todo, left, base.stop.target, folder, jobs, manner, as_json=as_json)

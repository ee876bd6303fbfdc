"""`pisces demo`: the first minute. Real data, 100 clients, four protocols, the same seeds."""

from __future__ import annotations

from importlib import resources

from pisces import config
from pisces.cli.compare import Jobs, run_and_show
from pisces.cli.console import Json, Quiet, stderr
from pisces.cli.many import jobs_of
from pisces.cli.options import Out, fresh_folder
from pisces.errors import RunError

PROTOCOLS = ("pisces", "fedbuff", "oort", "fedavg")
SEEDS = (1, 2, 3)


def demo(
    jobs: Jobs = None,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pisces against FedBuff, Oort and FedAvg on handwritten digits; takes less than a minute.

    100 clients differ in speed (15 to 180 s per task) and in data. Every protocol meets the same
    clients: same data, same latencies, same seeds. Whatever comes out is printed.
    """
    text = resources.files("pisces.cli").joinpath("demo.toml").read_text("utf-8")
    base = config.parse(text, source="demo.toml")
    folder = out or fresh_folder("demo")
    todo = jobs_of(base, PROTOCOLS, SEEDS, folder)
    if not quiet:
        stderr.print(
            f"{base.clients.count} clients, {base.clients.concurrency} at a time, to "
            f"{base.stop.target:.0%} accuracy; {len(SEEDS)} seeds x {len(PROTOCOLS)} protocols"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "demo.toml").write_text(text, "utf-8")
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}; choose another --out") from error
    assert base.stop.target is not None
    run_and_show(todo, base.stop.target, folder, num_workers=jobs, as_json=as_json, quiet=quiet)

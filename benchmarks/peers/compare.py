"""Pisces beside its peers: the same task, the same amount of training, in turns.

    sh benchmarks/peers/make_envs.sh          # once: an environment for each peer
    PISCES_DATA=folder python benchmarks/peers/compare.py [--quick] [--only pisces,pfl]

Every contender runs in a process of its own, all of them in each round, round after round, so that
whatever else the machine does hits all alike. What is reported is the median over rounds, and for
ratios the median of the rounds' ratios. Needs MNIST (see the README's PISCES_DATA).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).absolute().parent
sys.path.insert(0, str(HERE.parent))

import prepare  # noqa: E402
from results import parser, plainly, save, warn_if_busy  # noqa: E402

from pisces.machine import num_cores  # noqa: E402

LIMIT_S = 600.0  # a contender that takes longer is left out
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "UV_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
# No way out of the machine, and everything that was started ends with it (Ray leaves some behind).
SEALED = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
WITH_LOOPBACK = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@dataclass(frozen=True)
class Contender:
    """Who runs, with how many processes that train."""

    name: str
    workers: int

    @property
    def label(self) -> str:
        return f"{self.name}, {self.workers} worker{'s' if self.workers > 1 else ''}"

    @property
    def bin(self) -> Path:
        """Where its programs are; ours are those that run this."""
        if self.name == "pisces":
            return Path(sys.executable).parent
        return HERE / ".venvs" / self.name / "bin"

    @property
    def trouble(self) -> str | None:
        """Why it cannot even start."""
        return None if (self.bin / "python").exists() else "has no environment"

    def command(self, arguments: Sequence[str]) -> list[str]:
        script = str(HERE / f"run_{self.name}.py")
        start = [str(self.bin / "python")]
        if self.name == "pfl" and self.workers > 1:
            start = [str(self.bin / "torchrun"), "--standalone", f"--nproc-per-node={self.workers}"]
        return [*start, script, "--workers", str(self.workers), *arguments]


TRAINING = (
    Contender("pisces", 2),
    Contender("pfl", 2),
    Contender("flower", 2),
    Contender("pisces", 1),
    Contender("appfl", 1),
)
# One process each: how long a client takes that does nothing.
IDLE = (Contender("pisces", 1), Contender("pfl", 1), Contender("flower", 1))


@dataclass
class Seen:
    """What one contender did, round by round."""

    runs: dict[int, dict[str, Any]] = field(default_factory=dict)
    trouble: str | None = None

    def each(self, key: str) -> list[float]:
        return [run[key] for run in self.runs.values()]


# --- running --------------------------------------------------------------------------------------


def sealed() -> list[str]:
    """How to run something cut off from the network; nothing where that is not possible."""
    for prefix in (SEALED, [*SEALED, "--map-root-user"]):
        whole = [*prefix, *WITH_LOOPBACK, "true"]
        if shutil.which("unshare") and not subprocess.run(whole, capture_output=True).returncode:
            return [*prefix, *WITH_LOOPBACK]
    print("warning: peers run with the network in reach, and Ray may leave processes behind")
    return []


@dataclass(frozen=True)
class Arena:
    """Where contenders meet: a scratch folder with the task, and what their commands start with."""

    folder: Path
    prefix: list[str]

    def run(self, contender: Contender, arguments: Sequence[str]) -> dict[str, Any]:
        """One contender's line, with the wall time of its whole process added."""
        began = time.perf_counter()
        out, error = self._finish(self._start(contender, arguments))
        whole_s = time.perf_counter() - began
        said = [line for line in out.splitlines() if line.startswith('{"contender"')]
        if not said:
            print(error[-4000:], file=sys.stderr)
            raise RuntimeError(_last_words(error))
        done = {**json.loads(said[-1]), "whole_s": whole_s}
        # The first cohort pays for starting workers and first touches: it counts in the whole only.
        steady_s = median(done["cohorts_s"][1:] or done["cohorts_s"])
        done["client_ms"] = 1000 * steady_s * len(done["cohorts_s"]) / done["num_trainings"]
        return done

    def _start(self, contender: Contender, arguments: Sequence[str]) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            **QUIET,
            "PATH": f"{contender.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(HERE),
            "FLWR_HOME": str(self.folder / "flwr"),
        }
        data = ["--data", str(self.folder / "task.npz")]
        return subprocess.Popen(
            [*self.prefix, *contender.command([*data, *arguments])],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @staticmethod
    def _finish(process: subprocess.Popen[str]) -> tuple[str, str]:
        try:
            return process.communicate(timeout=LIMIT_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise RuntimeError(f"took more than {LIMIT_S:.0f} s") from None
            raise

    def in_turns(
        self, contenders: Sequence[Contender], rounds: int, arguments: Sequence[str]
    ) -> dict[Contender, Seen]:
        """Everybody, round after round; who fails once is left out from then on."""
        seen = {contender: Seen(trouble=contender.trouble) for contender in contenders}
        for number in range(rounds):
            for contender, its in seen.items():
                if its.trouble is None:
                    said = self._turn(contender, its, number, arguments)
                    print(f"round {number + 1}: {contender.label}{said}", flush=True)
        return seen

    def _turn(self, contender: Contender, its: Seen, number: int, arguments: Sequence[str]) -> str:
        try:
            done = its.runs[number] = self.run(contender, arguments)
        except (RuntimeError, OSError) as error:
            its.trouble = str(error)
            return f" is left out: {error}"
        whole = f"{done['whole_s']:.1f} s in all, accuracy {done['accuracy']:.3f}"
        return f": {done['client_ms']:.2f} ms per client, {whole}"


def _last_words(error: str) -> str:
    """The last line that names an error, or just the last."""
    lines = error.strip().splitlines() or ["said nothing"]
    return ([line for line in lines if "Error" in line] or lines)[-1].strip()


# --- saying ---------------------------------------------------------------------------------------


def training_rows(seen: dict[Contender, Seen]) -> Iterator[dict[str, Any]]:
    """One row per contender; ratios against ours with as many workers, above 1: ours is faster."""
    for contender, its in seen.items():
        if not its.runs:
            continue
        ours = seen.get(Contender("pisces", contender.workers))
        first = next(iter(its.runs.values()))
        per_client = first["num_samples"] / first["num_trainings"]
        yield {
            "table": "training",
            "contender": contender.name,
            "version": first["version"],
            "workers": contender.workers,
            "client_ms": median(its.each("client_ms")),
            "samples_per_s": 1000 * per_client / median(its.each("client_ms")),
            "speedup": _ratio(its, ours, "client_ms"),
            "whole_s": median(its.each("whole_s")),
            "whole_samples_per_s": first["num_samples"] / median(its.each("whole_s")),
            "whole_speedup": _ratio(its, ours, "whole_s"),
            "accuracy": median(its.each("accuracy")),
            "rounds": len(its.runs),
        }


def _ratio(theirs: Seen, ours: Seen | None, key: str) -> float | None:
    """The median over rounds that both finished; nothing to say of ours against ours."""
    if ours is None or ours is theirs:
        return None
    shared = theirs.runs.keys() & ours.runs.keys()
    return median(theirs.runs[n][key] / ours.runs[n][key] for n in shared) if shared else None


def idle_rows(num_clients: int, seen: dict[Contender, Seen]) -> Iterator[dict[str, Any]]:
    """What a selected client costs when it does not train."""
    for contender, its in seen.items():
        if its.runs:
            yield {
                "table": "idle",
                "contender": contender.name,
                "version": next(iter(its.runs.values()))["version"],
                "clients": num_clients,
                "control_ms_per_client": median(its.each("client_ms")),
                "speedup": _ratio(its, seen.get(Contender("pisces", 1)), "client_ms"),
                "whole_s": median(its.each("whole_s")),
                "rounds": len(its.runs),
            }


IDLE_NOTES = (
    "Milliseconds per selected client that gets the LeNet-5 weights and gives them back untrained, "
    "cohorts of 20, one worker process. APPFL's simulator cannot do without training."
)


def training_notes(args: argparse.Namespace) -> str:
    return (
        f"LeNet-5 on MNIST, 200 clients of 500 samples (Dirichlet 1.0), FedAvg in {args.cohorts} "
        f"cohorts of 20, {args.epochs} epochs, batch 32, SGD 0.01 with momentum 0.9; one thread "
        "per process. client_ms and samples_per_s: steady state, all workers together, without "
        "the first cohort; whole: from starting Python to its end. speedup: of Pisces with as many "
        f"workers over this contender, median of {args.rounds} rounds in turns."
    )


def trouble(seen: dict[Contender, Seen]) -> str:
    """Who was left out, and why; last words are kept, but not the paths of this machine in them."""
    left_out = [f"{c.label}: {_without_paths(s.trouble)}" for c, s in seen.items() if s.trouble]
    return f" Left out: {'; '.join(left_out)}." if left_out else ""


def _without_paths(text: str) -> str:
    return " ".join("..." if "/" in word else word for word in text.split())


def options() -> argparse.Namespace:
    its = parser(__doc__.splitlines()[0], quick="one round of two cohorts, one epoch, none idle")
    its.add_argument("--rounds", type=int, default=3)
    its.add_argument("--cohorts", type=int, default=4, help="cohorts of 20 clients per run")
    its.add_argument("--epochs", type=int, default=5)
    its.add_argument("--only", default="pisces,pfl,flower,appfl", help="contenders, by name")
    its.add_argument("--skip-idle", action="store_true", help="without the cost of control")
    args = its.parse_args()
    args.only = args.only.split(",")
    if unknown := set(args.only) - {contender.name for contender in TRAINING}:
        its.error(f"--only: nobody is called {', '.join(sorted(unknown))}")
    if args.quick:
        args.rounds, args.cohorts, args.epochs, args.skip_idle = 1, 2, 1, True
    return args


def check_environments(wanted: Sequence[str]) -> None:
    """Say which peers cannot run; the end if none can."""
    peers = {c.name: c.trouble for c in TRAINING if c.name in wanted and c.name != "pisces"}
    for name, trouble in peers.items():
        if trouble:
            print(f"{name} {trouble}: run sh benchmarks/peers/make_envs.sh", file=sys.stderr)
    if peers and all(peers.values()):
        raise SystemExit("there is no peer to compare with: nothing is measured")


def main() -> None:
    args = options()
    check_environments(args.only)
    warn_if_busy()
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        prepare.write(Path(scratch) / "task.npz")
        arena = Arena(Path(scratch), sealed())
        work = ["--cohorts", str(args.cohorts), "--epochs", str(args.epochs)]
        trained = arena.in_turns([c for c in TRAINING if c.name in args.only], args.rounds, work)
        idle: dict[int, dict[Contender, Seen]] = {}
        for num_clients in () if args.skip_idle else (1_000, 100_000):
            nothing = ["--cohorts", "5", "--epochs", "0", "--clients", str(num_clients)]
            idlers = [c for c in IDLE if c.name in args.only]
            idle[num_clients] = arena.in_turns(idlers, min(args.rounds, 2), nothing)
    rows = list(training_rows(trained))
    rows += [row for number, seen in idle.items() for row in idle_rows(number, seen)]
    left_out = "".join(dict.fromkeys(trouble(seen) for seen in idle.values()))
    captions = {"training": training_notes(args) + trouble(trained)}
    captions |= {"idle": IDLE_NOTES + left_out} if idle else {}
    save(args, f"peers-{num_cores()}cores", rows, captions=captions)


if __name__ == "__main__":
    plainly(main)

"""How long is the paper's MNIST comparison on a GPU: three protocols, five seeds each?

    PISCES_DATA=folder python benchmarks/comparison.py [--jobs 15] [--quick] [--name comparison-gpu]

It is one `pisces compare`, from the shell's prompt to the table: processes, compiling, reading the
data, 15 runs of 1015 virtual seconds. With many jobs, let processes share the GPU first: start
NVIDIA's MPS (`nvidia-cuda-mps-control -d`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import collect, parser, plainly, save, warn_if_busy

MNIST = Path(__file__).parents[1] / "experiments" / "end_to_end" / "mnist.toml"
PROTOCOLS = "pisces,oort,fedbuff"
OUT_OF_REACH = "0.995"  # a run that reaches its target stops there


def measure(num_jobs: int, seeds: str, changes: list[str]) -> dict[str, Any]:
    """The comparison's wall-clock time."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--protocols", PROTOCOLS, "--seeds", seeds, "--jobs", str(num_jobs)]
        options += ["--target", OUT_OF_REACH]
        options += [part for change in changes for part in ("--set", change)]
        command = [sys.executable, "-m", "pisces", "compare", str(MNIST), *options]
        began = time.perf_counter()
        done = subprocess.run(
            [*command, "--out", f"{folder}/runs", "--json", "-q"], stdout=subprocess.PIPE
        )
        wall_s = time.perf_counter() - began
    if done.returncode:
        sys.exit(1)  # it has said why
    json.loads(done.stdout)  # or there was no table
    return {"seeds": seeds, "jobs": num_jobs, "shared_by_mps": is_shared(), "wall_s": wall_s}


def is_shared() -> bool:
    """Do processes share the GPU through MPS?"""
    return "CUDA_MPS_PIPE_DIRECTORY" in os.environ


def main() -> None:
    options = parser("How long a comparison takes on a GPU.", quick="a moment of it, on a CPU")
    options.add_argument("--jobs", type=int, default=15, help="runs at a time")
    args = options.parse_args()
    if args.jobs < 1:
        options.error(f"--jobs: must be at least 1, not {args.jobs}")
    warn_if_busy()
    small = ["stop.time_s=40.0", "train.device=cpu"] if args.quick else ["train.device=cuda"]
    rows = collect([measure(args.jobs, "1" if args.quick else "1-5", small)])
    notes = f"`pisces compare` of {PROTOCOLS} on the paper's MNIST task, from prompt to table."
    save(args, "comparison-gpu", rows, notes=notes)


if __name__ == "__main__":
    plainly(main)

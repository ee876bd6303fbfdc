"""Prints the branch coverage of the core rooms; fails below the house's limit."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

LIMIT = 0.95
CORE = (
    "types.py",
    "policy.py",
    "coordinator.py",
    "clients/",
    "select/",
    "pace/",
    "aggregate/",
    "judge/",
    "execute/virtual.py",
)


def main() -> int:
    """Read the last test run's coverage."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(report)]
        subprocess.run(command, check=True)
        files = json.loads(report.read_text())["files"]
    core = {
        name: facts["summary"]
        for name, facts in files.items()
        if name.partition("pisces/")[2].startswith(CORE)
    }
    covered = sum(facts["covered_branches"] for facts in core.values())
    total = sum(facts["num_branches"] for facts in core.values())
    for name, facts in sorted(core.items()):
        if facts["covered_branches"] < facts["num_branches"]:
            print(f"  {name}: {facts['covered_branches']} of {facts['num_branches']} branches")
    print(f"core rooms: {covered} of {total} branches covered, {covered / total:.1%}")
    return 0 if covered >= LIMIT * total else 1


if __name__ == "__main__":
    sys.exit(main())

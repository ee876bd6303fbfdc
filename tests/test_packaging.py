"""The wheel: what is in it, what it says of itself, and that it works where it is unpacked."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import pisces

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The project's wheel, built as a user would."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "-w", str(folder)]
    if importlib.util.find_spec("hatchling") is not None:
        command.append("--no-build-isolation")  # the build backend is here: nothing to fetch
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode and "No matching distribution found for hatchling" in built.stderr:
        pytest.skip("the build backend, hatchling, is neither installed nor to be had")
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def unpacked(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    wheel.extractall(folder)
    return folder


def dist_info(wheel: zipfile.ZipFile, name: str) -> str:
    return wheel.read(f"pisces_fl-{pisces.__version__}.dist-info/{name}").decode()


def python(unpacked: Path, *args: str) -> str:
    """What Python says, run far from the sources, with the unpacked wheel first on its path."""
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        env=environment,
        cwd=unpacked,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_is_in_it_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    sources = ROOT / "src"
    expected = {
        str(path.relative_to(sources))
        for path in (sources / "pisces").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == expected
    assert {"pisces/py.typed", "pisces/cli/demo.toml"} <= packed


def test_what_it_says_of_itself(wheel: zipfile.ZipFile) -> None:
    about: Message = Parser().parsestr(dist_info(wheel, "METADATA"))
    assert about["Name"] == "pisces-fl"
    assert about["Version"] == pisces.__version__
    assert about["Requires-Python"] == ">=3.11"
    assert about["License-Expression"] == "Apache-2.0"
    needed = about.get_all("Requires-Dist") or []
    assert any(line.startswith("torch") for line in needed)
    assert all("extra == 'dev'" in line for line in needed if line.startswith("pytest"))


NOT_TRIED = {"torch", "flwr", "ray", "wandb"}  # with their oldest versions: see the file's head


def test_the_oldest_versions_that_are_tried_are_those_that_are_claimed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"]]
    wanted += [one for name, ones in extras.items() if name != "dev" for one in ones]
    claimed = {m[1]: m[2] for one in wanted if (m := re.match(r"([\w-]+)>=([\d.]+)", one))}
    assert len(claimed) == len({re.split(r"[<>=]", one)[0] for one in wanted})
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    tried = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert claimed.keys() - tried.keys() == NOT_TRIED - {"torch"}
    for name in claimed.keys() - NOT_TRIED:
        assert re.fullmatch(rf"{re.escape(claimed[name])}(\.0)*", tried[name]), name


def test_the_console_script(wheel: zipfile.ZipFile) -> None:
    lines = dist_info(wheel, "entry_points.txt").splitlines()
    assert "pisces = pisces.cli.main:main" in lines


def test_it_works_where_it_is_unpacked(unpacked: Path) -> None:
    code = "import pisces; print(pisces.__file__, pisces.Stop(time_s=1.0).time_s)"
    assert python(unpacked, "-c", code) == f"{unpacked / 'pisces' / '__init__.py'} 1.0\n"
    version = f"pisces {pisces.__version__}\n"
    assert python(unpacked, "-m", "pisces.cli.main", "--version") == version
    # What the console script does.
    script = "import sys; from pisces.cli.main import main; sys.exit(main())"
    assert python(unpacked, "-c", script, "--version") == version


def test_a_run_works_where_it_is_unpacked(unpacked: Path) -> None:
    settings = "pisces/cli/demo.toml"
    out = python(
        unpacked, "-m", "pisces.cli.main", "run", settings, "--set", "stop.time_s=20", "--out", "r"
    )
    assert "time, at 20 s" in out
    assert (unpacked / "r" / "model.safetensors").exists()

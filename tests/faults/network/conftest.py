"""Processes that end with their test, and certificates made once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from federation_commands import CODE, CONFIG, Scene
from federation_processes import authority
from forking import Processes

if sys.platform == "win32":
    collect_ignore_glob = ["*"]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path) as processes:
        yield processes


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For a server on this machine, and clients c0 to c29."""
    return authority(tmp_path_factory.mktemp("authority"), 30)


@pytest.fixture(autouse=True, scope="session")
def _no_proxy() -> Iterator[None]:
    """This machine is reached directly, whatever it is set to; by its processes, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_grpc_proxy", "localhost,127.0.0.1")
        yield


@pytest.fixture
def scene(processes: Processes, certs: Path, tmp_path: Path) -> Scene:
    (tmp_path / "fl.toml").write_text(CONFIG)
    (tmp_path / "mycode.py").write_text(CODE)
    return Scene(processes, certs, tmp_path)

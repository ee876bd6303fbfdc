"""Commands as processes, how they are found again, and keys as Flower wants them."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from forking import PATIENCE_S, becomes

DEATHSIG = 1  # PR_SET_PDEATHSIG
LIBC = ctypes.CDLL(None)


def _dies_with_its_parent() -> None:
    """Also where the tests are killed and end nothing; what Flower starts looks for its parent."""
    LIBC.prctl(DEATHSIG, signal.SIGKILL)


class Process:
    """A command; what it says is in a file."""

    def __init__(self, said: Path, told: list[object], env: dict[str, str]) -> None:
        self._said = said
        with said.open("wb") as file:
            self._popen = subprocess.Popen(
                [str(word) for word in told],
                env=env,
                cwd=said.parent,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_dies_with_its_parent,
            )

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    @property
    def code(self) -> int | None:
        """How it ended; None: it runs. Asking lets it go: Flower looks whether its parent lives."""
        return self._popen.poll()

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._popen.wait()

    def ended(self, within_s: float = PATIENCE_S) -> int:
        """Its exit code, when it has ended by itself."""
        becomes(lambda: self.code is not None, within_s, lambda: f"it still runs: {self.said}")
        assert self.code is not None
        return self.code

    def says(self, text: str, within_s: float = PATIENCE_S) -> str:
        """All it said, once this was among it."""
        becomes(lambda: text in self.said or self.code is not None, within_s, lambda: self.said)
        assert text in self.said, f"it ended with {self.code}: {self.said}"
        return self.said


def marked(word: str) -> list[int]:
    """Processes with that in their environment, but for those that are dead and not fetched yet."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended, or is somebody else's
            if word.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def has_words(pid: int, words: tuple[str, ...]) -> bool:
    """Are these in its command?"""
    with suppress(OSError):
        told = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        return all(word in told for word in words)
    return False


def write_key(path: Path) -> Path:
    """A pair of keys, as `ssh-keygen -t ecdsa -b 384` makes them."""
    key = ec.generate_private_key(ec.SECP384R1())
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    Path(f"{path}.pub").write_bytes(public)
    return path

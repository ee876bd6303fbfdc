"""Writing a run folder: `config.toml` and `events.jsonl` as the run goes, the rest at its end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pisces.errors import RunError
from pisces.record.lines import encode, line, plain
from pisces.types import Entry

if TYPE_CHECKING:
    import torch

CONFIG = "config.toml"
EVENTS = "events.jsonl"
SUMMARY = "summary.json"
MODEL = "model.safetensors"


class RunFolder:
    """A recorder that writes `events.jsonl`, and the rest of the run folder around it."""

    def __init__(self, path: Path, events: BinaryIO) -> None:
        self.path = path
        self._events = events

    @classmethod
    def create(cls, path: str | Path, config_text: str) -> RunFolder:
        """Make the folder and its parents; one that holds anything already is refused."""
        path = Path(path)
        with _writing(path):
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise RunError(f"{path} is not empty: choose another folder")
            events = (path / EVENTS).open("xb")  # who opens it first owns the folder
            _replace(path / CONFIG, config_text.encode())
            return cls(path, events)

    def record(self, entry: Entry) -> None:
        """Write one line and hand it to the system at once, so that a killed run keeps it."""
        try:
            self._events.write(encode(line(entry)))
            self._events.flush()
        except OSError as error:
            raise _refused(self.path / EVENTS, error) from error

    def finish(
        self, summary: Mapping[str, Any], state_dict: Mapping[str, torch.Tensor], wall_s: float
    ) -> None:
        """Write the model, then the summary: a folder with a summary is complete."""
        import safetensors.torch  # here, because the reader shares this file and needs no torch

        # Tied tensors share memory, which safetensors refuses: each name gets its own copy.
        tensors = {name: t.detach().cpu().contiguous().clone() for name, t in state_dict.items()}
        text = json.dumps(plain({**summary, "wall_s": wall_s}), indent=2, allow_nan=False)
        with _writing(self.path):
            _replace(self.path / MODEL, safetensors.torch.save(tensors))
            _replace(self.path / SUMMARY, text.encode() + b"\n")

    def close(self) -> None:
        """Close `events.jsonl`."""
        with _writing(self.path / EVENTS):
            self._events.close()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file, and its folder if need be, so that it is there whole or not at all."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)


def _replace(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    beside = path.with_name(path.name + ".part")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what the system refuses into an error the user can mend."""
    try:
        yield
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> RunError:
    return RunError(
        f"cannot write {path}: {error.strerror or error}; "
        "make room, mend the permissions or choose another folder"
    )

"""Reading a run folder, finished, killed or still growing."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pisces.errors import RunError
from pisces.policy import ANSWERS
from pisces.record.lines import Line
from pisces.record.sample import KIND, WHOLE_KINDS
from pisces.record.sound import LARGEST, MOST, decode, is_summary
from pisces.record.summary import (
    COUNTED,
    Counts,
    Tally,
    curve,
    metrics_of,
    own_goal,
    time_to_target,
)
from pisces.record.writer import (
    CLIENTS,
    CONFIG,
    EVENTS,
    JOURNAL,
    MODEL,
    SUMMARY,
    open_file,
    read_file,
)

if TYPE_CHECKING:
    import torch

# Settings of runs that may differ in a comparison: how they are made, saved and told of, not the
# world they meet.
MAY_DIFFER = (
    *("protocol", "protocols", *ANSWERS, "seed", "stop", "evaluate"),
    *("checkpoint", "record", "network"),
)
MOST_CONFIG_BYTES = 8 << 20  # twice what one may have as it is given
NUM_NEARBY = 5  # run folders named in an error message, so that it stays readable


@dataclass(frozen=True)
class Run:
    """One run folder, read as far as is asked for."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run in the folder `path`."""
        path = Path(path)
        if not (path / EVENTS).is_file():
            missing = "it is not a folder"
            if path.is_dir():
                is_there = (path / EVENTS).exists()
                missing = f"its {EVENTS} is no file" if is_there else f"it has no {EVENTS}"
            raise RunError(f"{path} is not a run folder: {missing}; {_nearby(path)}")
        return cls(path)

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration; empty for a run recorded without one."""
        if isinstance(self._config_read, RunError):
            raise self._config_read
        return self._config_read

    @cached_property
    def _config_read(self) -> dict[str, Any] | RunError:
        """The config, or why there is none to be had: read once either way."""
        path = self.path / CONFIG
        try:
            text = read_file(path, MOST_CONFIG_BYTES).decode() if path.exists() else ""
            config = tomllib.loads(text)
            if _is_absurd(config, LARGEST):
                raise ValueError("a number in it is too large to be used")
            return config
        except (OSError, ValueError, RecursionError) as error:
            return RunError(f"cannot read {path}: {error}; mend or remove it")

    @property
    def is_served(self) -> bool:
        """Did its clients come over a network, with data of their own?"""
        return (self.path / CLIENTS).exists()

    @property
    def in_real_time(self) -> bool:
        """Is its clock that on the wall? Such runs keep a journal; a simulation never does."""
        return self.is_served or (self.path / JOURNAL).is_dir() or self.is_of_flower

    @property
    def is_of_a_program(self) -> bool:
        """Was it made in Python, not by a command from a config?"""
        return "made_in" in self.config

    @property
    def is_of_flower(self) -> bool:
        """Did a Flower app make it?"""
        return self.config.get("made_in") == "Flower"

    def setting(self, table: str, key: str) -> Any:
        """What the config says there; None where it says nothing, or is not what it should be."""
        values = self.config.get(table)
        value = values.get(key) if isinstance(values, dict) else None
        return None if _is_absurd(value, MOST) else value

    @property
    def protocol(self) -> str:
        """The protocol of the config as it is called, or else the folder's name."""
        name = self.config.get("protocol")
        is_told = isinstance(name, str) and name
        return called(self.config) if is_told else self.path.resolve().name

    @property
    def protocol_settings(self) -> dict[str, Any]:
        """The settings of its protocol, as far as its config has them."""
        tables, name = self.config.get("protocols"), self.config.get("protocol")
        own = tables.get(name) if isinstance(tables, dict) and isinstance(name, str) else None
        return own if isinstance(own, dict) else {}

    @property
    def replaced_parts(self) -> dict[str, Any]:
        """What its config has in place of parts of the protocol, by table."""
        return {table: self.config[table] for table in ANSWERS if table in self.config}

    @property
    def seed(self) -> int | None:
        """The run's seed, if the config says."""
        seed = self.config.get("seed")
        return seed if type(seed) is int else None

    @property
    def name(self) -> str:
        """What to call the run where people read it."""
        return self.protocol if self.seed is None else f"{self.protocol} (seed {self.seed})"

    @cached_property
    def saved(self) -> dict[str, Any]:
        """The summary as it was written when the run was over; empty where there is none."""
        path = self.path / SUMMARY
        try:
            saved: dict[str, Any] = json.loads(read_file(path)) if path.exists() else {}
            if not is_summary(saved):
                raise ValueError("it is not what a run came to")
            return saved
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(
                f"cannot read {path}: {error}; remove it to have it counted from {EVENTS} instead"
            ) from error

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What the run came to: as it was saved, or counted from the events of an unfinished run.

        `wall_s` is known only for a finished run.
        """
        if self.saved.keys() >= set(COUNTED):
            return {"wall_s": None, **self.saved}
        return {**asdict(self._counted()), "wall_s": None, **self.saved}  # older ones say less

    @cached_property
    def counts(self) -> Counts:
        """Of its summary, what was counted."""
        return Counts.of(self.summary)

    @property
    def wall_s(self) -> float | None:
        """How long it took on the wall, which is known when it is over."""
        told = self.told_at_its_end("wall_s")
        return None if told is None else float(told)

    @property
    def metrics(self) -> Collection[str]:
        """By which it was evaluated."""
        return self.counts.final.keys()

    @property
    def aim(self) -> tuple[str | None, float | None]:
        """The metric it is about, and the value to be reached; None is what nobody told.

        As its config says, or its summary where a program made it. See `own_goal`.
        """
        named, target = self._aimed("metric"), self._aimed("target")
        is_number = type(target) in (int, float) and math.isfinite(target)
        return own_goal(named, self.metrics, float(target) if is_number else None)

    def _aimed(self, key: str) -> Any:
        told = self.setting("stop", key)
        return self.told_at_its_end(key) if told is None else told

    def told_at_its_end(self, key: str) -> Any:
        """What only its summary says; None where it says nothing, or there is none."""
        return self.saved.get(key)

    def _counted(self) -> Counts:
        return self.tally().counts()

    def tally(self) -> Tally:
        """Everything in the events, counted."""
        tally = Tally()
        for line in self.events():
            tally.add(line)
        return tally

    @cached_property
    def sampled(self) -> float | None:
        """Of what share of the clients the log tells; `None`: of all."""
        first = next(self.events(sampled_too=True), {})
        return first["share"] if first.get("kind") == KIND else None

    def events(self, kind: str | None = None, *, sampled_too: bool = False) -> Iterator[Line]:
        """The lines one by one, or those of one kind; a last line cut short is left out.

        A log that tells of some clients only is refused, unless `sampled_too` says that this is
        known, or the kind is one of which it has every line.
        """
        if not sampled_too and kind not in WHOLE_KINDS and self.sampled is not None:
            raise RunError(sampled_log(self.path / EVENTS))
        path = self.path / EVENTS
        try:
            with open_file(path) as file:
                yield from _lines(file, path, kind)
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror or error}") from error

    def curve(self, metric: str = "accuracy") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Instants and values of a metric, NaN where it was not a number."""
        evaluated = [(line["at"], metrics_of(line)) for line in self.events("evaluated")]
        pairs = curve(evaluated, metric)
        if evaluated and not pairs:
            known = {name for _, metrics in evaluated for name in metrics}
            raise RunError(no_such_metric(self.path, metric, known))
        times, values = np.array(pairs, np.float64).reshape(-1, 2).T
        return times, values

    def time_to_target(self, target: float, metric: str = "accuracy") -> float | None:
        """When an evaluation first met the target; None if none did."""
        times, values = self.curve(metric)
        return time_to_target(zip(times.tolist(), values.tolist(), strict=True), target, metric)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The final model."""
        import safetensors.torch  # here, because looking at tables and plots needs no torch

        path = self.path / MODEL
        if not path.exists():
            raise RunError(f"{self.path} has no {MODEL}, which a run writes at its end: finish it")
        try:
            state: dict[str, torch.Tensor] = safetensors.torch.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise RunError(f"cannot read {path}: {error}; run again to write it anew") from error
        return state

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        from pisces.report.card import card_of  # matplotlib is slow to import

        return card_of(self)


def no_such_metric(path: Path, metric: str, known: Iterable[str]) -> str:
    """Why a run that was evaluated by other metrics has no curve of this one."""
    return f"{path} has no metric {metric!r}: choose one of {', '.join(sorted(known))}"


def sampled_log(path: Path) -> str:
    """Why a sampled log is not counted."""
    return (
        f"{path} is sampled: it has the lines of some clients only, and counts of them would be "
        "wrong; the summary of a finished run is whole; write a whole log with record.share = 1"
    )


def damaged(path: Path, number: int, text: bytes) -> str:
    """Why a log is read no further than to this line."""
    return (
        f"{path}, line {number}: not an event but {text[:40]!r}; "
        "the file was damaged after it was written: restore it or remove that line"
    )


def called(config: Mapping[str, Any]) -> str:
    """A config's protocol, then what replaces parts of it: `fedbuff+guided+clip+adam`."""
    names = [config["protocol"]]
    for table in ANSWERS:
        part = config.get(table)
        while isinstance(part, dict):
            names.append(part.get("policy"))
            part = part.get("inner")
    return "+".join(map(str, names))


def find_runs(folder: str | Path) -> list[Run]:
    """All runs in and below a folder, sorted by path."""
    folder = Path(folder)
    if not folder.is_dir():
        raise RunError(f"runs are looked for in a folder, and {folder} is none: check the path")
    return [Run(path.parent) for path in sorted(folder.rglob(EVENTS)) if path.is_file()]


def _is_absurd(value: Any, most: int) -> bool:
    """Is there a whole number beyond `most` in it? Folders may be anybody's."""
    if isinstance(value, dict):
        return any(_is_absurd(own, most) for own in value.values())
    if isinstance(value, list):
        return any(_is_absurd(own, most) for own in value)
    return type(value) is int and abs(value) >= most


def _lines(file: BinaryIO, path: Path, kind: str | None) -> Iterator[Line]:
    wanted = b"" if kind is None else json.dumps(kind).encode()
    for number, text in enumerate(file, start=1):
        # Parsing a line costs ten times as much as seeing that it is of another kind.
        if wanted not in text and text.startswith(b"{") and text.endswith(b"}\n"):
            continue
        line = decode(text)
        if line is None:
            is_whole = text.endswith(b"}\n")
            if not is_whole and not file.read(1):  # the last: the run was killed, or writes it now
                return
            raise RunError(damaged(path, number, text))
        if kind is None or line["kind"] == kind:
            yield line


def _nearby(path: Path) -> str:
    """Which run folders the user may have meant, looking at most two levels around."""
    inside = path if path.is_dir() else path.parent
    patterns = (EVENTS, f"*/{EVENTS}", f"*/*/{EVENTS}")
    found = sorted(
        {events.parent for p in patterns for events in inside.glob(p) if events.is_file()}
    )
    if not found:
        return "check the path"
    more = f" and {len(found) - NUM_NEARBY} more" if len(found) > NUM_NEARBY else ""
    return "nearby are " + ", ".join(map(str, found[:NUM_NEARBY])) + more


def load(path: str | Path) -> Run:
    """A run folder to look into: `load(path).summary`, `.curve()`, `.state_dict()`."""
    return Run.open(path)

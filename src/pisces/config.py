"""A run's settings: typed, checked before anything starts, read from and written to TOML.

Unknown keys, wrong types and impossible values are refused in one line each that names the key, the
rule and the value. What the tables hold stands in `tables.py` and `latencies.py`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from reprlib import repr as shortened
from typing import Annotated, Any, get_args

import tomlkit
from pydantic import Field, ValidationError, field_validator, model_validator
from tomlkit.exceptions import TOMLKitError

from pisces.errors import ConfigError
from pisces.explain import explain
from pisces.latencies import Latency, UniformLatency, Zipf
from pisces.policy import ANSWERS
from pisces.tables import (
    Availability,
    Checkpoint,
    Clients,
    Data,
    Evaluate,
    Failures,
    Hostile,
    Limits,
    Model,
    Network,
    NonNegative,
    Record,
    Replaced,
    Section,
    StopAt,
    Train,
)

MOST_BYTES = 4 << 20  # of a config file: half a million sizes of clients, if need be


class Config(Section):
    """Everything a run depends on."""

    protocol: str = Field(
        "pisces", description="pisces | fedbuff | oort | ...: see `pisces protocols`"
    )
    seed: Annotated[int, Field(ge=0)] = Field(1, description="all randomness comes from it")
    tick_s: NonNegative = Field(
        0.0, description="decide only every so many seconds, as the paper does (5); 0: at events"
    )
    clients: Clients = Clients()
    data: Data = Data()
    model: Model = Model()
    train: Train = Train()
    latency: Latency = Zipf()
    availability: Availability = Availability()
    failures: Failures = Failures()
    hostile: Hostile = Hostile()
    limits: Limits = Limits()
    evaluate: Evaluate = Evaluate()
    stop: StopAt = StopAt()
    checkpoint: Checkpoint = Checkpoint()
    record: Record = Record()
    network: Network = Network()
    protocols: dict[str, dict[str, Any]] = Field({}, description="settings of each protocol")
    select: Replaced = None
    pace: Replaced = None
    aggregate: Replaced = None
    judge: Replaced = None

    @field_validator("latency", mode="before")
    @classmethod
    def _zipf_unless_said(cls, given: Any) -> Any:
        return {"kind": "zipf", **given} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _latencies_in_order(self) -> Config:
        match self.latency:
            case Zipf(min_s=least, max_s=most) | UniformLatency(min_s=least, max_s=most):
                if least > most:
                    raise ValueError(
                        f"latency.min_s must be at most latency.max_s = {most}, not {least}"
                    )
        return self

    @model_validator(mode="after")
    def _enough_may_come(self) -> Config:
        if self.network.at_least > self.clients.count:
            raise ValueError(
                f"network.at_least must be at most clients.count = {self.clients.count}, not "
                f"{self.network.at_least}: more are not let in, and the run would never begin"
            )
        return self

    @model_validator(mode="after")
    def _concurrency_fits(self) -> Config:
        if self.clients.concurrency > self.clients.count:
            raise ValueError(
                f"clients.concurrency must be at most clients.count = {self.clients.count}, "
                f"not {self.clients.concurrency}"
            )
        return self

    @model_validator(mode="after")
    def _labels_are_spoilt_once(self) -> Config:
        if not self.hostile.share or self.hostile.labels == "own":
            return self
        for key in ("corrupted", "redraw"):
            if getattr(self.data, key):
                raise ValueError(
                    f"hostile.labels = {self.hostile.labels!r} needs data.{key} left out, not "
                    f"{getattr(self.data, key)}: leave out one of them"
                )
        return self

    @property
    def spoilt_share(self) -> float:
        """Of the clients: those whose data or word is bad."""
        return max(self.data.corrupted, self.hostile.share)

    @property
    def replaced(self) -> dict[str, dict[str, Any]]:
        """The tables that replace parts of the protocol."""
        return {name: given for name in ANSWERS if (given := getattr(self, name)) is not None}


# Where and by how many hands a run is trained does not change what it is, nor how it is saved and
# explained, nor how patient its server is.
FREE: dict[str, Any] = {
    "train": {"device", "backend", "workers", "threads", "ray"},
    "data": {"folder"},
    "checkpoint": True,
    "record": True,
    "network": True,
}


def described(config: Config, without: dict[str, Any]) -> dict[str, Any]:
    """The settings but for some, and for tables that came later and change nothing."""
    values = config.model_dump(exclude=without)
    if not config.hostile.share:
        del values["hostile"]
    if config.limits == Limits():
        del values["limits"]
    return values


# --- reading --------------------------------------------------------------------------------------


def load(
    path: str | os.PathLike[str], changes: Sequence[str] = (), without: Collection[str] = ()
) -> Config:
    """Read a config file but for some tables, with `key=value` changes on top."""
    try:
        if Path(path).stat().st_size > MOST_BYTES:
            raise ConfigError(
                f"{path}: larger than any config file, {MOST_BYTES} bytes: name another"
            )
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the config file: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    return parse(text, changes, source=str(path), without=without)


def parse(
    text: str,
    changes: Sequence[str] = (),
    source: str = "config",
    *,
    without: Collection[str] = (),
) -> Config:
    """Check a config given as TOML text."""
    try:
        values = tomlkit.parse(text).unwrap()
    except (TOMLKitError, ValueError, RecursionError) as error:  # dates, numbers, depths
        raise ConfigError(f"{source}: not TOML: {str(error)[:200]}") from error
    values = {name: value for name, value in values.items() if name not in without}
    for change in changes:
        _apply(values, change)
    return check(values, source)


def check(values: Mapping[str, Any], source: str = "config") -> Config:
    """The config with these values, or an error that says what is wrong with each key."""
    if "made_in" in values:
        raise ConfigError(
            f"{source}: this run was made in {values['made_in']}: make it there again"
        )
    try:
        return Config.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(explain(error, source, all_keys(), _latency_kinds())) from None


def _apply(values: dict[str, Any], change: str) -> None:
    """Set `a.b=value` in nested tables; the value is TOML, or a plain word: `none` is no value."""
    key, equals, raw = change.partition("=")
    *tables, last = key.strip().split(".")
    if not equals or not last:
        raise ConfigError(
            f"--set takes key=value, such as clients.count=50, not {shortened(change)}"
        )
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {change[:200]}: {table[:200]} is not a table")
    values[last] = _value(raw.strip())


def _value(raw: str) -> Any:
    try:
        return tomlkit.parse(f"value = {raw}").unwrap()["value"]
    except (TOMLKitError, ValueError, RecursionError):
        return None if raw == "none" else raw


def all_keys() -> list[str]:
    """Every key a config file may hold, dotted."""
    return [
        f"{table}.{name}" if table else name
        for table, section in sections()
        for name in section.model_fields
    ]


def sections() -> Iterator[tuple[str, type[Section]]]:
    """Every table with its name, before those within it; the latency table in all its kinds."""
    yield "", Config
    yield from _within(Config)


def _within(section: type[Section], above: str = "") -> Iterator[tuple[str, type[Section]]]:
    for name, field in section.model_fields.items():
        if name == "latency":
            yield from (("latency", branch) for branch in _latency_branches())
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield f"{above}{name}", field.annotation
            yield from _within(field.annotation, f"{above}{name}.")


def _latency_branches() -> tuple[type[Section], ...]:
    branches: tuple[type[Section], ...] = get_args(Config.model_fields["latency"].annotation)
    return branches


def _latency_kinds() -> list[str]:
    return [branch.model_fields["kind"].default for branch in _latency_branches()]


# --- writing --------------------------------------------------------------------------------------


def to_toml(config: Config) -> str:
    """The config as TOML with every default spelled out; a key without a value is left out."""
    return told(config.model_dump())


def told(tables: Mapping[str, Any]) -> str:
    """Tables as TOML, which knows no value that is none."""
    return tomlkit.dumps(_without_none(tables))


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None
    }

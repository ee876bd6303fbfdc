"""Going on with a run of a config: what may be changed, and `pisces.resume`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pisces import build, tracking
from pisces import config as cfg
from pisces.errors import ConfigError, RunError
from pisces.keeping import differences
from pisces.record.checkpoint import Checkpoints
from pisces.record.lines import Line, Recorder
from pisces.record.reader import Run, called
from pisces.record.writer import CLIENTS, CONFIG
from pisces.simulation import Result, run

MAY_CHANGE = {**cfg.FREE, "stop": True}
IN_WORDS = (
    "stop, checkpoint, record, network, data.folder, and train.device, backend, workers, threads "
    "and ray"
)


def made_of(config: cfg.Config) -> dict[str, Any]:
    """What makes a run what it is: another one cannot go on from its checkpoints."""
    values = cfg.described(config, MAY_CHANGE)
    return {"settings": values, "revision": build.revision_of(config)}


@dataclass(frozen=True, slots=True)
class Job:
    """A run of a config, in its folder."""

    config: cfg.Config
    folder: Path
    is_begun: bool = False

    @classmethod
    def of(cls, folder: str | Path, changes: Sequence[str] = (), *, served: bool = False) -> Job:
        """The run in a folder, with changes that leave it the run it is.

        One that was `served` over the network goes on so, and only so.
        """
        folder = Path(folder)
        begun = Run.open(folder).config
        _check_whose(folder, begun, served=served)
        before = build.resolved(cfg.load(folder / CONFIG))
        now = build.resolved(_changed(folder / CONFIG, changes))
        for key, was, is_now in differences(made_of(before), made_of(now)):
            key = key.removeprefix("settings.")
            raise _fixed(key, f", {was!r}, not {is_now!r}", folder / CONFIG)
        return cls(now, folder, is_begun=True)

    @property
    def name(self) -> str:
        """What its protocol is called."""
        return called(self.config.model_dump())

    def run(
        self,
        listener: Recorder | None = None,
        recall: Callable[[Line], None] = lambda _line: None,
        *,
        progress: bool = False,
    ) -> Result:
        """Begin it, or go on with it; `recall` is told what was recorded before."""
        return run(
            build.simulation(self.config),
            protocol=self.name,
            out=self.folder,
            config_text=cfg.to_toml(self.config),
            listener=listener,
            checkpoints=Checkpoints(**self.config.checkpoint.model_dump()),
            trackers=tracking.of(self.config.record, self.folder),
            made=made_of(self.config),
            resume=self.is_begun,
            recall=recall,
            progress=progress,
            share=self.config.record.share,
        )


def _changed(file: Path, changes: Sequence[str]) -> cfg.Config:
    """The config with these changes; of one that does not fit it is first told that it is fixed."""
    try:
        return cfg.load(file, changes)
    except ConfigError as error:
        keys = [change.partition("=")[0].strip() for change in changes]
        for key in keys:
            if key in cfg.all_keys() and not _may_change(key):
                raise _fixed(key, "", file) from error
        raise


def _may_change(key: str) -> bool:
    table, _, name = key.partition(".")
    own = MAY_CHANGE.get(table, ())
    return own is True or name.partition(".")[0] in own


def _fixed(key: str, values: str, file: Path) -> ConfigError:
    return ConfigError(
        f"{key}: a run goes on with what it was begun with{values}; only {IN_WORDS} may be "
        f"changed; make another run of it: pisces run {file}"
    )


def _check_whose(folder: Path, begun: Mapping[str, Any], *, served: bool) -> None:
    """Is it this that goes on with it? The error says what does."""
    over_network = (folder / CLIENTS).exists()
    if begun.get("made_in") == "Flower":
        raise RunError(
            f"{folder}: this run was made by a Flower app: start it again with the same `out`"
        )
    if "made_in" in begun:
        made_by = "pisces.server.serve" if over_network else "pisces.simulate"
        raise RunError(
            f"{folder}: this run was made in {begun['made_in']}: go on with it there, by "
            f"{made_by}(..., resume=True)"
        )
    if over_network and not served:
        raise RunError(
            f"{folder} was served over the network: go on with pisces serve --resume {folder} "
            "--listen HOST:PORT"
        )
    if not begun:
        raise RunError(f"{folder} was ended before it began: remove it, and run it again")


def resume(folder: str | Path, changes: Sequence[str] = (), *, progress: bool = False) -> Result:
    """Go on with the run in a folder, as `pisces resume` does.

    `changes` are such as "stop.time_s=2000". A run made with `simulate` goes on by being made again
    with `resume=True`. With `progress` it is shown while it goes on.
    """
    return Job.of(folder, changes).run(progress=progress)

"""Judges by name, for `[judge]`: their keyword parameters are its settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pisces.judge.clusters import LossOutliers
from pisces.judge.learning import NothingLearnt
from pisces.policy import Judge
from pisces.words import Drop, Window


def learning(concurrency: int) -> Judge:
    """That of pisces: whoever learns nothing from its own data is doubted."""
    return NothingLearnt(concurrency)


def clusters(
    concurrency: int,
    *,
    outlier_window: Window = 5,
    max_staleness: Annotated[
        int | None, Field(ge=0, description="losses are kept for updates twice as stale; none: C")
    ] = None,
    radius: Annotated[
        float | None, Field(gt=0, description="of DBSCAN; none: scaled to the losses")
    ] = None,
    drop_outliers: Drop = False,
) -> LossOutliers:
    """The Pisces paper's: whose loss is in no cluster of recent ones is doubted."""
    return LossOutliers(
        concurrency,
        window=outlier_window,
        eps=radius,
        max_staleness=max_staleness,
        drop=drop_outliers,
    )


def everybody() -> None:
    """Nobody is doubted."""

"""The judge by clusters that a run had, as far as its config tells.

`build` makes it of a config, but with all other policies, and torch along with them: more than a
page of figures should have to load. So it is asked of the same makers, which have the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pisces.judge.clusters import AUTHORS_EPS, LossOutliers
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import ReadRun


def judge_of(ledger: Ledger) -> LossOutliers | None:
    """The judge by clusters that the config tells of, if it does.

    By settings, not by names of protocols: a table `[judge]`, or a protocol's `outlier_window` (the
    paper's form), `guard = "clusters"` or `guard = true` (the authors' code). A `ConfigError` where
    the settings are such as no run could have: the folder may be anybody's.
    """
    concurrency = ledger.setting("clients", "concurrency")
    if type(concurrency) is not int or concurrency < 1:
        return None
    table = ledger.run.config.get("judge")
    if isinstance(table, dict):
        return _of_table(table, concurrency) if table.get("policy") == "clusters" else None
    return _of_protocol(ReadRun.of(ledger).protocol_settings, concurrency)


def _of_protocol(settings: Mapping[str, Any], concurrency: int) -> LossOutliers | None:
    if "outlier_window" in settings:
        return _of_table({"outlier_window": settings["outlier_window"]}, concurrency)
    if settings.get("guard") == "clusters":
        return LossOutliers(concurrency)
    return LossOutliers(concurrency, eps=AUTHORS_EPS) if settings.get("guard") is True else None


def _of_table(table: Mapping[str, Any], concurrency: int) -> LossOutliers:
    from pisces.protocols.judges import clusters  # these check settings, and load much for it
    from pisces.settings import checked

    told = {key: value for key, value in table.items() if key != "policy"}
    return clusters(concurrency, **checked(clusters, told, "judge", {}).model_dump())

"""Verdicts follow from the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pisces.study.claims import Verdict, in_short, judge, overall, why
from pisces.study.plan import Claim, Study
from pisces.study.records import Record

MakeRecord = Callable[..., Record]
LATER = (50.0, math.inf)  # the run ended after 50 s without


def thrice(record: MakeRecord, variant: str, time: Any, **changes: Any) -> list[Record]:
    """The same of three seeds, which are enough for a verdict."""
    return [record(variant, seed, time, **changes) for seed in (1, 2, 3)]


def judged(study: Study, records: Sequence[Record]) -> Any:
    return judge(study, records)[0]


@pytest.mark.parametrize(
    ("fast", "slow", "ours", "verdict"),
    [
        ([10, 10, 10], [20, 16, 30], "2.00x (1.60x to 3.00x)", "holds"),
        ([10, 10, 10], [12, 10, 14], "1.20x (1.00x to 1.40x)", "partly"),
        ([10, 10, 10], [5, 8, 20], "0.80x (0.50x to 2.00x)", "does not hold"),
        ([10, 10, 10], [LATER, LATER, 20], ">= 5.00x (2.00x to ?)", "holds"),
        # At least 50 / 40 times as fast: enough for "partly", and it might be more.
        ([40, 40, 40], [LATER, LATER, LATER], ">= 1.25x (1.25x to ?)", "partly"),
        ([LATER, LATER, LATER], [10, 10, 10], "<= 0.20x (? to 0.20x)", "does not hold"),
        # At least 50 / 100: anything from failing to holding.
        ([100, 100, 100], [LATER, LATER, LATER], ">= 0.50x (0.50x to ?)", "open"),
        # At most 60 / 50: it may hold partly, or not at all.
        ([LATER, LATER, LATER], [60, 60, 60], "<= 1.20x (? to 1.20x)", "open"),
        ([LATER] * 3, [LATER] * 3, "?", "open"),
        ([], [], "-", "not measured"),
    ],
)
def test_a_speedup(
    study: Study,
    record: MakeRecord,
    fast: list[Any],
    slow: list[Any],
    ours: str,
    verdict: Verdict,
) -> None:
    records = [
        record(name, seed, time)
        for name, times in (("fast", fast), ("slow", slow))
        for seed, time in enumerate(times)
    ]
    found = judged(study, records)
    assert (found.verdict, found.ours) == (verdict, ours)


def test_only_seeds_that_both_have_are_paired(study: Study, record: MakeRecord) -> None:
    records = [record("fast", 1, 10), record("fast", 2, 10), record("slow", 2, 20)]
    found = judged(study, records)
    assert found.found.num == 1
    assert found.ours == "2.00x"


def test_a_claim_about_several_variants_has_a_verdict_each(
    study: Study, record: MakeRecord
) -> None:
    changes = {"of": ["fast", "slow"], "over": None, "compare": "value", "holds": "<= 15"}
    claim = Claim.model_validate({**study.claim[0].model_dump(), **changes, "partly": None})
    records = [*thrice(record, "fast", 10), *thrice(record, "slow", 20)]
    found = judge(study.model_copy(update={"claim": [claim]}), records)[:2]
    assert [(one.setting, one.verdict) for one in found] == [
        ("small at 10, fast", "holds"),
        ("small at 10, slow", "does not hold"),
    ]


def test_a_claim_at_several_points_has_a_verdict_each(study: Study, record: MakeRecord) -> None:
    claim = Claim.model_validate({**study.claim[0].model_dump(), "at": [10.0, 20.0]})
    records = [*thrice(record, "fast", 10), *thrice(record, "slow", 20)]  # 20 / 10
    records += thrice(record, "fast", 10, x=20.0) + thrice(record, "slow", 12, x=20.0)  # 12 / 10
    found = judge(study.model_copy(update={"claim": [claim]}), records)
    assert [(one.setting, one.ours, one.verdict) for one in found] == [
        ("small at 10", "2.00x", "holds"),
        ("small at 20", "1.20x", "partly"),
        ("large at 10", "-", "not measured"),
        ("large at 20", "-", "not measured"),
    ]


def test_several_points_are_held_against_one(study: Study, record: MakeRecord) -> None:
    changes = {"at": [10.0, 20.0], "over_at": 10.0}
    claim = Claim.model_validate({**study.claim[0].model_dump(), **changes})
    records = [record("fast", 1, 10), record("slow", 1, 20), record("fast", 1, 5, x=20.0)]
    found = judge(study.model_copy(update={"claim": [claim]}), records)[:2]
    assert [one.ours for one in found] == ["2.00x", "4.00x"]  # 20 / 10, 20 / 5


def test_another_point_or_task_does_not_count(study: Study, record: MakeRecord) -> None:
    records = [record("fast", 1, 10), record("slow", 1, 20, x=20.0)]
    records.append(record("slow", 1, 20, case="large"))
    assert judged(study, records).verdict == "not measured"


@pytest.mark.parametrize(
    ("change", "ours"),
    [
        ({"compare": "ratio"}, "0.50x"),
        ({"compare": "difference"}, "-10"),
        ({"compare": "value", "over": None}, "10 s"),
        ({"compare": "value", "over": None, "measure": "final"}, "0.95"),
        ({"at": 20.0, "over_at": 10.0}, "4.00x"),  # 20 / 5
    ],
)
def test_ways_to_compare(
    study: Study, record: MakeRecord, change: dict[str, Any], ours: str
) -> None:
    claim = Claim.model_validate({**study.claim[0].model_dump(), **change})
    records = [record("fast", 1, 10), record("slow", 1, 20), record("fast", 1, 5, x=20.0)]
    assert judged(study.model_copy(update={"claim": [claim]}), records).ours == ours


@pytest.mark.parametrize(
    ("change", "times", "ours", "verdict"),
    [
        ({"holds": "<= 15"}, [10, 15, 12], "at worst 15 s", "holds"),
        # Two of three stay within it, and so does their median, 12.
        ({"holds": "<= 15"}, [10, 16, 12], "at worst 16 s", "does not hold"),
        ({"holds": "<= 15", "partly": "<= 20"}, [10, 16, 12], "at worst 16 s", "partly"),
        ({"holds": ">= 11"}, [12, 16, 11], "at worst 11 s", "holds"),
        ({"holds": ">= 12"}, [12, 16, 11], "at worst 11 s", "does not hold"),
        # A run that ended without: its time may be anything from 50 s up.
        ({"holds": "<= 60"}, [10, LATER, 12], "at worst >= 50 s (50 s to ?)", "open"),
        ({"holds": "<= 60"}, [10, LATER, 61], "at worst >= 61 s (61 s to ?)", "does not hold"),
        ({"holds": ">= 40"}, [45, LATER, 60], "at worst 45 s", "holds"),
        ({"holds": "<= 15"}, [10, 10], "at worst 10 s", "open"),  # two decide nothing
        ({"holds": "<= 15"}, [], "-", "not measured"),
    ],
)
def test_what_never_is_so_is_judged_by_the_worst_seed(
    study: Study,
    record: MakeRecord,
    change: dict[str, Any],
    times: list[Any],
    ours: str,
    verdict: Verdict,
) -> None:
    changes = {"compare": "value", "over": None, "partly": None, "by": "worst", **change}
    claim = Claim.model_validate({**study.claim[0].model_dump(), **changes})
    records = [record("fast", seed, time) for seed, time in enumerate(times)]
    found = judged(study.model_copy(update={"claim": [claim]}), records)
    assert (found.verdict, found.ours) == (verdict, ours)


def test_a_difference_from_zero_up_meets_zero(study: Study, record: MakeRecord) -> None:
    changes = {"compare": "difference", "of": "slow", "over": "fast", "holds": ">= 0"}
    claim = Claim.model_validate({**study.claim[0].model_dump(), **changes, "partly": None})
    records = [*thrice(record, "fast", 50), *thrice(record, "slow", LATER)]
    found = judged(study.model_copy(update={"claim": [claim]}), records)
    assert (found.verdict, found.ours) == ("holds", ">= +0 (+0 to ?)")


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ((10, 20, 10, 20), "holds"),
        ((20, 10, 20, 10), "does not hold"),
        ((10, 20, 20, 10), "partly"),
        ((10, 20, None, None), "holds"),  # what is not measured has no say
        ((10, 20, 100, LATER), "holds"),  # nor has what is open
        ((20, 10, 100, LATER), "does not hold"),
        ((100, LATER, 100, LATER), "open"),
        ((100, LATER, None, None), "open"),
        ((None,) * 4, "not measured"),
    ],
)
def test_the_studys_verdict(
    study: Study, record: MakeRecord, times: Sequence[float | None], verdict: Verdict
) -> None:
    names = [("small", "fast"), ("small", "slow"), ("large", "fast"), ("large", "slow")]
    records = [
        one
        for (case, variant), time in zip(names, times, strict=True)
        if time is not None
        for one in thrice(record, variant, time, case=case)
    ]
    assert overall(judge(study, records)) == verdict


def test_fewer_than_three_seeds_decide_nothing(study: Study, record: MakeRecord) -> None:
    two = [
        record(name, seed, time) for name, time in (("fast", 10), ("slow", 20)) for seed in (1, 2)
    ]
    found = judged(study, two)
    assert (found.verdict, found.ours) == ("open", "2.00x")
    assert found.decision == "open: fewer than 3 seeds"
    assert in_short(judge(study, two)) == "open (claims left open: 1, for fewer than 3 seeds)"
    wide = [
        *thrice(record, "fast", 100, case="large"),
        *thrice(record, "slow", LATER, case="large"),
    ]
    assert why(judge(study, two + wide)) == (
        "claims left open: 2, 1 of them for fewer than 3 seeds"
    )


def test_the_reason_names_the_numbers(study: Study, record: MakeRecord) -> None:
    small = [*thrice(record, "fast", 10), *thrice(record, "slow", 20)]
    large = [*thrice(record, "fast", 20, case="large"), *thrice(record, "slow", 10, case="large")]
    assert why(judge(study, small + large)) == (
        "1 of 2 claims hold: does not hold: fast is faster (large at 10): 0.50x, paper 2x"
    )
    wide = [*thrice(record, "fast", 100), *thrice(record, "slow", LATER)]
    assert why(judge(study, wide + large)) == (
        "0 of 1 claims hold, 1 open: does not hold: fast is faster (large at 10): 0.50x, paper 2x"
    )
    assert why(judge(study, wide)) == "claims left open: 1"
    assert why(judge(study, [])) == "no claim has been measured yet"
    assert why([]) == "it makes no claims"


def test_the_verdict_in_short(study: Study, record: MakeRecord) -> None:
    records = [*thrice(record, "fast", 10), *thrice(record, "slow", 20)]
    assert in_short(judge(study, records)) == "holds (1 of 1 claims hold)"
    records += thrice(record, "fast", 20, case="large") + thrice(record, "slow", 10, case="large")
    assert in_short(judge(study, records)) == "partly (1 of 2 claims hold)"
    assert in_short(judge(study, [])) == "not measured"
    assert in_short([]) == "no claims"

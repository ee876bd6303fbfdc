"""What came of a run as Flower tells it, and a last evaluation by nodes."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords
from flwr.supercore.task_identity import TaskIdentity
from postbox import Postbox, record

from pisces.errors import ConfigError
from pisces.execute.flower import evaluation
from pisces.execute.flower.arrays import Arrays
from pisces.execute.flower.evaluation import evaluated
from pisces.execute.flower.letters import Letters
from pisces.execute.flower.results import Collected, Doubts, Hook, mean, result_of
from pisces.types import (
    Aggregated,
    Distrusted,
    Dropped,
    Evaluated,
    Failed,
    Ignored,
    Joined,
    Left,
    Report,
    Update,
    Weights,
)

ARRAYS, WEIGHTS = Arrays.of(record(w=[1.0, 2.0]), None)


def content(**metrics: Any) -> RecordDict:
    return RecordDict(
        {"metrics": MetricRecord({k.replace("_", "-"): v for k, v in metrics.items()})}
    )


def test_the_mean_is_weighted_and_over_those_that_tell() -> None:
    told = [
        content(num_examples=10, loss=1.0, acc=0.5),
        content(num_examples=30, loss=2.0, curve=[1.0, 2.0]),
    ]
    # (10 * 1 + 30 * 2) / 40 = 1.75; only one tells acc, and only one a curve
    assert dict(mean(told, "num-examples")) == {"loss": 1.75, "acc": 0.5, "curve": [1.0, 2.0]}


def test_the_mean_is_flowers_own() -> None:
    told = [
        content(num_examples=10, loss=1.0, hits=3, curve=[1.0, 2.0], none=[]),
        content(num_examples=30, loss=2.0, hits=5, curve=[3.0, 6.0], none=[]),
    ]
    theirs = aggregate_metricrecords(told, "num-examples")
    # (10 * 1 + 30 * 3) / 40 and (10 * 2 + 30 * 6) / 40
    assert dict(theirs) == {"loss": 1.75, "hits": 4.5, "curve": [2.5, 5.0], "none": []}
    assert dict(mean(told, "num-examples")) == dict(theirs)


def test_what_has_no_mean_is_left_out() -> None:
    # Flower ends the run by any of these; one node's metrics are no reason to.
    told = [
        content(num_examples=10, curve=[1.0, 2.0], kind=1.0, huge=10**400, also=[10**400]),
        content(num_examples=30, curve=[3.0], kind=[1.0], huge=1.0, also=[1.0]),
    ]
    assert dict(mean(told, "num-examples")) == {}
    assert dict(mean([content(num_examples=10**400, loss=1.0)], "num-examples")) == {}


def aggregated(version: int, *tasks: int) -> Aggregated:
    return Aggregated(0.0, version, tasks, (0,) * len(tasks), (1.0,) * len(tasks))


def test_metrics_of_a_version_are_those_of_its_updates() -> None:
    collected = Collected("num-examples")
    for task, (num, loss) in enumerate([(10, 1.0), (30, 2.0), (5, 9.0), (5, 9.0), (5, 9.0)]):
        collected.hear(task, MetricRecord({"num-examples": num, "loss": loss}))
    collected.record(Dropped(0.0, 2, "too late"))
    collected.record(Failed(0.0, 1, "refused", 3))
    collected.record(Ignored(0.0, 1, 4, "no such task"))
    for entry in (Left(0.0, 1, "gone", 8), Failed(0.0, 1, "nothing to do with a task")):
        collected.record(entry)
    collected.record(aggregated(1, 0, 1))
    collected.record(aggregated(2, 77))  # what came in before is not known here
    assert {v: dict(r) for v, r in collected.by_version.items()} == {1: {"loss": 1.75}}
    assert not collected._told  # nothing is kept that nobody will ask for
    collected.close()


def test_an_app_may_combine_as_it_likes() -> None:
    seen: list[tuple[list[dict[str, Any]], str]] = []

    def combine(contents: list[RecordDict], weighted_by: str) -> MetricRecord:
        seen.append(([dict(c["metrics"]) for c in contents], weighted_by))
        return MetricRecord({"best": 1.0})

    collected = Collected("num-examples", combine)
    collected.hear(0, MetricRecord({"num-examples": 3}))
    collected.record(aggregated(1, 0))
    assert seen == [([{"num-examples": 3}], "num-examples")]
    assert dict(collected.by_version[1]) == {"best": 1.0}


# --- the app's own evaluation ---------------------------------------------------------------------


def test_every_version_is_evaluated_once_and_kept_whole() -> None:
    asked: list[tuple[int, list[float]]] = []

    def evaluate(version: int, arrays: ArrayRecord) -> MetricRecord | None:
        asked.append((version, arrays["w"].numpy().tolist()))
        return MetricRecord({"accuracy": 0.1 * version, "hits": [1, 2]}) if version < 2 else None

    hook = Hook(evaluate, ARRAYS, ARRAYS.record(WEIGHTS))
    assert hook.names == ("accuracy",)
    assert hook(0, WEIGHTS) == {"accuracy": 0.0}
    assert hook(1, Weights(WEIGHTS.flat + 1, WEIGHTS.layout)) == {"accuracy": 0.1}
    assert hook(2, WEIGHTS) == {}  # it had nothing to say
    assert asked == [(0, [1.0, 2.0]), (1, [2.0, 3.0]), (2, [1.0, 2.0])]
    assert {v: dict(r) for v, r in hook.by_version.items()} == {
        0: {"accuracy": 0.0, "hits": [1, 2]},
        1: {"accuracy": 0.1, "hits": [1, 2]},
    }


def test_what_was_evaluated_before_is_recalled() -> None:
    hook = Hook(lambda _v, _a: MetricRecord({"accuracy": 0.5}), ARRAYS, ARRAYS.record(WEIGHTS))
    hook.recall(0, {"accuracy": 0.25})  # that of the run, not of what this process drew
    hook.record(Evaluated(1.0, 1, {"accuracy": 0.75}))
    hook.record(Evaluated(2.0, 1, {"accuracy": 0.0}))  # known
    hook.recall(2, {"accuracy": None})  # it was not finite
    hook.record(Left(0.0, 1, "gone"))
    hook.close()
    told = {version: dict(metrics) for version, metrics in hook.by_version.items()}
    assert told == {0: {"accuracy": 0.25}, 1: {"accuracy": 0.75}}


@pytest.mark.parametrize("nonsense", [0.5, "good", {"accuracy": 0.5}, [1.0], (0.1, {})])
def test_an_evaluation_that_tells_no_metrics_is_refused(nonsense: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"evaluate_fn: must return a MetricRecord, such as .* or"
    ):
        Hook(lambda _v, _a: nonsense, ARRAYS, ARRAYS.record(WEIGHTS))


@pytest.mark.parametrize("name", ["kind", "at", "version"])
def test_a_metric_is_not_called_as_the_record_calls_its_own(name: str) -> None:
    with pytest.raises(ConfigError, match=f"evaluate_fn: a metric may not be called '{name}'"):
        Hook(lambda _v, _a: MetricRecord({name: 1.0}), ARRAYS, ARRAYS.record(WEIGHTS))


def test_all_of_it_together() -> None:
    collected = Collected("num-examples")
    collected.by_version[1] = MetricRecord({"loss": 1.0})
    hook = Hook(lambda _v, _a: MetricRecord({"accuracy": 0.5}), ARRAYS, ARRAYS.record(WEIGHTS))
    last = ARRAYS.record(WEIGHTS)
    result = result_of(last, collected, hook, {3: MetricRecord({"acc": 0.9})})
    assert result.arrays is last
    assert {v: dict(m) for v, m in result.train_metrics_clientapp.items()} == {1: {"loss": 1.0}}
    assert {v: dict(m) for v, m in result.evaluate_metrics_clientapp.items()} == {3: {"acc": 0.9}}
    assert dict(result.evaluate_metrics_serverapp[0]) == {"accuracy": 0.5}
    assert result_of(last, collected, None, {}).evaluate_metrics_serverapp == {}


# --- by nodes -------------------------------------------------------------------------------------


class Answering(Postbox):
    """Nodes that answer at once with what they are told to, the first with the first."""

    def __init__(self, *replies: dict[str, Any] | None) -> None:
        super().__init__(*range(100, 100 + len(replies)))
        self._by_node = dict(zip(self.nodes, replies, strict=True))
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    def push_messages(self, messages: Any) -> Any:
        [message] = messages
        told = self._by_node[message.metadata.dst_node_id]
        if told is None:
            return [""]
        ids = super().push_messages([message])
        if "raises" in told:
            self.fail(2, "it raised")
        elif told:
            reply = Message(RecordDict({"metrics": MetricRecord(told)}), reply_to=message)
            self.put(message, reply)
        return ids


def asked(grid: Postbox, share: float = 1.0, timeout_s: float = 60.0) -> list[dict[str, Any]]:
    letters = Letters(settings={"batch": 8})
    rng = np.random.default_rng(1)
    how: Any = {"share": share, "letters": letters, "weighted_by": "num-examples", "rng": rng}
    told = evaluated(grid, ARRAYS.record(WEIGHTS), 7, timeout_s=timeout_s, **how)
    return [dict(record) for record in told]


GOOD = {"num-examples": 4, "acc": 0.5}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "ASK_S", 0.01)


def test_nodes_evaluate_the_last_version() -> None:
    grid = Answering(GOOD, GOOD)
    assert asked(grid) == [GOOD, GOOD]
    letter = grid.sent[0]
    assert letter.metadata.message_type == "evaluate"
    assert (letter.metadata.ttl, letter.metadata.group_id) == (60.0, "7")
    assert dict(letter.content["config"]) == {"batch": 8, "server-round": 7}
    assert letter.content["arrays"]["w"].numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("share", "num"), [(0.01, 1), (0.5, 2), (0.6, 2), (0.7, 3), (1.0, 4)])
def test_a_share_of_them_at_least_one(share: float, num: int) -> None:
    grid = Answering(GOOD, GOOD, GOOD, GOOD)
    assert len(asked(grid, share)) == num
    nodes = [letter.metadata.dst_node_id for letter in grid.sent]
    assert len(set(nodes)) == len(nodes)


def test_nobody_is_there_to_evaluate() -> None:
    assert asked(Answering()) == []


@pytest.mark.parametrize(
    "bad",
    [
        None,  # Flower takes no message for it: nobody waits
        {"raises": 1},
        {"acc": 0.5},
        {"num-examples": 0, "acc": 0.5},
        {"num-examples": -1.0, "acc": 0.5},
        {"num-examples": math.nan, "acc": 0.5},
        {"num-examples": math.inf, "acc": 0.5},
        {"num-examples": [4], "acc": 0.5},
    ],
)
def test_what_some_cannot_tell_others_do(bad: dict[str, Any] | None) -> None:
    began = time.monotonic()
    assert asked(Answering(bad, GOOD)) == [GOOD]
    assert time.monotonic() - began < 30.0  # of the 60 there are: nobody was waited for


def test_who_says_nothing_is_waited_for_as_long_as_said() -> None:
    assert asked(Answering({}, GOOD), timeout_s=0.05) == [GOOD]


def test_whatever_goes_wrong_there_is_a_result(caplog: pytest.LogCaptureFixture) -> None:
    grid = Answering({}, GOOD)
    grid.put = lambda letter, reply: Postbox.put(grid, letter, ValueError("odd"))  # type: ignore[method-assign]
    assert asked(grid) == []
    assert "could not be evaluated by nodes" in caplog.messages[-1]


# --- whom the server trusts -----------------------------------------------------------------------


def update(client: int) -> Update:
    report = Report(10, 1.0)
    return Update(0, client, 0, WEIGHTS, WEIGHTS, report, arrived_at=1.0, latency_s=1.0)


def test_it_is_said_whose_updates_are_refused_and_who_is_not_asked_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    doubts = Doubts()
    for client in (0, 1):
        doubts.record(Joined(0.0, client, 10))
    doubts.record(update(0))
    for _ in range(3):
        doubts.record(Failed(1.0, 1, "update refused: loss 4e9", 7))
        doubts.record(Failed(1.0, 0, "it raised", 8))  # the courier says that
    doubts.record(Distrusted(2.0, 1))
    assert caplog.messages == [
        "client 1: update refused: loss 4e9",
        "client 1 is not asked any more: it has no credit left",
    ]
    caplog.clear()
    doubts.record(Joined(2.5, 1, 20))  # it is there as before, and is not asked as before
    doubts.record(Distrusted(3.0, 0))
    assert caplog.messages[1].startswith("nobody is left who is trusted: mend the ClientApp")


def test_where_nothing_could_ever_be_used_and_nobody_is_trusted_the_run_is_over() -> None:
    doubts = Doubts()
    for client in (0, 1):
        doubts.record(Joined(0.0, client, 10))
        doubts.record(Failed(1.0, client, "update refused: weights that are not finite", client))
    doubts.record(Distrusted(2.0, 1))
    with pytest.raises(
        ConfigError,
        match=r"every update .* refused, the last by: .* not finite; mend the ClientApp",
    ):
        doubts.record(Distrusted(2.0, 0))


@pytest.mark.parametrize(("kind", "is_over"), [("arrived", False), ("failed", True)])
def test_who_was_there_before_a_run_went_on_is_trusted(
    kind: str, is_over: bool, caplog: pytest.LogCaptureFixture
) -> None:
    doubts = Doubts()
    for client in range(3):
        doubts.recall({"kind": "joined", "at": 0.0, "client": client, "num_examples": 10})
    doubts.recall({"kind": kind, "at": 1.0, "client": 2, "task": 0})
    doubts.recall({"kind": "distrusted", "at": 1.0, "client": 2})
    doubts.record(Distrusted(2.0, 1))
    assert caplog.messages == ["client 1 is not asked any more: it has no credit left"]
    with pytest.raises(ConfigError) if is_over else nullcontext():
        doubts.record(Distrusted(2.0, 0))
    assert is_over or "nobody is left who is trusted" in caplog.messages[-1]

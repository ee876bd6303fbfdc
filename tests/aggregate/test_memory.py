"""What aggregators remember of each client: how much that may take, and that it is not lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from runs import World, assemble, digits, log_bytes, through_json
from worlds import update, view, weights

from pisces.aggregate.asofed import AsoFed
from pisces.aggregate.ca2fl import Calibrated
from pisces.aggregate.memory import ClientVectors, check_memory
from pisces.errors import ConfigError
from pisces.pace.fedbuff import Buffered
from pisces.policy import Aggregator, Policies
from pisces.seeds import generator
from pisces.select.uniform import Uniform

every_memory = pytest.mark.parametrize("rule", [Calibrated, AsoFed])


def test_the_limit_is_the_most_that_is_allowed() -> None:
    check_memory(10, 400, 4000)
    with pytest.raises(ConfigError) as raised:
        check_memory(10, 404, 4000)
    assert str(raised.value) == (
        "max_cache_bytes: a model for each of 10 clients takes 4040 bytes (10 x 404), more than "
        "4000; raise it if there is memory, or use fewer clients, a smaller model or a protocol "
        "that remembers no clients"
    )


@every_memory
def test_too_many_clients_are_refused_at_the_first_version(rule: type) -> None:
    # Two float32 numbers of each of five clients: 40 bytes, though only one has reported.
    one, rng = [update(0, [1.0, 2.0])], generator(1, "aggregate")
    rule(max_cache_bytes=40).combine(weights([0.0, 0.0]), one, view([100] * 5), rng)
    with pytest.raises(ConfigError, match="each of 5 clients takes 40 bytes"):
        rule(max_cache_bytes=39).combine(weights([0.0, 0.0]), one, view([100] * 5), rng)


# digits: 64 pixels, 16 hidden, 10 classes. 65 x 16 + 17 x 10 = 1210 numbers of each of 6 clients.
ROOM = 4 * 1210 * 6


@pytest.mark.parametrize("name", ["ca2fl", "aso-fed"])
@pytest.mark.parametrize("around", [[], ["aggregate.policy=clip", "aggregate.norm=1.0"]])
def test_a_run_is_refused_before_it_starts_whoever_joins_when(name: str, around: list[str]) -> None:
    changes = [*around, "availability.late_share=0.9", "availability.late_over_s=500.0"]
    digits(name, [*changes, f"protocols.{name}.max_cache_bytes={ROOM}"])
    with pytest.raises(ConfigError, match=f"each of 6 clients takes {ROOM} bytes"):
        digits(name, [*changes, f"protocols.{name}.max_cache_bytes={ROOM - 1}"])


@every_memory
def test_clients_that_join_later_count_too(rule: type) -> None:
    one, rng = [update(0, [1.0, 2.0])], generator(1, "aggregate")
    aggregator = rule(max_cache_bytes=40)
    aggregator.combine(weights([0.0, 0.0]), one, view([100] * 5), rng)
    with pytest.raises(ConfigError, match="each of 6 clients"):
        aggregator.combine(weights([0.0, 0.0]), one, view([100] * 6), rng)


@every_memory
def test_nothing_larger_is_kept_alive(rule: type) -> None:
    """A client's result may be a row of those of many."""
    together = torch.ones(50, 2)
    one = update(3, [0.0, 0.0])
    object.__setattr__(one.weights, "flat", together[3])
    aggregator = rule()
    aggregator.combine(weights([0.0, 0.0]), [one], view([100] * 5), generator(1, "aggregate"))
    kept = aggregator.state().arrays["client/3"]
    assert kept.tolist() == [1.0, 1.0]
    assert kept.untyped_storage().nbytes() == 8


def test_vectors_go_on_from_saved_state() -> None:
    first, second = ClientVectors(), ClientVectors()
    first.put(3, torch.tensor([1.0, 2.0]))
    first.put(12, torch.tensor([3.0, 4.0]))
    state = first.state()
    first.put(3, torch.tensor([5.0, 6.0]))  # what was handed over stays as it was
    second.put(7, torch.tensor([0.0, 0.0]))
    second.restore(through_json(state))
    assert sorted(second.state().arrays) == ["client/12", "client/3"]
    assert [v.tolist() for c in (3, 12) if (v := second.get(c)) is not None] == [[1, 2], [3, 4]]
    assert second.get(7) is None


@pytest.mark.parametrize("num_steps", [1, 7, 20])
@every_memory
def test_a_run_goes_on_bit_for_bit(rule: Callable[[], Aggregator], num_steps: int) -> None:
    world = World(latencies=[1.0, 1.5, 2.0, 3.5, 5.0, 8.0], jitter=0.3)

    def fresh() -> Policies:
        return Policies(Uniform(), Buffered(world.concurrency, 2), rule())

    whole, first, second = (assemble(fresh(), world) for _ in range(3))
    for _ in range(num_steps):
        first.coordinator.step()
    second.coordinator.restore(through_json(first.coordinator.state()))
    lines = first.memory.lines + second.run()
    assert log_bytes(lines) == log_bytes(whole.run())
    assert torch.equal(second.coordinator.weights.flat, whole.coordinator.weights.flat)
    ended, expected = (run.coordinator.state().arrays for run in (second, whole))
    kept = [name for name in expected if name.startswith("aggregator/")]
    assert len(kept) >= 6
    assert all(torch.equal(ended[name], expected[name]) for name in kept)

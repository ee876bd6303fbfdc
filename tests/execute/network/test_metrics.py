"""A server's numbers, as Prometheus reads them."""

from __future__ import annotations

import math
import socket
from urllib.request import urlopen

import pytest

from pisces.errors import ConfigError
from pisces.execute.network.server.metrics import MOST_REASONS, Metrics, served, split
from pisces.execute.network.server.stats import Stats
from pisces.types import Aggregated, Dropped, Evaluated, Failed, Started


def scraped(metrics: Metrics) -> dict[str, float]:
    """Every sample over HTTP, by name and labels."""
    with served(metrics, "0") as url:
        assert url.startswith("http://127.0.0.1:")
        text = urlopen(url, timeout=10).read().decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    pairs = (line.rsplit(" ", 1) for line in lines)
    return {name: float(value) for name, value in pairs if not name.endswith("_created")}


def test_a_run_is_counted_whoever_wrote_its_lines() -> None:
    metrics = Metrics()
    metrics.add({"kind": "arrived", "at": 1.5, "task": 0, "client": 1})  # of the process before
    metrics.record(Started(2.0, 1, 3, 0))
    metrics.record(Failed(2.5, 3, "crashed", 1))
    metrics.record(Aggregated(3.0, 1, (0,), (0,), (1.0,)))
    metrics.record(Aggregated(4.0, 2, (4, 5, 6), (1, 3, 100), (0.3, 0.3, 0.3)))
    metrics.record(Dropped(4.0, 9, "too stale"))
    metrics.record(Evaluated(2.0, 1, {"accuracy": 0.5, "loss": 2.0}))
    metrics.record(Evaluated(3.0, 2, {"accuracy": 0.75, "loss": math.nan}))
    found = scraped(metrics)
    assert found["pisces_version"] == 2
    assert found["pisces_seconds"] == 4.0  # an evaluation may be told late
    assert found["pisces_arrived_total"] == found["pisces_started_total"] == 1
    assert found["pisces_failed_total"] == found["pisces_dropped_total"] == 1
    assert found["pisces_left_total"] == 0
    assert found['pisces_evaluation{metric="accuracy"}'] == 0.75
    assert found['pisces_evaluation{metric="loss"}'] == 2.0  # the last that was a number
    # Staleness 0, 1, 3 and 100.
    buckets = {end: found[f'pisces_staleness_bucket{{le="{end}"}}'] for end in ("0.0", "1.0")}
    assert buckets == {"0.0": 1, "1.0": 2}
    assert found['pisces_staleness_bucket{le="4.0"}'] == 3
    assert found['pisces_staleness_bucket{le="64.0"}'] == 3
    assert found['pisces_staleness_bucket{le="+Inf"}'] == found["pisces_staleness_count"] == 4
    assert found["pisces_staleness_sum"] == 104


def test_so_are_connections() -> None:
    metrics, stats = Metrics(), Stats(num_connected=3, num_given=2, sent_bytes=10)
    stats.refused["an expired certificate"] = 7
    metrics.stats = lambda: stats
    found = scraped(metrics)
    assert found["pisces_connected"] == 3
    assert found["pisces_running"] == 2
    assert (found["pisces_sent_bytes_total"], found["pisces_received_bytes_total"]) == (10, 0)
    assert found['pisces_refused_total{reason="an expired certificate"}'] == 7


def test_reasons_that_others_make_up_do_not_fill_the_memory_of_who_reads_them() -> None:
    metrics, stats = Metrics(), Stats()
    stats.refused.update({f"reason {number}": 1 for number in range(1000)})
    metrics.stats = lambda: stats
    assert sum(name.startswith("pisces_refused") for name in scraped(metrics)) == MOST_REASONS


def test_two_servers_in_one_process_do_not_get_into_each_others_way() -> None:
    one, other = Metrics(), Metrics()
    one.record(Started(2.0, 1, 3, 0))
    with served(one, "127.0.0.1:0"):
        assert scraped(other)["pisces_started_total"] == 0


@pytest.mark.parametrize("wrong", ["", "web", "127.0.0.1", "127.0.0.1:", "99999", ":-1", "1:2³"])
def test_refuses_what_is_no_address(wrong: str) -> None:
    with pytest.raises(ConfigError, match="takes PORT or HOST:PORT"):
        split(wrong)


def test_addresses() -> None:
    assert split("9090") == split(":9090") == ("127.0.0.1", 9090)
    assert split("0.0.0.0:9090") == ("0.0.0.0", 9090)
    assert split("[::1]:9090") == ("::1", 9090)


def test_a_port_that_is_taken_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=f"cannot listen on {port}: .*; choose another"),
            served(Metrics(), str(port)),
        ):
            pass

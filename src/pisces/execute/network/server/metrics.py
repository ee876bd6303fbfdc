"""A server's numbers in Prometheus' format, over HTTP: of its run, and of its connections.

They are kept as plain numbers and put into words when somebody asks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pisces.errors import ConfigError
from pisces.execute.network.address import parsed
from pisces.execute.network.extra import needed
from pisces.execute.network.server.stats import Stats
from pisces.record.lines import Line, Recorder, line
from pisces.record.summary import metrics_of
from pisces.types import Entry

with needed():
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

if TYPE_CHECKING:
    from prometheus_client.core import Metric

STALENESS = (0, 1, 2, 4, 8, 16, 32, 64)  # upper ends of the histogram's buckets
MOST_REASONS = 50  # told apart: who is kept out may have any
LOOPBACK = "127.0.0.1"
COUNTED = {
    "started": "tasks handed to clients",
    "arrived": "updates accepted",
    "failed": "tasks that failed, or were called off",
    "left": "times that a client was gone",
    "dropped": "updates accepted and not used",
    "ignored": "results of tasks that were not running",
    "outlier": "updates that the judge doubted",
    "distrusted": "clients that are not selected again",
}


class Metrics(Recorder):
    """What a run has come to so far; `stats` are those of its executor, once there is one."""

    def __init__(self) -> None:
        self.stats: Callable[[], Stats] = Stats
        self._lock = threading.Lock()
        self._counts = Counter[str]()
        self._staleness = Counter[int]()
        self._measured: dict[str, float] = {}
        self._version, self._at = 0, 0.0

    def record(self, entry: Entry) -> None:
        """Note an entry."""
        self.add(line(entry))

    def add(self, line: Line) -> None:
        """Note a line, be it one of an earlier process."""
        with self._lock:
            self._at = max(self._at, line["at"])
            self._counts[line["kind"]] += 1
            if line["kind"] == "aggregated":
                self._version = line["version"]
                self._staleness.update(line["staleness"])
            if line["kind"] == "evaluated":
                values = metrics_of(line).items()
                self._measured |= {name: value for name, value in values if value is not None}

    def close(self) -> None:
        """Nothing is held."""

    # --- in Prometheus' words ---------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """All there is to tell now."""
        with self._lock:
            told = [*self._of_the_run()]
        yield from told
        yield from self._of_the_network(self.stats())

    def _of_the_run(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("pisces_version", "versions of the model so far", self._version)
        yield GaugeMetricFamily("pisces_seconds", "the run's time at its last entry", self._at)
        for kind, meaning in COUNTED.items():
            yield CounterMetricFamily(f"pisces_{kind}", meaning, self._counts[kind])
        yield self._histogram()
        measured = GaugeMetricFamily(
            "pisces_evaluation", "of the version evaluated last", labels=["metric"]
        )
        for name, value in self._measured.items():
            measured.add_metric([name], value)
        yield measured

    def _histogram(self) -> Metric:
        counts, buckets = self._staleness, []
        for end in STALENESS:
            buckets.append((str(float(end)), sum(n for s, n in counts.items() if s <= end)))
        buckets.append(("+Inf", counts.total()))
        total = sum(staleness * num for staleness, num in counts.items())
        return HistogramMetricFamily(
            "pisces_staleness", "of aggregated updates, in versions", buckets, total
        )

    def _of_the_network(self, stats: Stats) -> Iterator[Metric]:
        yield GaugeMetricFamily("pisces_connected", "clients", stats.num_connected)
        yield GaugeMetricFamily("pisces_running", "tasks that clients have", stats.num_given)
        yield CounterMetricFamily("pisces_received_bytes", "from clients", stats.received_bytes)
        yield CounterMetricFamily("pisces_sent_bytes", "to clients", stats.sent_bytes)
        refused = CounterMetricFamily("pisces_refused", "who was kept out", labels=["reason"])
        for reason, num in stats.refused.most_common(MOST_REASONS):
            refused.add_metric([reason], num)
        yield refused


@contextmanager
def served(metrics: Metrics, address: str) -> Iterator[str]:
    """Answer at PORT of this machine, or at HOST:PORT, meanwhile; gives the address."""
    host, port = split(address)
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(port, host, registry=registry)
    except OSError as error:
        raise ConfigError(
            f"--metrics: cannot listen on {address}: {error.strerror or error}; choose another port"
        ) from error
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def split(address: str) -> tuple[str, int]:
    """HOST:PORT, or a PORT of this machine."""
    found = parsed(address)
    if found is None:
        raise ConfigError(f"--metrics takes PORT or HOST:PORT, such as 9090, not {address!r}")
    host, port = found
    return host or LOOPBACK, port

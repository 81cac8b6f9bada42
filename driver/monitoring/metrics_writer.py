"""All nodes' metrics as text: lines for Spark's sinks, and Prometheus's format."""

from collections.abc import Mapping
from typing import Final

from sparklog.driver.monitoring.broker_metrics import BrokerMetrics
from sparklog.driver.monitoring.exposition import CONTROLLER, Rates, for_prometheus, for_sinks
from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.metrics import process
from sparklog.protocol.types import BrokerId

FORGET_AFTER_MS: Final = 60_000
"""The time for which a silent node's last metrics are exported, with their age."""


class MetricsWriter:
    """Writes the newest metrics of all nodes, with rates since the last time; belongs to one thread."""

    def __init__(self, kept: BrokerMetrics, controller_id: BrokerId) -> None:
        self._kept = kept
        self._controller_id = controller_id
        self._rates = Rates()

    def write(self, restarts: Mapping[BrokerId, int]) -> tuple[str, str]:
        """Return the lines for sinks, and those for Prometheus.

        `restarts` has the number of each broker's restarts.
        """
        now_ms = wall_clock_ms()
        latest: dict[str, ReceivedMetrics] = {}
        lines: list[str] = []
        for node_id, received in self._kept.latest().items():
            if now_ms - received.received_at_ms > FORGET_AFTER_MS:
                self._rates.forget([node_id])
                continue
            values = dict(received.values)
            if node_id in restarts:
                values[process.RESTARTS.of()] = restarts[node_id]
            node = CONTROLLER if node_id == self._controller_id else str(node_id)
            latest[node] = ReceivedMetrics(received.received_at_ms, values)
            values = self._rates.add_to(node_id, latest[node])
            values[process.SAMPLE_AGE.of()] = max(0, now_ms - received.received_at_ms)
            lines += for_sinks(node, values)
        return "".join(f"{line}\n" for line in lines), for_prometheus(latest, now_ms)

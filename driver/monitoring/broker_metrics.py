"""What the driver keeps of the nodes' metrics: of each node the newest figures, and when they came.

The controller's own are there too, under its node id. One thread writes, any may read: `latest` returns a
mapping that nobody changes any more. A node that is silent keeps its last figures, by their time to be told
from new ones.
"""

import threading
from collections.abc import Mapping
from types import MappingProxyType

from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.node.metrics.names import MetricName
from sparklog.protocol.types import BrokerId, TimestampMs


class BrokerMetrics:
    """The newest figures of every node of a cluster."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: Mapping[BrokerId, ReceivedMetrics] = MappingProxyType({})

    def latest(self) -> Mapping[BrokerId, ReceivedMetrics]:
        """Return the newest figures by node id; what is returned does not change."""
        return self._latest

    def received(self, node_id: BrokerId, values: Mapping[MetricName, float], now_ms: TimestampMs) -> None:
        """Take a node's figures in."""
        with self._lock:
            self._latest = MappingProxyType({**self._latest, node_id: ReceivedMetrics(now_ms, values)})

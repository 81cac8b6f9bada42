"""The newest metrics of each node, and the time of their arrival.

Those of the controller are there too, under its node id. One thread writes, any may read: the mapping that
`latest` returns is never changed. A silent node keeps its last metrics; their time shows their age.
"""

import threading
from collections.abc import Mapping
from types import MappingProxyType

from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.node.metrics.names import MetricName
from sparklog.protocol.types import BrokerId, TimestampMs


class BrokerMetrics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: Mapping[BrokerId, ReceivedMetrics] = MappingProxyType({})

    def latest(self) -> Mapping[BrokerId, ReceivedMetrics]:
        """Return the newest metrics by node id; the mapping is never changed."""
        return self._latest

    def received(self, node_id: BrokerId, values: Mapping[MetricName, float], now_ms: TimestampMs) -> None:
        with self._lock:
            self._latest = MappingProxyType({**self._latest, node_id: ReceivedMetrics(now_ms, values)})

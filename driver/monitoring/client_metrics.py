"""The newest telemetry of each client instance, of a limited number of them.

An instance that has been silent for `EXPIRY_MS`, or longest when there are too many, is forgotten. One thread
writes, any may read.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.node.metrics.names import MetricName
from sparklog.protocol.types import TimestampMs

MAX_INSTANCES: Final = 500
MAX_SAMPLES_EACH: Final = 500
EXPIRY_MS: Final = 5 * 60_000


class ReceivedClientMetrics(NamedTuple):
    client_id: str | None
    received_at_ms: TimestampMs
    values: Mapping[MetricName, float]


class ClientMetrics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: OrderedDict[UUID, ReceivedClientMetrics] = OrderedDict()

    def latest(self) -> Mapping[UUID, ReceivedClientMetrics]:
        """Return the newest metrics by client instance id; the mapping is never changed."""
        with self._lock:
            return MappingProxyType(dict(self._latest))

    def received(self, client_instance_id: UUID, metrics: ReceivedClientMetrics) -> None:
        with self._lock:
            self._latest[client_instance_id] = metrics
            self._latest.move_to_end(client_instance_id)
            oldest_ms = metrics.received_at_ms - EXPIRY_MS
            while len(self._latest) > MAX_INSTANCES or (
                next(iter(self._latest.values())).received_at_ms < oldest_ms
            ):
                self._latest.popitem(last=False)

    def ended(self, client_instance_id: UUID) -> None:
        """Forget an instance that has announced its last push."""
        with self._lock:
            self._latest.pop(client_instance_id, None)

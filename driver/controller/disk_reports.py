"""The use of brokers' disks, read from the metrics that they push.

Nothing is sent for it: these are gauges of `sparklog/node/metrics/storage.py`, which all brokers push once a
second. They are read for one broker at a time, and of each seldom, since they lie among some thousands.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Final

from sparklog.driver.controller.machine.balancing.disks import DiskVolume, MeasuredDisks
from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.node.metrics import storage
from sparklog.node.metrics.names import MetricName
from sparklog.protocol.types import BrokerId, TimestampMs, TopicPartition

INTERVAL_MS: Final = 10_000
"""The interval at which a broker's metrics are read."""
MEASURED_BEFORE_MS: Final = 15_000
"""The largest age of the gauges when a broker pushes them: they are made every five seconds."""
_VOLUME_METRICS: Final = (storage.DIRECTORY_LOGS, storage.DIRECTORY_FREE, storage.DIRECTORY_FILE_SYSTEM)


class DiskReports:
    def __init__(self, latest: Callable[[], Mapping[BrokerId, ReceivedMetrics]]) -> None:
        self._latest = latest
        self._read: dict[BrokerId, tuple[int, TimestampMs]] = {}
        """When each broker's metrics were read, and the time of arrival of those."""

    def next(self, now_ms: int, wall_clock_ms: TimestampMs) -> tuple[BrokerId, MeasuredDisks] | None:
        """Return new figures of the broker whose last ones are the oldest; None if none are due."""
        latest = self._latest()
        for broker_id in self._read.keys() - latest.keys():
            del self._read[broker_id]
        due = [
            (read_ms, broker_id)
            for broker_id, received in latest.items()
            for read_ms, arrived_ms in (self._read.get(broker_id, (now_ms - INTERVAL_MS, None)),)
            if now_ms - read_ms >= INTERVAL_MS and received.received_at_ms != arrived_ms
        ]
        if not due:
            return None
        _, broker_id = min(due)
        received = latest[broker_id]
        self._read[broker_id] = (now_ms, received.received_at_ms)
        age_ms = max(0, wall_clock_ms - received.received_at_ms)
        measured = measured_disks(received.values, now_ms - age_ms - MEASURED_BEFORE_MS)
        return None if measured is None else (broker_id, measured)


def measured_disks(values: Mapping[MetricName, float], measured_ms: int) -> MeasuredDisks | None:
    """Return a broker's disks by its metrics; None if these do not have all of each directory."""
    directories: dict[str, dict[str, int]] = {}
    sizes: dict[TopicPartition, int] = {}
    for name, value in values.items():
        if name.type == storage.DIRECTORY_FREE.type and name.group == storage.DIRECTORY_FREE.group:
            directories.setdefault(dict(name.tags)["logDirectory"], {})[str(name.name)] = int(value)
        elif name.type == storage.LOG_SIZE.type and name.name == storage.LOG_SIZE.name:
            tags = dict(name.tags)
            sizes[TopicPartition(tags["topic"], int(tags["partition"]))] = int(value)
    volumes: dict[Hashable, DiskVolume] = {}
    for figures in directories.values():
        if any(each.name not in figures for each in _VOLUME_METRICS):
            return None
        log_bytes, free_bytes, volume = (figures[str(each.name)] for each in _VOLUME_METRICS)
        others = volumes.get(volume, DiskVolume(0, free_bytes))
        volumes[volume] = DiskVolume(others.log_bytes + log_bytes, free_bytes)
    return MeasuredDisks(volumes, sizes, measured_ms) if volumes else None

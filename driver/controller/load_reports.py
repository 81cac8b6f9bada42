"""The use of brokers' disks and the traffic of their leaders, read from the metrics that they push.

Nothing is sent for it: these are gauges of `sparklog/node/metrics`, which all brokers push, once a second in
small clusters.
They are read for one broker at a time, and of each seldom, since they lie among some thousands.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, NamedTuple

from sparklog.driver.controller.machine.balancing.disks import DiskVolume, MeasuredDisks
from sparklog.driver.controller.machine.balancing.leader_traffic import MeasuredTraffic, Rates
from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.node.metrics import server, storage
from sparklog.node.metrics.names import Metric, MetricName
from sparklog.protocol.types import BrokerId, TimestampMs, TopicPartition

INTERVAL_MS: Final = 10_000
"""The interval at which a broker's metrics are read."""
MEASURED_BEFORE_MS: Final = 15_000
"""The largest age of the gauges when a broker pushes them: those of disks are made every five seconds."""
_VOLUME_METRICS: Final = (storage.DIRECTORY_LOGS, storage.DIRECTORY_FREE, storage.DIRECTORY_FILE_SYSTEM)
_LEADER_METRICS: Final = (server.LEADER_BYTES_IN, server.LEADER_BYTES_OUT)


class LoadReport(NamedTuple):
    """The figures of one broker; None for those that are not complete."""

    broker_id: BrokerId
    disks: MeasuredDisks | None
    traffic: MeasuredTraffic | None


class LoadReports:
    def __init__(self, latest: Callable[[], Mapping[BrokerId, ReceivedMetrics]]) -> None:
        self._latest = latest
        self._read: dict[BrokerId, tuple[int, TimestampMs]] = {}
        """When each broker's metrics were read, and the time of arrival of those."""

    def next(self, now_ms: int, wall_clock_ms: TimestampMs) -> LoadReport | None:
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
        arrived_ms = now_ms - max(0, wall_clock_ms - received.received_at_ms)
        disks, traffic = measured_loads(received.values, arrived_ms)
        return LoadReport(broker_id, disks, traffic)


def measured_loads(
    values: Mapping[MetricName, float], arrived_ms: int
) -> tuple[MeasuredDisks | None, MeasuredTraffic | None]:
    """Return a broker's disks and traffic by its metrics, in one pass; None for what they lack a part of.

    `arrived_ms` is the time at which the metrics came.
    """
    directories: dict[str, dict[str, int]] = {}
    sizes: dict[TopicPartition, int] = {}
    rates: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
    for name, value in values.items():
        if _is_like(storage.DIRECTORY_FREE, name):
            directories.setdefault(dict(name.tags)["logDirectory"], {})[str(name.name)] = int(value)
        elif name.name == storage.LOG_SIZE.name and _is_like(storage.LOG_SIZE, name):
            sizes[_partition(name.tags)] = int(value)
        elif _is_like(server.LEADER_BYTES_IN, name):
            rates.setdefault(name.tags, {})[str(name.name)] = int(value)
    return _disks(directories.values(), sizes, arrived_ms), _traffic(rates, arrived_ms)


def _is_like(metric: Metric, name: MetricName) -> bool:
    """Whether a name is of the same group and type as a metric."""
    return name.type == metric.type and name.group == metric.group


def _partition(tags: Iterable[tuple[str, str]]) -> TopicPartition:
    by_key = dict(tags)
    return TopicPartition(by_key["topic"], int(by_key["partition"]))


def _disks(
    directories: Iterable[Mapping[str, int]], sizes: Mapping[TopicPartition, int], arrived_ms: int
) -> MeasuredDisks | None:
    volumes: dict[Hashable, DiskVolume] = {}
    for figures in directories:
        if any(each.name not in figures for each in _VOLUME_METRICS):
            return None
        log_bytes, free_bytes, volume = (figures[str(each.name)] for each in _VOLUME_METRICS)
        others = volumes.get(volume, DiskVolume(0, free_bytes))
        volumes[volume] = DiskVolume(others.log_bytes + log_bytes, free_bytes)
    return MeasuredDisks(volumes, sizes, arrived_ms - MEASURED_BEFORE_MS) if volumes else None


def _traffic(
    rates: Mapping[tuple[tuple[str, str], ...], Mapping[str, int]], arrived_ms: int
) -> MeasuredTraffic | None:
    found = {
        tags: Rates(*(figures.get(str(each.name), 0) for each in _LEADER_METRICS))
        for tags, figures in rates.items()
    }
    if (whole := found.pop((), None)) is None:
        return None
    return MeasuredTraffic(whole, {_partition(tags): each for tags, each in found.items()}, arrived_ms)

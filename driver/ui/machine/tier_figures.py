"""The tier for the tab: what the brokers' metrics say of it, topic by topic, and the errors by which it
waits.

A partition's leader reports it, and reports it only while it leads; so the sums over brokers count nothing
twice. Errors come as a label of a metric, with the time for which the tier of that partition has stood still.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.driver.ui.machine.broker_status_metrics import MAX_AGE_MS
from sparklog.driver.ui.machine.status import TieredTopic, TierErrorStatus, TierStatus
from sparklog.node.metrics import remote_log
from sparklog.node.metrics.names import COUNT, Metric, MetricName
from sparklog.protocol.types import BrokerId, TimestampMs

MAX_TOPICS: Final = 20
MAX_ERRORS: Final = 10

_SUMS: Final[Mapping[str, Metric]] = {
    "local_bytes": remote_log.LOCAL_LOG_BYTES,
    "tiered_bytes": remote_log.LOG_SIZE_BYTES,
    "copy_lag_bytes": remote_log.COPY_LAG_BYTES,
    "copy_lag_records": remote_log.COPY_LAG_RECORDS,
}
_READS: Final = remote_log.FETCH_REQUESTS


@dataclass(slots=True)
class _Topic:
    local_bytes: float = 0
    tiered_bytes: float = 0
    copy_lag_bytes: float = 0
    copy_lag_records: float = 0
    copy_lag_ms: float = 0
    reads: float | None = None
    """A second; None before there are two reports."""


class TierReader:
    """Reads the newest metrics of every broker; rates are those between two reports."""

    def __init__(self) -> None:
        self._reports: dict[BrokerId, tuple[ReceivedMetrics | None, ReceivedMetrics]] = {}
        """The last two of each broker."""

    def read(self, latest: Mapping[BrokerId, ReceivedMetrics], now_ms: TimestampMs) -> TierStatus | None:
        """Return the tier's status; None of a cluster without one."""
        for node_id in self._reports.keys() - latest.keys():
            del self._reports[node_id]
        topics: dict[str, _Topic] = {}
        errors: list[TierErrorStatus] = []
        awaiting: float | None = None
        for node_id, received in latest.items():
            _, last = self._reports.get(node_id, (None, received))
            if node_id not in self._reports or received.received_at_ms > last.received_at_ms:
                self._reports[node_id] = (last if node_id in self._reports else None, received)
            if now_ms - received.received_at_ms > MAX_AGE_MS:
                continue
            waiting = received.values.get(remote_log.AWAITING_MANIFEST.of())
            if waiting is None:
                continue
            awaiting = (awaiting or 0) + waiting
            _add(topics, errors, *self._reports[node_id])
        if awaiting is None:
            return None
        shown = sorted(
            topics.items(), key=lambda item: (-item[1].copy_lag_bytes, -item[1].tiered_bytes, item[0])
        )
        errors.sort(key=lambda error: (-error.for_ms, error.topic, error.partition))
        return TierStatus(
            tiered_bytes=int(sum(topic.tiered_bytes for topic in topics.values())),
            partitions_awaiting_manifest=int(awaiting),
            topic_count=len(topics),
            topics=tuple(_topic(name, topic) for name, topic in shown[:MAX_TOPICS]),
            errors=tuple(errors[:MAX_ERRORS]),
        )


def _add(
    topics: dict[str, _Topic],
    errors: list[TierErrorStatus],
    before: ReceivedMetrics | None,
    now: ReceivedMetrics,
) -> None:
    for name, value in now.values.items():
        if name.type == "RemoteLogManager" and name.name == remote_log.TIER_ERROR.name:
            tags = dict(name.tags)
            errors.append(
                TierErrorStatus(
                    topic=tags["topic"],
                    partition=int(tags["partition"]),
                    error=tags["error"],
                    kind=tags["kind"],
                    for_ms=int(value),
                )
            )
        elif name.type == "RemoteLogManager" or name.type == "BrokerTopicMetrics":
            topic = dict(name.tags).get("topic")
            if topic is not None:
                _add_sample(topics, topic, name, value, before, now)


def _add_sample(
    topics: dict[str, _Topic],
    topic: str,
    name: MetricName,
    value: float,
    before: ReceivedMetrics | None,
    now: ReceivedMetrics,
) -> None:
    for field, metric in _SUMS.items():
        if name == metric.of(topic=topic):
            found = topics.setdefault(topic, _Topic())
            setattr(found, field, getattr(found, field) + value)
            return
    if name == remote_log.COPY_LAG_TIME.of(topic=topic):
        found = topics.setdefault(topic, _Topic())
        found.copy_lag_ms = max(found.copy_lag_ms, value)
    elif name == _READS.of(topic=topic)._replace(attribute=COUNT) and before is not None:
        more = value - before.values.get(name, 0.0)
        seconds = (now.received_at_ms - before.received_at_ms) / 1000
        found = topics.setdefault(topic, _Topic())
        found.reads = (found.reads or 0) + (more if more >= 0 else value) / seconds


def _topic(name: str, topic: _Topic) -> TieredTopic:
    return TieredTopic(
        name=name,
        local_bytes=int(topic.local_bytes),
        tiered_bytes=int(topic.tiered_bytes),
        copy_lag_bytes=int(topic.copy_lag_bytes),
        copy_lag_records=int(topic.copy_lag_records),
        copy_lag_ms=int(topic.copy_lag_ms),
        reads_per_s=topic.reads,
    )

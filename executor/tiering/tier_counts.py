"""Counts of the tier of a broker's partitions: work done and work to do, as Kafka's metrics have them.

A source of the registry. Sums of topics are kept for topics with a replica here; the number of topics that
are reported one by one is bounded, as for all traffic: those with the most bytes in the tier.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from sparklog.node.clocks import monotonic_ms
from sparklog.node.metrics import remote_log
from sparklog.node.metrics.names import Kind, Metric
from sparklog.node.metrics.registry import Sample

REPORTED_TOPICS: Final = 100
REPORTED_ERRORS: Final = 5
ERROR_CHARACTERS: Final = 200


@dataclass(slots=True)
class TierCounts:
    """The sums of one topic since the broker's start."""

    copied_bytes: int = 0
    copies: int = 0
    copy_errors: int = 0
    unparsed_values: int = 0
    """Values without typed columns."""
    deletes: int = 0
    delete_errors: int = 0


class TierLag(NamedTuple):
    """The present state of one led partition, or the sum of several."""

    copy_lag_bytes: int = 0
    copy_lag_segments: int = 0
    delete_lag_segments: int = 0
    remote_bytes: int = 0
    remote_segments: int = 0
    local_bytes: int = 0
    copy_lag_records: int = 0
    copy_lag_ms: int = 0
    """The largest, not the sum."""

    def plus(self, other: "TierLag") -> "TierLag":
        summed = TierLag._make(mine + others for mine, others in zip(self, other, strict=True))
        return summed._replace(copy_lag_ms=max(self.copy_lag_ms, other.copy_lag_ms))


class TierError(NamedTuple):
    """The error by which a partition's tier stands still, and since when."""

    topic: str
    partition: int
    message: str
    kind: remote_log.TierErrorKind
    since_ms: int
    """By the monotonic clock."""


_METERS: Final[Mapping[str, Metric]] = {
    "copied_bytes": remote_log.COPY_BYTES,
    "copies": remote_log.COPY_REQUESTS,
    "copy_errors": remote_log.COPY_ERRORS,
    "unparsed_values": remote_log.UNPARSED_VALUES,
    "deletes": remote_log.DELETE_REQUESTS,
    "delete_errors": remote_log.DELETE_ERRORS,
}
_GAUGES: Final[Mapping[str, Metric]] = {
    "copy_lag_bytes": remote_log.COPY_LAG_BYTES,
    "copy_lag_segments": remote_log.COPY_LAG_SEGMENTS,
    "delete_lag_segments": remote_log.DELETE_LAG_SEGMENTS,
    "remote_bytes": remote_log.LOG_SIZE_BYTES,
    "remote_segments": remote_log.METADATA_COUNT,
    "local_bytes": remote_log.LOCAL_LOG_BYTES,
    "copy_lag_records": remote_log.COPY_LAG_RECORDS,
}


class TierMetrics:
    def __init__(
        self,
        states: Callable[[int], Iterable[tuple[str, TierLag]]],
        errors: Callable[[], Iterable[TierError]],
        has_topic: Callable[[str], bool],
    ) -> None:
        """`states` returns topic and state of each led partition at a monotonic time; `errors` the open ones.

        `has_topic` returns whether this broker still has a replica of a topic.
        """
        self._states = states
        self._errors = errors
        self._has_topic = has_topic
        self._topics: dict[str, TierCounts] = {}
        self._gone = TierCounts()
        """The sums of topics without a replica here: the broker's own must not fall."""

    def of(self, topic: str) -> TierCounts:
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = TierCounts()
        return counts

    def samples(self, now_ms: int) -> Iterator[Sample]:
        for topic in [topic for topic in self._topics if not self._has_topic(topic)]:
            _add(self._gone, self._topics.pop(topic))
        whole = TierCounts()
        for counts in (self._gone, *self._topics.values()):
            _add(whole, counts)
        began_ms = monotonic_ms()
        states: dict[str, TierLag] = {}
        for topic, state in self._states(now_ms):
            states[topic] = states.get(topic, TierLag()).plus(state)
        every = TierLag()
        for state in states.values():
            every = every.plus(state)
        computation_ms = monotonic_ms() - began_ms
        yield from _samples(whole, every, {})
        yield Sample(remote_log.COPY_LAG_TIME.of(), Kind.GAUGE, every.copy_lag_ms)
        yield Sample(remote_log.LOG_SIZE_COMPUTATION_TIME.of(), Kind.GAUGE, computation_ms)
        for topic in heapq.nlargest(
            REPORTED_TOPICS,
            {*states, *self._topics},
            key=lambda topic: states.get(topic, TierLag()).remote_bytes,
        ):
            counts, state = self._topics.get(topic, TierCounts()), states.get(topic, TierLag())
            yield from _samples(counts, state, {"topic": topic})
            yield Sample(remote_log.COPY_LAG_TIME.of(topic=topic), Kind.GAUGE, state.copy_lag_ms)
        for error in heapq.nsmallest(REPORTED_ERRORS, self._errors(), key=lambda error: error.since_ms):
            name = remote_log.TIER_ERROR.of(
                topic=error.topic,
                partition=str(error.partition),
                error=error.message[:ERROR_CHARACTERS],
                kind=error.kind.value,
            )
            yield Sample(name, Kind.GAUGE, now_ms - error.since_ms)


def _samples(counts: TierCounts, state: TierLag, tags: Mapping[str, str]) -> Iterator[Sample]:
    for field, metric in _METERS.items():
        yield Sample(metric.of(**tags), Kind.METER, getattr(counts, field))
    for field, metric in _GAUGES.items():
        yield Sample(metric.of(**tags), Kind.GAUGE, getattr(state, field))


def _add(whole: TierCounts, part: TierCounts) -> None:
    for field in fields(TierCounts):
        setattr(whole, field.name, getattr(whole, field.name) + getattr(part, field.name))

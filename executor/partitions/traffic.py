"""The traffic of this broker's partitions, by topic and in all: Kafka's BrokerTopicMetrics.

The handler of a record batch adds to the numbers of its topic, which the topic's replicas share, and does
nothing else. `TrafficMeters` reads and resets them: it alone knows sums. It reports the topics with the most
traffic, `REPORTED_TOPICS` at most; the traffic of others is part of the whole.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from typing import Final

from sparklog.node.metrics import remote_log, server
from sparklog.node.metrics.names import Kind, Metric
from sparklog.node.metrics.registry import Sample
from sparklog.node.own_addresses import is_this_machine
from sparklog.protocol.errors import ErrorCode, KafkaError

REPORTED_TOPICS: Final = 100
CHOICE_INTERVAL_MS: Final = 60_000
"""The interval between choices of the reported topics, if there are more."""

_USUAL_ERRORS: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.corrupt_message,
        ErrorCode.kafka_storage_error,
        ErrorCode.offset_out_of_range,
        ErrorCode.unsupported_compression_type,
    }
)
"""Errors that clients handle, or that have a metric (Kafka's ReplicaManager has such a list, too)."""


class ReaderDistance(Enum):
    """The distance of a consumer from the broker that it reads from."""

    SAME_HOST = auto()
    SAME_RACK = auto()
    ELSEWHERE = auto()


def reader_distance(peer: str, client_rack: str, own_rack: str | None) -> ReaderDistance:
    """Return the distance of a consumer with the address `peer` (`host:port`); `client_rack` may be empty."""
    if is_this_machine(peer.rpartition(":")[0].strip("[]")):
        return ReaderDistance.SAME_HOST
    return ReaderDistance.SAME_RACK if client_rack and client_rack == own_rack else ReaderDistance.ELSEWHERE


class TopicTraffic:
    def __init__(self, topic: str, broker: "BrokerTraffic") -> None:
        self.topic = topic
        self.broker = broker
        self.begin_anew()

    def begin_anew(self) -> None:
        self.is_noted = False
        self.messages_in = self.bytes_in = self.bytes_out = self.bytes_rejected = 0
        self.produces = self.fetches = self.failed_produces = self.failed_fetches = 0
        self.remote_bytes_out = self.remote_fetches = self.failed_remote_fetches = 0

    def produced(self, message_count: int, byte_count: int) -> None:
        self.produces += 1
        self.messages_in += message_count
        self.bytes_in += byte_count
        if not self.is_noted:
            self._note()

    def produce_failed(self, error: KafkaError, byte_count: int) -> None:
        self.produces += 1
        code, broker = error.error_code, self.broker
        if code is ErrorCode.message_too_large:
            self.bytes_rejected += byte_count
        elif code is ErrorCode.corrupt_message:
            broker.invalid_crcs += 1
        elif code is ErrorCode.unsupported_for_message_format:
            broker.invalid_magics += 1
        elif code is ErrorCode.out_of_order_sequence_number:
            broker.invalid_sequences += 1
        if code not in _USUAL_ERRORS:
            self.failed_produces += 1
        if not self.is_noted:
            self._note()

    def fetched(self, byte_count: int, error_code: ErrorCode, *, by_follower: bool) -> None:
        self.fetches += 1
        if by_follower:
            self.broker.replication_bytes_out += byte_count
        else:
            self.bytes_out += byte_count
        if error_code is not ErrorCode.none and error_code not in _USUAL_ERRORS:
            self.failed_fetches += 1
        if not self.is_noted:
            self._note()

    def fetched_remotely(self, byte_count: int, error_code: ErrorCode) -> None:
        """Count the part of a fetch, `fetched` too, that only the object store has."""
        self.remote_fetches += 1
        self.remote_bytes_out += byte_count
        if error_code is not ErrorCode.none:
            self.failed_remote_fetches += 1

    def _note(self) -> None:
        self.is_noted = True
        self.broker.noted.append(self)


class BrokerTraffic:
    def __init__(self) -> None:
        self.noted: list[TopicTraffic] = []
        """Topics with traffic since the last reading."""
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.consumed_bytes = dict.fromkeys(ReaderDistance, 0)
        self.invalid_crcs = 0
        self.invalid_magics = 0
        self.invalid_sequences = 0
        self._topics: dict[str, TopicTraffic] = {}

    def consumed(self, byte_count: int, distance: ReaderDistance) -> None:
        """Count bytes sent to a consumer."""
        self.consumed_bytes[distance] += byte_count

    def of(self, topic: str) -> TopicTraffic:
        traffic = self._topics.get(topic)
        if traffic is None:
            traffic = self._topics[topic] = TopicTraffic(topic, self)
        return traffic

    def forget_all_but(self, is_there: Callable[[str], bool]) -> None:
        """Forget the topics of which this broker has no replica any more."""
        self._topics = {topic: traffic for topic, traffic in self._topics.items() if is_there(topic)}


_READ: Final[Mapping[Metric, Callable[[TopicTraffic], int]]] = {
    server.MESSAGES_IN: lambda traffic: traffic.messages_in,
    server.BYTES_IN: lambda traffic: traffic.bytes_in,
    server.BYTES_OUT: lambda traffic: traffic.bytes_out,
    server.BYTES_REJECTED: lambda traffic: traffic.bytes_rejected,
    server.PRODUCE_REQUESTS: lambda traffic: traffic.produces,
    server.FETCH_REQUESTS: lambda traffic: traffic.fetches,
    server.FAILED_PRODUCE_REQUESTS: lambda traffic: traffic.failed_produces,
    server.FAILED_FETCH_REQUESTS: lambda traffic: traffic.failed_fetches,
    remote_log.FETCH_BYTES: lambda traffic: traffic.remote_bytes_out,
    remote_log.FETCH_REQUESTS: lambda traffic: traffic.remote_fetches,
    remote_log.FETCH_ERRORS: lambda traffic: traffic.failed_remote_fetches,
}


class TrafficMeters:
    """The sums of a broker's traffic; a source of the registry."""

    def __init__(self, traffic: BrokerTraffic, has_topic: Callable[[str], bool]) -> None:
        """`has_topic` returns whether this broker still has a replica of a topic."""
        self._traffic = traffic
        self._has_topic = has_topic
        self._whole = dict.fromkeys(_READ, 0)
        self._topics: dict[str, dict[Metric, int]] = {}
        """The sums of the reported topics, since each was chosen."""
        self._weights: dict[str, int] = {}
        self._choice_due_ms: int | None = None

    def samples(self, now_ms: int) -> Iterator[Sample]:
        self._take_in()
        if self._choice_due_ms is None or now_ms >= self._choice_due_ms:
            self._choice_due_ms = now_ms + CHOICE_INTERVAL_MS
            self._choose()
        for metric, count in self._whole.items():
            yield Sample(metric.of(), Kind.METER, count)
        for topic, sums in self._topics.items():
            for metric, count in sums.items():
                yield Sample(metric.of(topic=topic), Kind.METER, count)
        traffic = self._traffic
        for metric, count in (
            (server.REPLICATION_BYTES_IN, traffic.replication_bytes_in),
            (server.REPLICATION_BYTES_OUT, traffic.replication_bytes_out),
            (server.BYTES_OUT_SAME_HOST, traffic.consumed_bytes[ReaderDistance.SAME_HOST]),
            (server.BYTES_OUT_SAME_RACK, traffic.consumed_bytes[ReaderDistance.SAME_RACK]),
            (server.BYTES_OUT_ELSEWHERE, traffic.consumed_bytes[ReaderDistance.ELSEWHERE]),
            (server.INVALID_CRC, traffic.invalid_crcs),
            (server.INVALID_MAGIC, traffic.invalid_magics),
            (server.INVALID_SEQUENCE, traffic.invalid_sequences),
        ):
            yield Sample(metric.of(), Kind.METER, count)

    def _take_in(self) -> None:
        noted, self._traffic.noted = self._traffic.noted, []
        for traffic in noted:
            topic, sums = traffic.topic, self._topics.get(traffic.topic)
            if sums is None and len(self._topics) < REPORTED_TOPICS:
                sums = self._topics[topic] = dict.fromkeys(_READ, 0)
            for metric, read in _READ.items():
                if count := read(traffic):
                    self._whole[metric] += count
                    if sums is not None:
                        sums[metric] += count
            weight = traffic.bytes_in + traffic.bytes_out + traffic.produces + traffic.fetches
            self._weights[topic] = self._weights.get(topic, 0) + weight
            traffic.begin_anew()

    def _choose(self) -> None:
        """Choose the topics with the most traffic since the last choice, without deleted ones."""
        weights, self._weights = self._weights, {}
        self._topics = {topic: sums for topic, sums in self._topics.items() if self._has_topic(topic)}
        self._traffic.forget_all_but(self._has_topic)
        candidates = {*self._topics, *(topic for topic in weights if self._has_topic(topic))}
        if len(candidates) > REPORTED_TOPICS:
            reported = heapq.nlargest(
                REPORTED_TOPICS, candidates, key=lambda topic: (weights.get(topic, 0), topic in self._topics)
            )
            self._topics = {topic: self._topics.get(topic) or dict.fromkeys(_READ, 0) for topic in reported}

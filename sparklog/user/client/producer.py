"""Writes of record batches: the half of the idempotent producer that owns connections and the clock.

Order for callers: `start`, or `begin_transaction`, before batches are encoded, because they contain
`producer_id`, `producer_epoch` and `next_sequence`; `send` for each, in that order; `flush` at the end, which
returns when every record is acknowledged. Everything runs on the caller's thread: available responses are
taken on each send, and awaited only when the buffer is full, so that encoding and the brokers' work overlap.
Time-outs count only during calls: rows may take minutes to compute between two of them, while responses wait
in the sockets.
"""

import logging
import select
from collections import Counter, deque
from datetime import timedelta
from typing import Final, NamedTuple

from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.produce.v10.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v10.response import ProduceResponse
from kio.schema.produce.v12 import request as transactional

from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.clocks import monotonic_ms
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import read_header, sequence_after
from sparklog.protocol.records.builder import build_batch, read_records
from sparklog.protocol.types import (
    NO_TRANSACTION_TIMEOUT_MS,
    BrokerId,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
    unless_minus_one,
)
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ProducerConfig
from sparklog.user.client.errors import DeliveryError
from sparklog.user.client.produce_queues import PendingBatch, ProduceQueues
from sparklog.user.client.topics import Leader

logger = logging.getLogger(__name__)


class BatchPart(NamedTuple):
    data: bytes
    record_count: int
    base_sequence: int | None


def halves(data: bytes, *, level: int | None = None) -> list[BatchPart]:
    """Return a batch of two or more records as two batches; `level` is its codec's (KIP-126).

    A batch refused for its size was not appended, so its parts have its sequence numbers.

    >>> from sparklog.protocol.records.builder import SimpleRecord
    >>> batch = build_batch([SimpleRecord(value=b"a")] * 5, base_sequence=7, producer_id=1, producer_epoch=0)
    >>> [(part.record_count, part.base_sequence) for part in halves(batch)]
    [(2, 7), (3, 9)]
    """
    header = read_header(data)
    records = [record._replace(offset=None) for record in read_records(data, header)]
    middle = len(records) // 2
    sequence = unless_minus_one(header.base_sequence)
    parts = []
    for part in (records[:middle], records[middle:]):
        batch = build_batch(
            part,
            producer_id=unless_minus_one(header.producer_id),
            producer_epoch=unless_minus_one(header.producer_epoch),
            base_sequence=sequence,
            codec=header.codec,
            level=level,
            transactional=header.is_transactional,
        )
        parts.append(BatchPart(batch, len(part), sequence))
        if sequence is not None:
            sequence = sequence_after(sequence, len(part))
    return parts


_NO_TRANSACTION_TIMEOUT: Final = timedelta(milliseconds=NO_TRANSACTION_TIMEOUT_MS)
_LAST_EPOCH: Final = 2**15 - 1


class ProducerIdentity(NamedTuple):
    """Identity with which a producer wrote whose batches are all acknowledged."""

    cluster_id: str
    """The cluster of the ids; a cluster started at the same address has other producers."""
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class _SentRequest(NamedTuple):
    batches: list[PendingBatch]
    deadline_ms: int
    """End of request.timeout.ms, by `Producer._clock_ms`."""


class Producer:
    """Sends batches to the leaders of their partitions until they are acknowledged."""

    def __init__(self, cluster: ClusterClient, config: ProducerConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._queues = ProduceQueues(cluster.config.retry_backoff)
        self._in_flight: dict[BrokerId, deque[_SentRequest]] = {}
        """Unanswered requests of each broker, oldest first; a broker without any is missing."""
        self._channels: dict[BrokerId, BlockingChannel] = {}
        self._next_sequences: dict[TopicPartition, int] = {}
        self._batch_sizes_bytes: dict[str, int] = {}
        """Reduced batch sizes of topics that refused larger ones."""
        self._last_failure: KafkaError | None = None
        self._away_ms = 0
        """Total time between calls,"""
        self._left_ms = monotonic_ms()
        """and start of the current time between calls."""
        self.producer_id: ProducerId | None = None
        self.producer_epoch: ProducerEpoch | None = None
        self._cluster_id: str | None = None
        """Cluster of the producer id, if this producer alone has it."""
        self.transactional_id: str | None = None
        """While set, all batches are part of its transaction."""
        self.acknowledged: Counter[TopicPartition] = Counter()

    def start(self, before: ProducerIdentity | None = None) -> None:
        """Obtain a producer id, if the producer is idempotent.

        That of a producer `before`, which no other producer continues, is used in the next epoch if the
        cluster is the same; sequences restart then (KIP-360). A new id costs each leader and follower of the
        written partitions a producer state for a day.

        Raises:
            ApiTimeoutError: no broker assigned one within `api_timeout_ms`.
            KafkaError: it was refused.
        """
        if not self._config.idempotent:
            return
        # Before the id is obtained, so that it is never attributed to another cluster.
        self._cluster_id = self._cluster.metadata(()).cluster_id
        if (
            before is not None
            and before.cluster_id == self._cluster_id
            and before.producer_epoch < _LAST_EPOCH
        ):
            self.producer_id, self.producer_epoch = before.producer_id, before.producer_epoch + 1
        else:
            self._cluster.retry("obtaining a producer id", self._init_producer_id)

    @property
    def identity(self) -> ProducerIdentity | None:
        """Identity with which another producer may `start` once all is flushed, or None."""
        assert not len(self._queues), "an unacknowledged batch may arrive later, and be fenced"
        if self._cluster_id is None or self.producer_id is None or self.producer_epoch is None:
            return None
        return ProducerIdentity(self._cluster_id, self.producer_id, self.producer_epoch)

    def begin_transaction(
        self, transactional_id: str, producer_id: ProducerId, producer_epoch: ProducerEpoch
    ) -> None:
        """Write in the transaction of an id that was just initialized; replaces `start`.

        The first batch adds a partition to it (KIP-890). Any client with id and epoch can end it.
        """
        assert self._config.idempotent, "a transaction's batches have sequences"
        self.transactional_id = transactional_id
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic; the broker may create it.

        Raises:
            UnknownTopicError: it is missing after `max_block_ms`, and the brokers do not create topics.
        """
        return self._cluster.topic(topic, create=True, timeout_ms=self._config.max_block_ms).partition_count

    def next_sequence(self, topic_partition: TopicPartition) -> int | None:
        """Return the sequence number of a partition's next record; None if not idempotent."""
        return self._next_sequences.get(topic_partition, 0) if self._config.idempotent else None

    def batch_size_bytes(self, topic: str) -> int:
        """Return the size limit for batches of a topic, which refuses any above max.message.bytes."""
        return self._batch_sizes_bytes.get(topic, self._config.batch_size_bytes)

    def send(self, topic_partition: TopicPartition, data: bytes, record_count: int) -> None:
        """Queue one batch, send all that may be sent, and wait while more than `buffer_bytes` are queued.

        Raises:
            DeliveryError: this batch or an earlier one was refused or not acknowledged in time.
        """
        sequence = self.next_sequence(topic_partition)
        if sequence is not None:
            self._next_sequences[topic_partition] = sequence_after(sequence, record_count)
        self._come_back()
        deadline_ms = self._clock_ms() + self._config.delivery_timeout_ms
        self._queues.add(PendingBatch(topic_partition, data, record_count, sequence, deadline_ms))
        self._poll(wait_ms=0)
        while self._queues.pending_bytes > self._config.buffer_bytes:
            self._poll(wait_ms=self._config.delivery_timeout_ms)
        self._left_ms = monotonic_ms()

    def flush(self) -> None:
        """Wait until all batches are acknowledged.

        Raises:
            DeliveryError: one was refused or not acknowledged in time.
        """
        self._come_back()
        while len(self._queues):
            self._poll(wait_ms=self._config.delivery_timeout_ms)
        self._left_ms = monotonic_ms()

    def _come_back(self) -> None:
        self._away_ms += monotonic_ms() - self._left_ms

    def _clock_ms(self) -> int:
        """Return `monotonic_ms` without the time between calls."""
        return monotonic_ms() - self._away_ms

    def _poll(self, *, wait_ms: int) -> None:
        """Take available responses and send all that may be sent; wait up to `wait_ms` for either."""
        if (overdue := self._queues.overdue(self._clock_ms())) is not None:
            raise DeliveryError(
                ErrorCode.request_timed_out,
                overdue.topic_partition,
                overdue.base_sequence,
                f"not acknowledged within {self._config.delivery_timeout_ms} ms (delivery.timeout.ms); "
                f"last failure: {self._last_failure}",
            )
        now_ms = monotonic_ms()
        wake_ms = [now_ms + wait_ms]
        wake_ms += [pipeline[0].deadline_ms + self._away_ms for pipeline in self._in_flight.values()]
        if (release_ms := self._queues.earliest_release_ms()) is not None:
            wake_ms.append(release_ms)
        self._take_answers(wait_ms=max(min(wake_ms) - now_ms, 0))
        self._send_sendable()

    def _take_answers(self, wait_ms: int) -> None:
        """Take one response of each broker that has answered, waiting up to `wait_ms` for the first."""
        poll = select.poll()
        waiting = {}
        for broker_id, channel in self._channels.items():
            waiting[channel.fileno()] = broker_id
            poll.register(channel.fileno(), select.POLLIN)
        pending = [broker_id for broker_id, channel in self._channels.items() if channel.has_pending]
        readable = [waiting[descriptor] for descriptor, _ in poll.poll(0 if pending else wait_ms)]
        for broker_id in {*pending, *readable}:
            self._receive(broker_id)
        now_ms = self._clock_ms()
        for broker_id, pipeline in list(self._in_flight.items()):
            if pipeline[0].deadline_ms <= now_ms:
                timeout_ms = self._cluster.config.request_timeout_ms
                reason = f"broker {broker_id} did not answer within {timeout_ms} ms (request.timeout.ms)"
                self._connection_lost(broker_id, KafkaError(ErrorCode.request_timed_out, reason))

    def _send_sendable(self) -> None:
        """Fill each leader's pipeline with the batches that may be sent."""
        progressing = True
        while progressing:
            progressing = False
            for topic_partition in list(self._queues.sendable(monotonic_ms())):
                broker_id = self._leader_of(topic_partition)
                if broker_id is None:
                    continue
                if len(self._in_flight.get(broker_id, ())) < self._config.max_in_flight:
                    progressing = self._send_request(broker_id) or progressing

    def _leader_of(self, topic_partition: TopicPartition) -> BrokerId | None:
        """Return the leader; hold the partition back if there is none or it is unknown."""
        try:
            retried_ms = self._queues.retried_ms(topic_partition)
            return self._cluster.leader(topic_partition, learned_after_ms=retried_ms).broker_id
        except KafkaError as error:
            self._fail_unless_retriable(topic_partition, error)
            self._queues.postpone(topic_partition, monotonic_ms())
            return None

    def _send_request(self, broker_id: BrokerId) -> bool:
        batches = self._queues.take(
            broker_id,
            self._leader_of,
            max_request_bytes=self._config.max_request_bytes,
            now_ms=monotonic_ms(),
        )
        if not batches:
            return False
        timeout_ms = self._cluster.config.request_timeout_ms
        pipeline = self._in_flight.setdefault(broker_id, deque())
        pipeline.append(_SentRequest(batches, self._clock_ms() + timeout_ms))
        try:
            channel = self._channels[broker_id] = self._cluster.channel(broker_id)
            channel.send(
                _produce_request(batches, self._config.acks, timeout_ms, self.transactional_id),
                expect_response=self._config.acks != 0,
            )
        except KafkaError as error:
            self._connection_lost(broker_id, error)
            return True
        if self._config.acks == 0:
            for batch in self._answered(broker_id):
                self._acknowledge(batch)
        return True

    def _receive(self, broker_id: BrokerId) -> None:
        try:
            response: ProduceResponse = self._channels[broker_id].receive()
        except KafkaError as error:
            self._connection_lost(broker_id, error)
            return
        batches = {batch.topic_partition: batch for batch in self._answered(broker_id)}
        addresses = {node.node_id: (node.host, node.port) for node in response.node_endpoints}
        for topic in response.responses:
            for answer in topic.partition_responses:
                batch = batches.pop(TopicPartition(topic.name, answer.index))
                if answer.error_code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
                    self._acknowledge(batch)
                    continue
                named = Leader(answer.current_leader.leader_id, answer.current_leader.leader_epoch)
                leader_named = self._cluster.leader_named(
                    batch.topic_partition, named, addresses, refused_by=broker_id
                )
                self._reject(batch, answer.error_code, answer.error_message, leader_named=leader_named)
        for batch in batches.values():
            self._reject(batch, ErrorCode.unknown_server_error, "the broker's response lacks the partition")

    def _answered(self, broker_id: BrokerId) -> list[PendingBatch]:
        """Remove and return the batches of the oldest request to a broker."""
        pipeline = self._in_flight[broker_id]
        batches = pipeline.popleft().batches
        if not pipeline:
            del self._in_flight[broker_id], self._channels[broker_id]
        return batches

    def _acknowledge(self, batch: PendingBatch) -> None:
        self.acknowledged[batch.topic_partition] += batch.record_count
        self._queues.acknowledge(batch)

    def _reject(
        self,
        batch: PendingBatch,
        error_code: ErrorCode,
        error_message: str | None,
        *,
        leader_named: bool = False,
    ) -> None:
        if error_code is ErrorCode.message_too_large and batch.record_count > 1:
            self._split(batch)
            return
        verdict = self._queues.reject(
            batch, error_code, error_message, monotonic_ms(), leader_named=leader_named
        )
        if verdict.reason is not None:
            raise DeliveryError(error_code, batch.topic_partition, batch.base_sequence, verdict.reason)
        self._last_failure = KafkaError(error_code, error_message or f"{batch.topic_partition}")
        logger.debug("%s: %s, sending again", batch.topic_partition, error_code.name)
        if not leader_named:
            self._cluster.forget_leader(batch.topic_partition)

    def _split(self, batch: PendingBatch) -> None:
        topic_partition, size_bytes = batch.topic_partition, len(batch.data)
        parts = [
            PendingBatch(topic_partition, *part, batch.deadline_ms)
            for part in halves(batch.data, level=self._config.compression_level)
        ]
        self._queues.replace(batch, parts, monotonic_ms())
        largest_bytes = max(min(size_bytes, self.batch_size_bytes(topic_partition.topic)) // 2, 1)
        self._batch_sizes_bytes[topic_partition.topic] = largest_bytes
        logger.info("%s refused a batch of %d bytes: sending it in halves", topic_partition, size_bytes)

    def _connection_lost(self, broker_id: BrokerId, error: KafkaError) -> None:
        """Queue all batches in flight to a broker again, since their fate is unknown."""
        logger.warning("Connection to broker %d lost while writing (%s), sending again", broker_id, error)
        self._last_failure = error
        self._cluster.disconnect(broker_id)
        self._channels.pop(broker_id, None)
        for request in self._in_flight.pop(broker_id, ()):
            for batch in request.batches:
                self._queues.hold_back(batch, monotonic_ms())

    def _fail_unless_retriable(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        if not error.retriable:
            raise DeliveryError(
                error.error_code, topic_partition, self.next_sequence(topic_partition), error.message
            ) from error
        self._last_failure = error

    def _init_producer_id(self) -> None:
        response = self._cluster.ask_any(
            InitProducerIdRequest(transactional_id=None, transaction_timeout=_NO_TRANSACTION_TIMEOUT)
        )
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code, "a broker assigned no producer id")
        self.producer_id = response.producer_id
        self.producer_epoch = response.producer_epoch


def _produce_request(
    batches: list[PendingBatch], acks: int, timeout_ms: int, transactional_id: str | None
) -> ProduceRequest | transactional.ProduceRequest:
    topics: dict[str, list[PendingBatch]] = {}
    for batch in batches:
        topics.setdefault(batch.topic_partition.topic, []).append(batch)
    timeout = timedelta(milliseconds=timeout_ms)
    if transactional_id is None:
        return ProduceRequest(
            acks=acks,
            timeout=timeout,
            topic_data=tuple(
                TopicProduceData(
                    name=name,
                    partition_data=tuple(
                        PartitionProduceData(index=batch.topic_partition.partition, records=batch.data)
                        for batch in each
                    ),
                )
                for name, each in topics.items()
            ),
        )
    return transactional.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timeout,
        topic_data=tuple(
            transactional.TopicProduceData(
                name=name,
                partition_data=tuple(
                    transactional.PartitionProduceData(
                        index=batch.topic_partition.partition, records=batch.data
                    )
                    for batch in each
                ),
            )
            for name, each in topics.items()
        ),
    )

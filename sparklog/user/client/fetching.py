"""Reads of a partition's record batches, from its leader or a nearer replica, one request ahead of their use.

`PartitionFetcher` yields raw batches in offset order: from the batch that contains the start offset to the
one that reaches the end offset, so the caller cuts the first and the last. The next request is sent before a
response is returned: broker and network work while the caller decodes.

A leader that fails or changes is followed, without a pause if its successor is named (KIP-951). Deleted
offsets raise `OffsetOutOfRangeError`, after which `resume_at` continues elsewhere.

A follower (KIP-392) serves what is below the high watermark that it knows, and it may lag, or have none of
what lies in a tier. So it answers at once, and the first answer without records, an error or a lost
connection ends the reads from followers: the leader serves the rest, and its errors alone are meant.
Brokers send records without a check of their CRCs: `resume_at_leader` after records of a follower that prove
to be damaged. Followers that failed are avoided by the whole process for a while (`failed_replicas`).

A topic that is reported missing, or under another id than planned, counts as gone only if that is reported
for `unknown_topic_timeout_ms`: the broker may lag behind.
"""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

from kio.schema.fetch.v16.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v16.response import FetchResponse, PartitionData

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import next_fetch_offset
from sparklog.protocol.types import AbortedTransaction, BrokerId, Offset, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import FetchConfig
from sparklog.user.client.errors import (
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    UnknownTopicError,
)
from sparklog.user.client.failed_replicas import FAILED_REPLICAS
from sparklog.user.client.fetch_pause import early_pause_s
from sparklog.user.client.nearest_replica import ReaderPlace
from sparklog.user.client.offsets import SpecialOffset, list_offsets
from sparklog.user.client.topics import Leader

FOLLOWER_TIMEOUT_MS: Final = 3_000
"""Most time for a follower's response, which is not held back by it: the leader is there too."""


class FetchedBatches(NamedTuple):
    """Whole batches of one partition, in offset order; ignore a partial one at the end."""

    records: bytes | memoryview
    next_offset: Offset
    high_watermark: Offset
    aborted_transactions: tuple[AbortedTransaction, ...]
    follower_id: BrokerId | None = None
    """The follower that sent them; None for the leader."""


class PartitionFetcher:
    """Iterates over the batches of the offsets [start_offset, end_offset) of one partition."""

    def __init__(
        self,
        cluster: ClusterClient,
        config: FetchConfig,
        topic_partition: TopicPartition,
        start_offset: Offset,
        end_offset: Offset,
        *,
        topic_id: UUID | None = None,
        reader: ReaderPlace | None = None,
    ) -> None:
        """Read from the leader, with `reader` from the replica nearest to that place.

        With `topic_id` a topic created again under the same name is refused.
        """
        self._cluster = cluster
        self._config = config
        self._topic_id = topic_id
        self._topic_partition = topic_partition
        self._end_offset = end_offset
        self._reader = reader
        """The place whose nearest replica is read from; None for the leader."""
        self._follower_id: BrokerId | None = None
        """The follower that the last request was for; None for the leader."""
        self._requested_from: BrokerId | None = None
        self._requested_s = 0.0
        """Monotonic time at which the last request was sent."""
        self._early_answers = 0
        """Number of consecutive responses that were empty although the leader could have waited for
        records."""
        self._waiting_since_s = 0.0
        """Monotonic time since which the position is waited for, at the leader or at a follower."""
        self.position = start_offset

    def __iter__(self) -> Iterator[FetchedBatches]:
        """Yield fetched batches until the end offset is reached.

        Raises:
            OffsetOutOfRangeError: the leader does not have the position, or its log still ends there after
                `poll_timeout_ms`: the records are gone.
            OffsetNotAvailableError: nothing became readable for `poll_timeout_ms`.
            UnknownTopicError, TopicRecreatedError: all brokers report that the partition is gone.
            KafkaError: access is refused.
        """
        while self.position < self._end_offset:
            fetched = self._next()
            if self.position < self._end_offset:
                self._try_to_request()
            yield fetched

    def resume_at(self, offset: Offset) -> None:
        """Continue from `offset`, after an error about deleted offsets before it."""
        self._abandon_request()
        self.position = offset

    def resume_at_leader(self, fetched: FetchedBatches, offset: Offset) -> None:
        """Continue from `offset` at the leader: batches of a follower could not be decoded."""
        assert fetched.follower_id is not None, "the leader's copy is the last one"
        self.resume_at(offset)
        FAILED_REPLICAS.add(self._cluster.address(fetched.follower_id))
        self._reader = self._follower_id = None

    def _next(self) -> FetchedBatches:
        """Wait for batches at the position, retrying retriable errors, and advance past them."""
        self._waiting_since_s = time.monotonic()
        missing_since_s: float | None = None
        failure: KafkaError | None = None
        failures = 0
        while (time.monotonic() - self._waiting_since_s) * 1000 < self._config.poll_timeout_ms:
            try:
                fetched = self._attempt()
            except KafkaError as error:
                self._abandon_request()
                self._cluster.forget_leader(self._topic_partition)
                if self._follower_id is not None:
                    FAILED_REPLICAS.add(self._cluster.address(self._follower_id))
                    self._leave_follower()
                    continue
                if isinstance(error, UnknownTopicError | TopicRecreatedError):
                    now_s = time.monotonic()
                    missing_since_s = now_s if missing_since_s is None else missing_since_s
                    if (now_s - missing_since_s) * 1000 > self._cluster.config.unknown_topic_timeout_ms:
                        raise
                elif not error.retriable:
                    raise
                failure = error
                time.sleep(self._cluster.pause_ms(failures, error) / 1000)
                failures += 1
                continue
            missing_since_s = None
            if fetched is not None:
                self.position = fetched.next_offset
                return fetched
        if isinstance(failure, TopicRecreatedError):
            raise failure  # the records are gone, however short the poll timeout is
        if failure is None:
            # A leader whose log ends at the position answers like one without new records: the log may have
            # been longer.
            out_of_range = self._out_of_range()
            if isinstance(out_of_range, OffsetOutOfRangeError):
                raise out_of_range
        raise OffsetNotAvailableError(
            self._topic_partition, self.position, self._config.poll_timeout_ms
        ) from failure

    def _attempt(self) -> FetchedBatches | None:
        """Fetch once; return None if there were no records within max.wait, or another leader was named."""
        if self._requested_from is None:
            self._request()
        assert self._requested_from is not None
        broker_id = self._requested_from
        response: FetchResponse = self._cluster.channel(broker_id).receive(self._timeout_s)
        self._requested_from = None
        if self._follower_id is not None:
            return self._of_follower(response, self._follower_id)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code, "the broker refused the fetch")
        answer = self._answer(response)
        if answer.error_code is ErrorCode.none:
            if answer.records:
                self._early_answers = 0
            else:
                self._pause_if_early()
            return self._batches(answer)
        if answer.error_code is ErrorCode.offset_out_of_range:
            raise self._out_of_range()
        named = Leader(answer.current_leader.leader_id, answer.current_leader.leader_epoch)
        addresses = {node.node_id: (node.host, node.port) for node in response.node_endpoints}
        if self._cluster.leader_named(self._topic_partition, named, addresses, refused_by=broker_id):
            return None
        raise KafkaError(
            answer.error_code, f"{self._topic_partition}: fetch at offset {self.position} failed"
        )

    @property
    def _timeout_s(self) -> float | None:
        """Most time for the response; None for that of every request."""
        if self._follower_id is None:
            return None
        return min(self._cluster.config.request_timeout_ms, FOLLOWER_TIMEOUT_MS) / 1000

    def _of_follower(self, response: FetchResponse, follower_id: BrokerId) -> FetchedBatches | None:
        """Return the batches of a follower; without any, the leader is asked from now on."""
        if response.error_code is ErrorCode.none:
            answer = self._answer(response)
            if answer.error_code is ErrorCode.none and (fetched := self._batches(answer)) is not None:
                return fetched._replace(follower_id=follower_id)
        self._leave_follower()
        return None

    def _leave_follower(self) -> None:
        """Ask the leader from now on, which has all of the time for its answer."""
        self._follower_id = self._reader = None
        self._waiting_since_s = time.monotonic()

    def _pause_if_early(self) -> None:
        """Pause after an empty response that was due later (`fetch_pause`)."""
        waited_s, max_wait_s = time.monotonic() - self._requested_s, self._config.max_wait_ms / 1000
        backoff = self._cluster.config.retry_backoff
        pause_s = early_pause_s(backoff, self._early_answers, waited_s, max_wait_s)
        self._early_answers = self._early_answers + 1 if pause_s else 0
        time.sleep(pause_s)

    def _answer(self, response: FetchResponse) -> PartitionData:
        for topic in response.responses:
            for answer in topic.partitions:
                if answer.partition_index == self._topic_partition.partition:
                    return answer
        raise KafkaError(
            ErrorCode.unknown_server_error, f"{self._topic_partition}: the broker's answer lacks it"
        )

    def _batches(self, answer: PartitionData) -> FetchedBatches | None:
        records = answer.records
        if not records:
            return None
        next_offset = next_fetch_offset(records, self.position)
        if next_offset == self.position:
            return None
        return FetchedBatches(
            records,
            next_offset,
            answer.high_watermark,
            tuple(
                AbortedTransaction(aborted.producer_id, aborted.first_offset)
                for aborted in answer.aborted_transactions or ()
            ),
        )

    def _request(self) -> None:
        self._follower_id = None
        leader = self._cluster.leader(self._topic_partition)
        topic_id = self._cluster.topic(self._topic_partition.topic).topic_id
        if self._topic_id is not None and topic_id != self._topic_id:
            raise TopicRecreatedError(self._topic_partition.topic)
        partition = FetchPartition(
            partition=self._topic_partition.partition,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=self.position,
            partition_max_bytes=self._config.max_partition_bytes,
        )
        broker_id = leader.broker_id
        if self._reader is not None:
            broker_id = self._cluster.nearest_replica(self._topic_partition, leader, self._reader)
        if broker_id != leader.broker_id:
            self._follower_id = broker_id
        is_of_follower = self._follower_id is not None
        request = FetchRequest(
            max_wait=timedelta(milliseconds=0 if is_of_follower else self._config.max_wait_ms),
            min_bytes=1,
            max_bytes=self._config.max_bytes,
            isolation_level=int(self._config.read_committed),
            topics=(FetchTopic(topic_id=topic_id, partitions=(partition,)),),
            forgotten_topics_data=(),
            # For the follower's metrics; a leader with a selector of replicas would name another replica.
            rack_id=(self._reader.client_rack or "") if self._reader and is_of_follower else "",
        )
        self._requested_from = broker_id
        self._requested_s = time.monotonic()
        self._cluster.channel(broker_id, connect_timeout_s=self._timeout_s).send(request)

    def _try_to_request(self) -> None:
        """Send the next request ahead of time; a failure is handled when its response is awaited."""
        try:
            self._request()
        except KafkaError:
            self._abandon_request()

    def _abandon_request(self) -> None:
        """Close the connection with an outstanding response, which would be taken for the next one's."""
        if self._requested_from is not None:
            self._cluster.disconnect(self._requested_from)
            self._requested_from = None

    def _out_of_range(self) -> KafkaError:
        queries = {self._topic_partition: SpecialOffset.EARLIEST}
        log_start = list_offsets(self._cluster, queries)[self._topic_partition].offset
        queries = {self._topic_partition: SpecialOffset.LATEST}
        log_end = list_offsets(self._cluster, queries)[self._topic_partition].offset
        assert log_start is not None
        assert log_end is not None
        if log_start <= self.position < log_end:
            return KafkaError(
                ErrorCode.offset_not_available,
                f"{self._topic_partition}: the leader is behind at {self.position}",
            )
        return OffsetOutOfRangeError(self._topic_partition, self.position, log_start, log_end)

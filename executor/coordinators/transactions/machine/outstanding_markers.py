"""Partitions without the marker of a decided transaction, and the requests to their leaders.

A broker gets one request at a time, with the markers of all transactions that wait for it; later decisions go
with the next. A marker is retried for ever: its partition's leader may be down, and a transaction must end in
all of its partitions. It ends in one of three ways:

- the partition has it, or can have none (its topic is deleted);
- another coordinator owns the transaction and writes the rest (TRANSACTION_COORDINATOR_FENCED,
  INVALID_PRODUCER_EPOCH): no more is sent, and the transaction does not count as completed;
- this broker's coordinator no longer owns the id: `forget`.

A failed marker pauses for a while, longer each time, unless the partition's leader changes before.

Order for the caller: `add`, `forget`, `metadata_changed` at any time; afterwards, and after `answered` and
`wake`, take `next_request` of each of `ready_brokers`, send it, and pass the response to `answered`. The
caller also takes `completed`: transactions without missing markers, with their coordinators.

Pure. Source: Kafka's TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final, NamedTuple, Protocol

from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from sparklog.executor.coordinators.transactions.machine.events import SendMarkers
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, LeaderEpoch, TopicPartition

logger = logging.getLogger(__name__)

MOST_MARKERS: Final = 500
"""Markers in one request, bounded so that other requests get their turn on the receiver."""
MOST_PARTITIONS: Final = 10_000
"""Partitions in one request, over all markers: the receiver would refuse a larger one each time."""
BACKOFF: Final = ExponentialBackoff(first_ms=20, max_ms=1_000)

_FENCED: Final = (ErrorCode.transaction_coordinator_fenced, ErrorCode.invalid_producer_epoch)
_NEVER: Final = (ErrorCode.unsupported_for_message_format, ErrorCode.unsupported_version)


class Coordinator(Protocol):
    """Coordinator of the decision: a leadership of a partition of `__transaction_state`."""

    @property
    def partition_index(self) -> int: ...

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Orders it among the partition's other coordinators."""


class _Transaction:
    __slots__ = ("coordinator", "failures", "markers", "missing")

    def __init__(self, coordinator: Coordinator, markers: SendMarkers) -> None:
        self.coordinator = coordinator
        self.markers = markers
        self.missing = set(markers.partitions)
        self.failures = 0

    @property
    def key(self) -> "_Key":
        return self.coordinator.partition_index, self.markers.transactional_id


_Key = tuple[int, str]
_Waiting = dict[_Transaction, set[TopicPartition]]


class _Resting(NamedTuple):
    due_ms: int
    transaction: _Transaction
    partition: TopicPartition
    asked: BrokerId | None
    """Broker that failed to write it; None if the partition had no leader."""


class OutstandingMarkers:
    def __init__(self) -> None:
        self.completed: list[tuple[Any, SendMarkers]] = []
        self._image: MetadataImage = EMPTY_IMAGE
        self._transactions: dict[_Key, _Transaction] = {}
        self._waiting: defaultdict[BrokerId, _Waiting] = defaultdict(dict)
        self._under_way: dict[BrokerId, Mapping[_Transaction, Iterable[TopicPartition]]] = {}
        self._resting: list[_Resting] = []

    def __len__(self) -> int:
        return len(self._transactions)

    @property
    def leaderless_count(self) -> int:
        """Number of markers that pause because their partition had no leader."""
        return sum(resting.asked is None for resting in self._resting)

    def missing(self, partition: int, transactional_id: str) -> Set[TopicPartition] | None:
        """Return the partitions without the marker of an id's decision by that coordinator.

        None if no marker is being sent: the decision has not arrived yet, or all partitions have theirs.
        """
        transaction = self._transactions.get((partition, transactional_id))
        return None if transaction is None else frozenset(transaction.missing)

    @property
    def ready_brokers(self) -> Iterator[BrokerId]:
        """Yield the brokers with waiting markers and no request in flight."""
        for broker_id, waiting in list(self._waiting.items()):
            if waiting and broker_id not in self._under_way:
                yield broker_id

    @property
    def next_due_ms(self) -> int | None:
        """Time of the next `wake`; None if no marker pauses."""
        return min((resting.due_ms for resting in self._resting), default=None)

    def add(self, coordinator: Coordinator, markers: SendMarkers, now_ms: int) -> None:
        """Queue markers; an earlier decision about the id becomes obsolete."""
        transaction = _Transaction(coordinator, markers)
        self._transactions[transaction.key] = transaction
        self._queue(transaction, sorted(transaction.missing), now_ms)
        self._settle(transaction)

    def forget(self, partition: int) -> None:
        """Drop the markers of the coordinator of this partition, which may have moved."""
        for key in [key for key in self._transactions if key[0] == partition]:
            del self._transactions[key]

    def metadata_changed(self, image: MetadataImage, now_ms: int) -> None:
        if image is self._image:
            return
        self._image = image
        queued = [
            (broker_id, transaction, partition)
            for broker_id, waiting in self._waiting.items()
            for transaction, partitions in waiting.items()
            for partition in sorted(partitions)
        ]
        moved = [each for each in queued if self._leader(each[2]) != each[0]]
        for broker_id, transaction, partition in moved:
            waiting = self._waiting[broker_id]
            waiting[transaction].discard(partition)
            if not waiting[transaction]:
                del waiting[transaction]
            self._queue(transaction, [partition], now_ms)
            self._settle(transaction)
        resting, self._resting = self._resting, []
        for each in resting:
            if self._leader(each.partition) == each.asked:
                self._resting.append(each)
            else:
                self._queue(each.transaction, [each.partition], now_ms)
                self._settle(each.transaction)

    def wake(self, now_ms: int) -> None:
        resting, self._resting = self._resting, []
        for each in resting:
            if each.due_ms > now_ms:
                self._resting.append(each)
            else:
                self._queue(each.transaction, [each.partition], now_ms)
                self._settle(each.transaction)

    def next_request(self, broker_id: BrokerId) -> WriteTxnMarkersRequest | None:
        """Return the next request for one of `ready_brokers`, which becomes ready again with its response."""
        assert broker_id not in self._under_way, "one request at a time"
        waiting = self._waiting.get(broker_id, {})
        under_way: dict[_Transaction, tuple[TopicPartition, ...]] = {}
        room = MOST_PARTITIONS
        for transaction in list(waiting):
            if len(under_way) == MOST_MARKERS or not room:
                break
            partitions = waiting.pop(transaction)
            if self._is_outstanding(transaction):
                ordered = sorted(partitions)
                under_way[transaction] = tuple(ordered[:room])
                if len(ordered) > room:
                    waiting[transaction] = set(ordered[room:])
                room -= len(under_way[transaction])
        if not under_way:
            return None
        self._under_way[broker_id] = under_way
        return WriteTxnMarkersRequest(
            markers=tuple(_marker(each, partitions) for each, partitions in under_way.items())
        )

    def answered(self, broker_id: BrokerId, response: Any, now_ms: int) -> None:
        """Process a broker's response; None if the request failed."""
        under_way = self._under_way.pop(broker_id)
        errors = {} if response is None else _errors(response)
        for transaction, partitions in under_way.items():
            if not self._is_outstanding(transaction):
                continue
            failed = [
                partition
                for partition in partitions
                if not self._took(
                    transaction,
                    partition,
                    errors.get((transaction.markers.producer.producer_id, partition)),
                )
            ]
            if not self._is_outstanding(transaction):
                continue
            if failed:
                pause_ms = BACKOFF.pause_ms(transaction.failures)
                transaction.failures += 1
                for partition in failed:
                    self._rest(transaction, partition, broker_id, now_ms + pause_ms)
            else:
                transaction.failures = 0
            self._settle(transaction)

    def _took(
        self, transaction: _Transaction, partition: TopicPartition, error_code: ErrorCode | None
    ) -> bool:
        """Process a partition's error code; return False if the marker must be retried."""
        if error_code is ErrorCode.none or error_code in _NEVER:
            transaction.missing.discard(partition)
            return True
        transactional_id = transaction.markers.transactional_id
        if error_code in _FENCED:
            logger.warning(
                "Transaction of %s: %s refuses the marker of coordinator epoch %d with %s; the next "
                "coordinator completes it",
                transactional_id,
                partition,
                transaction.coordinator.leader_epoch,
                error_code.name if error_code is not None else "",
            )
            self._transactions.pop(transaction.key, None)
            return True
        if error_code is not None:
            logger.info(
                "Transaction of %s: no marker in %s yet: %s", transactional_id, partition, error_code.name
            )
        return False

    def _queue(self, transaction: _Transaction, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Queue markers for the leaders of their partitions; deleted partitions need none."""
        if not self._is_outstanding(transaction):
            return
        for partition in partitions:
            topic = self._image.topics.by_name.get(partition.topic)
            registration = None if topic is None else topic.partitions.get(partition.partition)
            if registration is None:
                logger.info(
                    "Transaction of %s: %s is deleted and needs no marker",
                    transaction.markers.transactional_id,
                    partition,
                )
                transaction.missing.discard(partition)
            elif registration.leader is None:
                self._rest(transaction, partition, None, now_ms + BACKOFF.max_ms)
            else:
                self._waiting[registration.leader].setdefault(transaction, set()).add(partition)

    def _rest(
        self, transaction: _Transaction, partition: TopicPartition, asked: BrokerId | None, due_ms: int
    ) -> None:
        self._resting.append(_Resting(due_ms, transaction, partition, asked))

    def _settle(self, transaction: _Transaction) -> None:
        if not transaction.missing and self._is_outstanding(transaction):
            del self._transactions[transaction.key]
            self.completed.append((transaction.coordinator, transaction.markers))

    def _is_outstanding(self, transaction: _Transaction) -> bool:
        return self._transactions.get(transaction.key) is transaction

    def _leader(self, partition: TopicPartition) -> BrokerId | None:
        topic = self._image.topics.by_name.get(partition.topic)
        registration = None if topic is None else topic.partitions.get(partition.partition)
        return None if registration is None else registration.leader


def _marker(transaction: _Transaction, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    markers = transaction.markers
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    return WritableTxnMarker(
        producer_id=markers.producer.producer_id,
        producer_epoch=markers.producer.producer_epoch,
        transaction_result=markers.committed,
        topics=tuple(
            WritableTxnMarkerTopic(name=topic, partition_indexes=tuple(indexes))
            for topic, indexes in by_topic.items()
        ),
        coordinator_epoch=transaction.coordinator.leader_epoch,
        transaction_version=markers.transaction_version,
    )


def _errors(response: Any) -> dict[tuple[int, TopicPartition], ErrorCode]:
    return {
        (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }

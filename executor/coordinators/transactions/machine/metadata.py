"""State of one transactional id, and its transitions.

States and transitions are Kafka's:

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit
                     -> PrepareAbort  -> CompleteAbort     and from Empty and Complete: Empty, Ongoing

The Prepare record decides a transaction: once it is committed, markers are sent for as long as it takes, and
the id cannot change otherwise. Complete means that every partition has its marker. With version 2 of
transactions (KIP-890) the producer's epoch rises with each Prepare, so that no earlier request can affect a
later transaction; if no epoch is left, Prepare names the producer id that Complete changes to
(`next_producer_id`). A transaction without partitions may be aborted too: its client cannot know.

States are immutable, each derived from its predecessor and equal to a record of `__transaction_state`.

Source: Kafka's TransactionMetadata, TransactionState and TransactionLog; KIP-98, KIP-360, KIP-890.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, Self

from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.records.transaction_state import PartitionsSchema, TransactionLogValue
from sparklog.protocol.types import (
    NO_TRANSACTION_TIMEOUT_MS,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
    or_minus_one,
    unless_minus_one,
)

LAST_EPOCH: Final = 2**15 - 1
EXHAUSTED_EPOCH: Final = LAST_EPOCH - 1
"""The last epoch for clients: the next one is reserved, so that the producer can always be fenced."""
EPOCH_BUMP_VERSION: Final = 2
"""From this level of `transaction.version` on the epoch rises with every transaction (KIP-890)."""


class TransactionState(IntEnum):
    """State of a transactional id, by the number in its record.

    Dead and PrepareEpochFence occur in no record and are no state of an id here: in Kafka they stand for a
    tombstone or an abort before its append, which is a single decision here. Filters may name them.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def state_name(self) -> str:
        """Return Kafka's name of it.

        >>> TransactionState.PREPARE_COMMIT.state_name
        'PrepareCommit'
        """
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction is decided, and not all partitions have their marker."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction: the id may be assigned to a producer, begin one, or expire."""
        return self in _IDLE


_IDLE: Final = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

_VALID_PREVIOUS_STATES: Final[Mapping[TransactionState, tuple[TransactionState, ...]]] = MappingProxyType(
    {
        TransactionState.EMPTY: _IDLE,
        TransactionState.ONGOING: (*_IDLE, TransactionState.ONGOING),
        TransactionState.PREPARE_COMMIT: (TransactionState.ONGOING,),
        TransactionState.PREPARE_ABORT: (*_IDLE, TransactionState.ONGOING),
        TransactionState.COMPLETE_COMMIT: (TransactionState.PREPARE_COMMIT,),
        TransactionState.COMPLETE_ABORT: (TransactionState.PREPARE_ABORT,),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    producer_id: ProducerId
    previous_producer_id: ProducerId | None = None
    """Producer id before the last transition; it differs only if that changed the id."""
    next_producer_id: ProducerId | None = None
    """Producer id after the completion of a prepared transaction; None if it stays."""
    producer_epoch: ProducerEpoch
    timeout_ms: int
    state: TransactionState
    partitions: Set[TopicPartition] = frozenset()
    start_ms: TimestampMs | None = None
    """Start of the current or last transaction; None while the producer has had none."""
    last_update_ms: TimestampMs
    client_transaction_version: int = 0
    """Version of transactions that the client speaks; markers and completion depend on it."""

    @property
    def producer(self) -> ProducerStamp:
        """Producer id and epoch in the partitions."""
        return ProducerStamp(self.producer_id, self.producer_epoch)

    @property
    def given_producer(self) -> ProducerStamp:
        """Producer id and epoch of the client's next records: those after the completion, if known."""
        if self.bumps_epoch and self.next_producer_id is not None:
            return ProducerStamp(self.next_producer_id, 0)
        return self.producer

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def bumps_epoch(self) -> bool:
        return self.client_transaction_version >= EPOCH_BUMP_VERSION

    def has_timed_out(self, wall_ms: TimestampMs) -> bool:
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NO_TRANSACTION_TIMEOUT_MS:
            return False
        return self.start_ms is not None and self.start_ms + self.timeout_ms < wall_ms

    def has_expired(self, wall_ms: TimestampMs, expiration_ms: int) -> bool:
        return self.state.is_idle and self.last_update_ms <= wall_ms - expiration_ms

    def initialized(
        self, producer_id: ProducerId, producer_epoch: ProducerEpoch, timeout_ms: int, wall_ms: TimestampMs
    ) -> "TransactionMetadata":
        return self._after(
            TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=None,
            last_update_ms=wall_ms,
        )

    def with_partitions(
        self, partitions: Iterable[TopicPartition], transaction_version: int, wall_ms: TimestampMs
    ) -> "TransactionMetadata":
        """Return the state with these partitions added; a transaction begins if none is open."""
        return self._after(
            TransactionState.ONGOING,
            partitions=frozenset(self.partitions).union(partitions),
            start_ms=wall_ms if self.state.is_idle else self.start_ms,
            last_update_ms=wall_ms,
            client_transaction_version=transaction_version,
        )

    def prepared(
        self,
        committed: bool,
        transaction_version: int,
        wall_ms: TimestampMs,
        next_producer_id: ProducerId | None = None,
    ) -> "TransactionMetadata":
        bumps = transaction_version >= EPOCH_BUMP_VERSION
        return self._after(
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            next_producer_id=next_producer_id,
            producer_epoch=min(self.producer_epoch + 1, LAST_EPOCH) if bumps else self.producer_epoch,
            start_ms=wall_ms if self.state.is_idle else self.start_ms,
            last_update_ms=wall_ms,
            client_transaction_version=transaction_version,
        )

    def fenced(
        self, transaction_version: int, wall_ms: TimestampMs, next_producer_id: ProducerId | None = None
    ) -> "TransactionMetadata":
        """Return the state with the transaction aborted and the epoch bumped, in either version."""
        aborted = self.prepared(False, transaction_version, wall_ms, next_producer_id)
        return replace(aborted, producer_epoch=min(self.producer_epoch + 1, LAST_EPOCH))

    def completed(self, wall_ms: TimestampMs) -> "TransactionMetadata":
        commits = self.state is TransactionState.PREPARE_COMMIT
        producer_id, producer_epoch = self.given_producer
        return self._after(
            TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            next_producer_id=None,
            partitions=frozenset(),
            last_update_ms=wall_ms,
        )

    def _after(self, state: TransactionState, **changes: Any) -> "TransactionMetadata":
        assert self.state in _VALID_PREVIOUS_STATES[state], (self.state, state)
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)

    def to_value(self) -> TransactionLogValue:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(self.partitions):
            by_topic[topic].append(partition)
        return TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=or_minus_one(self.previous_producer_id),
            next_producer_id=or_minus_one(self.next_producer_id),
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=(
                None
                if self.state is TransactionState.EMPTY
                else tuple(
                    PartitionsSchema(topic=topic, partition_ids=tuple(partitions))
                    for topic, partitions in by_topic.items()
                )
            ),
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=or_minus_one(self.start_ms),
            client_transaction_version=self.client_transaction_version,
        )

    @classmethod
    def from_value(cls, value: TransactionLogValue) -> Self:
        """Return the state of a record.

        Raises:
            ValueError: there is no such state.
        """
        return cls(
            producer_id=value.producer_id,
            previous_producer_id=unless_minus_one(value.previous_producer_id),
            next_producer_id=unless_minus_one(value.next_producer_id),
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            state=TransactionState(value.transaction_status),
            partitions=frozenset(
                TopicPartition(each.topic, partition)
                for each in value.transaction_partitions or ()
                for partition in each.partition_ids
            ),
            start_ms=unless_minus_one(value.transaction_start_timestamp_ms),
            last_update_ms=value.transaction_last_update_timestamp_ms,
            client_transaction_version=value.client_transaction_version,
        )

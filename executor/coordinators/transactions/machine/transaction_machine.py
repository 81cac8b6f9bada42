"""One partition of `__transaction_state`: its transactional ids and their transactions.

The records of an id are decided one after the other; this machine decides the next record. The rule that
makes a transaction atomic: the Prepare record decides it, and until Complete is in the log only its
completion may change the id. Other requests get CONCURRENT_TRANSACTIONS meanwhile.

Kafka returns that error also while a record is being appended. Here a record counts from its append, and
replies that depend on it wait until it is committed (`decision`): a request in between is decided with the
record, and answered after it.

Volatile: the former epoch of each producer (`_bumped_from`), so that a producer that did not receive its new
epoch may retry (KIP-360). It holds only together with the epoch it led to, so it needs no undoing if the
record was not appended; after a change of coordinators such a producer is fenced, as in Kafka.

Source: Kafka's TransactionCoordinator and TransactionStateManager (4.3.1).
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from sparklog.executor.coordinators.machine.coordinator_machine import (
    NOTHING,
    CoordinatorRecord,
    CoordinatorResult,
    Now,
    ProducerStamp,
    Reply,
    Token,
)
from sparklog.executor.coordinators.records.transaction_state import TransactionLogKey, TransactionLogValue
from sparklog.executor.coordinators.transactions.machine import ending, initialization
from sparklog.executor.coordinators.transactions.machine.events import (
    AbortWithNewProducerId,
    AddPartitions,
    Describe,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    ProducerOutcome,
    SendMarkers,
    VerifyPartitions,
)
from sparklog.executor.coordinators.transactions.machine.metadata import (
    EPOCH_BUMP_VERSION,
    TransactionMetadata,
    TransactionState,
)
from sparklog.executor.coordinators.transactions.machine.time_outs import Schedule, TransactionLimits
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.features import TRANSACTION_VERSION_FEATURE
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import ProducerEpoch, ProducerId

_TOMBSTONES_BYTES: Final = 16_384
"""Bytes of transactional ids in a batch of tombstones after which the next begins; as in Kafka."""
_RELEASED_AT_ONCE: Final = 512
"""Ids released in one turn of the loop."""


class _Bump(NamedTuple):
    to: ProducerStamp
    from_epoch: ProducerEpoch


class TransactionMachine:
    def __init__(self, limits: TransactionLimits) -> None:
        self._limits = limits
        self._transactions: dict[str, TransactionMetadata] = {}
        self._ongoing: dict[str, None] = {}
        """Ids of `_transactions` that may time out."""
        self._bumped_from: dict[str, _Bump] = {}
        self._transaction_version = 0
        """The cluster's level of the feature transaction.version."""
        self._schedule = Schedule(limits)

    def release(self) -> Iterator[None]:
        """Release all ids in slices; the machine is not used afterwards."""
        self._ongoing = {}
        while self._transactions:
            for _ in range(min(len(self._transactions), _RELEASED_AT_ONCE)):
                transactional_id, _metadata = self._transactions.popitem()
                self._bumped_from.pop(transactional_id, None)
            yield

    # Records of the log.

    def replay(self, record: CoordinatorRecord, producer: ProducerStamp | None) -> None:
        assert isinstance(record.key, TransactionLogKey), record
        transactional_id = record.key.transactional_id
        if record.value is None:
            self._transactions.pop(transactional_id, None)
            self._ongoing.pop(transactional_id, None)
            self._bumped_from.pop(transactional_id, None)
            return
        assert isinstance(record.value, TransactionLogValue), record
        metadata = self._transactions[transactional_id] = TransactionMetadata.from_value(record.value)
        if metadata.state is TransactionState.ONGOING:
            self._ongoing[transactional_id] = None
        else:
            self._ongoing.pop(transactional_id, None)

    def end_transaction(self, producer: ProducerStamp, committed: bool) -> None:
        """Do nothing: no record of this topic is transactional."""

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        self._transaction_version = image.features.get(TRANSACTION_VERSION_FEATURE, 0)
        self._schedule.begin(now.monotonic_ms)
        prepared = [
            _send_markers(transactional_id, metadata)
            for transactional_id, metadata in self._transactions.items()
            if metadata.state.is_prepared
        ]
        if prepared:
            yield CoordinatorResult(effects=prepared)

    def metadata_changed(
        self, image: MetadataImage, delta: MetadataDelta, now: Now
    ) -> Iterable[CoordinatorResult]:
        self._transaction_version = image.features.get(TRANSACTION_VERSION_FEATURE, 0)
        return ()

    def append_failed(
        self, decision: CoordinatorResult, error: ErrorCode, now: Now
    ) -> CoordinatorResult | None:
        """Schedule a retry of a failed completion; clients or intervals retry other decisions."""
        for key, value in decision.records:
            if isinstance(key, TransactionLogKey) and isinstance(value, TransactionLogValue):
                known = self._transactions.get(key.transactional_id)
                if known is not None and known.state.is_prepared:
                    self._schedule.complete_later(key.transactional_id, known.producer, now.monotonic_ms)
        return None

    # Requests of producers and partitions.

    def init_producer(self, event: InitProducer, token: Token, now: Now) -> CoordinatorResult:
        """Assign the id to the producer; the reply is a `ProducerOutcome`, or `NEEDS_PRODUCER_ID`."""
        transactional_id = event.transactional_id
        if not self._limits.allow_timeout(transactional_id, event.timeout_ms):
            return _refused(token, ErrorCode.invalid_transaction_timeout)
        bump = self._bumped_from.get(transactional_id)
        known = self._transactions.get(transactional_id)
        outcome = initialization.initialize(
            event,
            known,
            last_epoch=bump.from_epoch if bump and known and bump.to == known.producer else None,
            transaction_version=self._effective_version,
            wall_ms=now.wall_ms,
        )
        if isinstance(outcome, initialization.Initialized):
            self._remember_bump(transactional_id, outcome.metadata.producer, outcome.last_epoch)
            reply = ProducerOutcome(ErrorCode.none, outcome.metadata.producer)
            return CoordinatorResult([_record(transactional_id, outcome.metadata)], [Reply(token, reply)])
        if isinstance(outcome, TransactionMetadata):
            assert known is not None, "an unknown id has no transaction"
            # The producer retries, and gets an epoch once the transaction is completed.
            refusal = Reply(token, ProducerOutcome(ErrorCode.concurrent_transactions))
            return self._prepare(transactional_id, known, outcome, refusal)
        return CoordinatorResult(replies=[Reply(token, outcome)])

    def add_partitions(self, event: AddPartitions, token: Token, now: Now) -> CoordinatorResult:
        """Add partitions to a transaction, which begins with them; the reply is an `ErrorCode`."""
        known = self._known(event.transactional_id, event.producer)
        if isinstance(known, ErrorCode):
            return CoordinatorResult(replies=[Reply(token, known)])
        if known.state is TransactionState.ONGOING and event.partitions <= known.partitions:
            return CoordinatorResult(replies=[Reply(token, ErrorCode.none)])
        ongoing = known.with_partitions(event.partitions, event.transaction_version, now.wall_ms)
        return CoordinatorResult([_record(event.transactional_id, ongoing)], [Reply(token, ErrorCode.none)])

    def verify_partitions(self, event: VerifyPartitions, token: Token, now: Now) -> CoordinatorResult:
        """Check which partitions are part of a transaction; the reply is `PartitionErrors`."""
        known = self._known(event.transactional_id, event.producer)
        if isinstance(known, ErrorCode):
            errors = dict.fromkeys(event.partitions, known)
        else:
            errors = {
                partition: ErrorCode.none
                if partition in known.partitions
                else ErrorCode.transaction_abortable
                for partition in event.partitions
            }
        return CoordinatorResult(replies=[Reply(token, errors)])

    def end(self, event: EndTransaction, token: Token, now: Now) -> CoordinatorResult:
        """Commit or abort; the reply is a `ProducerOutcome`, or `NEEDS_PRODUCER_ID`."""
        known = self._transactions.get(event.transactional_id)
        if known is None:
            return _refused(token, ErrorCode.invalid_producer_id_mapping)
        outcome = ending.end(event, known, now.wall_ms)
        if not isinstance(outcome, TransactionMetadata):
            return CoordinatorResult(replies=[Reply(token, outcome)])
        producer = outcome.given_producer if outcome.bumps_epoch else None
        reply = Reply(token, ProducerOutcome(ErrorCode.none, producer))
        return self._prepare(event.transactional_id, known, outcome, reply)

    def markers_written(self, event: MarkersWritten, now: Now) -> CoordinatorResult:
        """Complete a transaction, without a reply."""
        transactional_id = event.transactional_id
        known = self._transactions.get(transactional_id)
        if known is None or not known.state.is_prepared or known.producer != event.producer:
            return NOTHING
        completed = known.completed(now.wall_ms)
        bump = self._bumped_from.get(transactional_id)
        if bump is not None and bump.to == known.producer:
            self._remember_bump(transactional_id, completed.producer, bump.from_epoch)
        return CoordinatorResult([_record(transactional_id, completed)])

    def describe(self, event: Describe, token: Token, now: Now) -> CoordinatorResult:
        """Return the state of an id; the reply is its `TransactionMetadata`, or None."""
        return CoordinatorResult(replies=[Reply(token, self._transactions.get(event.transactional_id))])

    def list_all(self, token: Token, now: Now) -> CoordinatorResult:
        """Return the states of all ids; the reply is a list of pairs."""
        return CoordinatorResult(replies=[Reply(token, list(self._transactions.items()))])

    @property
    def uncompleted_count(self) -> int:
        """Number of transactions with all markers that are not completed yet."""
        return self._schedule.uncompleted_count

    # Timers.

    @property
    def next_due_ms(self) -> int | None:
        return self._schedule.next_due_ms

    def tick(self, now: Now) -> Iterator[CoordinatorResult]:
        """Retry completions, abort timed-out transactions, and delete expired ids."""
        for transactional_id, producer in self._schedule.to_complete(now.monotonic_ms):
            yield self.markers_written(MarkersWritten(transactional_id, producer), now)

        def has_timed_out(transactional_id: str) -> bool:
            known = self._transactions.get(transactional_id)
            return known is not None and known.has_timed_out(now.wall_ms)

        def has_expired(transactional_id: str) -> bool:
            known = self._transactions.get(transactional_id)
            return known is not None and known.has_expired(now.wall_ms, self._limits.expiration_ms)

        for transactional_id in self._schedule.to_abort(self._ongoing, has_timed_out, now.monotonic_ms):
            yield self.abort_timed_out(transactional_id, None, now)
        tombstones: list[CoordinatorRecord] = []
        batch_bytes = 0
        for transactional_id in self._schedule.to_forget(self._transactions, has_expired, now.monotonic_ms):
            tombstones.append(CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None))
            batch_bytes += len(transactional_id)
            if batch_bytes >= _TOMBSTONES_BYTES:
                yield CoordinatorResult(tombstones)
                tombstones, batch_bytes = [], 0
        if tombstones:
            yield CoordinatorResult(tombstones)

    def abort_timed_out(
        self, transactional_id: str, new_producer_id: ProducerId | None, now: Now
    ) -> CoordinatorResult:
        """Abort a transaction that has timed out and fence its producer, without a reply."""
        known = self._transactions.get(transactional_id)
        if known is None or not known.has_timed_out(now.wall_ms):
            return NOTHING
        version = self._effective_version
        if version and known.is_exhausted and new_producer_id is None:
            return CoordinatorResult(effects=[AbortWithNewProducerId(transactional_id)])
        next_producer_id = new_producer_id if version and known.is_exhausted else None
        fenced = known.fenced(version, now.wall_ms, next_producer_id)
        return self._prepare(transactional_id, known, fenced, None)

    # Parts of the above.

    @property
    def _effective_version(self) -> int:
        """Version with which the coordinator itself ends a transaction: 0 below version 2."""
        version = self._transaction_version
        return version if version >= EPOCH_BUMP_VERSION else 0

    def _known(self, transactional_id: str, producer: ProducerStamp) -> TransactionMetadata | ErrorCode:
        known = self._transactions.get(transactional_id)
        if known is not None and producer == known.given_producer:
            return ErrorCode.concurrent_transactions if known.state.is_prepared else known
        if known is not None and producer.producer_id == known.producer_id:
            return ErrorCode.producer_fenced
        return ErrorCode.invalid_producer_id_mapping

    def _remember_bump(
        self, transactional_id: str, to: ProducerStamp, from_epoch: ProducerEpoch | None
    ) -> None:
        if from_epoch is not None:
            self._bumped_from[transactional_id] = _Bump(to, from_epoch)
        else:
            # A bump whose record was not appended may have led to the same epoch.
            self._bumped_from.pop(transactional_id, None)

    def _prepare(
        self,
        transactional_id: str,
        known: TransactionMetadata,
        prepared: TransactionMetadata,
        reply: Reply | None,
    ) -> CoordinatorResult:
        if prepared.bumps_epoch:
            self._remember_bump(transactional_id, prepared.producer, known.producer_epoch)
        return CoordinatorResult(
            [_record(transactional_id, prepared)],
            [] if reply is None else [reply],
            [_send_markers(transactional_id, prepared)],
        )


def _record(transactional_id: str, metadata: TransactionMetadata) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), metadata.to_value())


def _send_markers(transactional_id: str, prepared: TransactionMetadata) -> SendMarkers:
    return SendMarkers(
        transactional_id,
        prepared.producer,
        prepared.state is TransactionState.PREPARE_COMMIT,
        prepared.client_transaction_version,
        prepared.partitions,
    )


def _refused(token: Token, error_code: ErrorCode) -> CoordinatorResult:
    return CoordinatorResult(replies=[Reply(token, ProducerOutcome(error_code))])

"""A transaction coordinator's partition without its runtime: a log in memory, replayed to a machine."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorRecord,
    CoordinatorResult,
    Now,
    ProducerStamp,
)
from sparklog.executor.coordinators.records.transaction_state import TransactionLogKey
from sparklog.executor.coordinators.transactions.machine.events import (
    NEEDS_PRODUCER_ID,
    AbortWithNewProducerId,
    AddPartitions,
    Describe,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    ProducerOutcome,
    SendMarkers,
)
from sparklog.executor.coordinators.transactions.machine.metadata import TransactionMetadata
from sparklog.executor.coordinators.transactions.machine.time_outs import TransactionLimits
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import ProducerEpoch, ProducerId, TopicPartition

LIMITS = TransactionLimits(
    max_timeout_ms=900_000,
    expiration_ms=604_800_000,
    abort_interval_ms=10_000,
    expiration_interval_ms=3_600_000,
    two_phase_commit_enable=False,
)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NONE = ErrorCode.none


class NotAppendedError(Exception):
    """What a request decided could not be appended: its client is told to try again."""


class Partition:
    """Appends what a machine decides and replays it, as the runtime does; everything is committed at once."""

    def __init__(self, limits: TransactionLimits = LIMITS, transaction_version: int = 2) -> None:
        self.limits = limits
        self.image = MetadataImage(features={"transaction.version": transaction_version})
        self.log: list[CoordinatorRecord] = []
        self.now = Now(0, 1_700_000_000_000)
        self.next_producer_id: ProducerId = 1_000
        self.markers: list[SendMarkers] = []
        """Not yet said to be written."""
        self.appends = True
        self.machine = self.load()

    def load(self) -> TransactionMachine:
        """Return a machine that has the log from its beginning, and has begun what it has to."""
        machine = TransactionMachine(self.limits)
        for record in self.log:
            machine.replay(record, None)
        self.machine, self.markers = machine, []
        self._carry_out_all(machine.loaded(self.image, self.now))
        return machine

    def upgrade(self, transaction_version: int) -> None:
        """Bring the cluster to another version of transactions."""
        self.image = MetadataImage(features={"transaction.version": transaction_version})
        self._carry_out_all(self.machine.metadata_changed(self.image, MetadataDelta(), self.now))

    def pass_ms(self, ms: int) -> None:
        """Let time pass, and do what is due."""
        self.now = Now(self.now.monotonic_ms + ms, self.now.wall_ms + ms)
        while (due_ms := self.machine.next_due_ms) is not None and due_ms <= self.now.monotonic_ms:
            self._carry_out_all(self.machine.tick(self.now))
            self.now = Now(self.now.monotonic_ms + 1, self.now.wall_ms)

    def spend_epochs(self, producer: ProducerStamp, epoch: ProducerEpoch) -> ProducerStamp:
        """Have the producer of id `a` at a later epoch, without as many transactions."""
        known = self.known()
        assert known is not None and known.producer == producer
        value = replace(known, producer_epoch=epoch).to_value()
        self.log.append(CoordinatorRecord(TransactionLogKey(transactional_id="a"), value))
        self.machine.replay(self.log[-1], None)
        return producer._replace(producer_epoch=epoch)

    def init(
        self, transactional_id: str = "a", timeout_ms: int = 60_000, expected: ProducerStamp | None = None
    ) -> ProducerOutcome:
        """Ask for a producer."""
        event = InitProducer(transactional_id, timeout_ms, expected)
        outcome = self._answer_to(self.machine.init_producer(event, 0, self.now))
        if outcome is NEEDS_PRODUCER_ID:
            event = event._replace(new_producer_id=self._new_producer_id())
            outcome = self._answer_to(self.machine.init_producer(event, 0, self.now))
        assert isinstance(outcome, ProducerOutcome)
        return outcome

    def given(self, transactional_id: str = "a", **options: Any) -> ProducerStamp:
        """Ask for a producer that is given."""
        outcome = self.init(transactional_id, **options)
        assert outcome.error_code is NONE and outcome.producer is not None, outcome
        return outcome.producer

    def add(
        self, producer: ProducerStamp, *partitions: TopicPartition, of: str = "a", version: int = 2
    ) -> ErrorCode:
        """Add partitions to a transaction."""
        event = AddPartitions(of, producer, frozenset(partitions), version)
        error_code = self._answer_to(self.machine.add_partitions(event, 0, self.now))
        assert isinstance(error_code, ErrorCode)
        return error_code

    def end(
        self, producer: ProducerStamp, committed: bool = True, of: str = "a", version: int = 2
    ) -> ProducerOutcome:
        """Commit or abort."""
        event = EndTransaction(of, producer, committed, version)
        outcome = self._answer_to(self.machine.end(event, 0, self.now))
        if outcome is NEEDS_PRODUCER_ID:
            event = event._replace(new_producer_id=self._new_producer_id())
            outcome = self._answer_to(self.machine.end(event, 0, self.now))
        assert isinstance(outcome, ProducerOutcome)
        return outcome

    def write_markers(self) -> list[SendMarkers]:
        """Say that all markers are written; return them."""
        written, self.markers = self.markers, []
        for markers in written:
            event = MarkersWritten(markers.transactional_id, markers.producer)
            self._carry_out(self.machine.markers_written(event, self.now))
        return written

    def known(self, transactional_id: str = "a") -> TransactionMetadata | None:
        """Return what the partition knows of an id."""
        known = self._carry_out(self.machine.describe(Describe(transactional_id), 0, self.now))
        assert known is None or isinstance(known, TransactionMetadata)
        return known

    def all_known(self) -> dict[str, TransactionMetadata]:
        """Return what the partition knows."""
        return dict(self._carry_out(self.machine.list_all(0, self.now)))

    def _new_producer_id(self) -> ProducerId:
        self.next_producer_id += 1
        return self.next_producer_id

    def _carry_out_all(self, decisions: Iterable[CoordinatorResult]) -> None:
        for decision in decisions:
            self._carry_out(decision)

    def _answer_to(self, decision: CoordinatorResult) -> Any:
        """Carry out what a request decided; return what it is answered.

        Raises:
            NotAppendedError: it needs a record, and there can be none.
        """
        response = self._carry_out(decision)
        if decision.records and not self.appends:
            raise NotAppendedError
        return response

    def _carry_out(self, decision: CoordinatorResult) -> Any:
        if decision.records and not self.appends:
            assert self.machine.append_failed(decision, ErrorCode.coordinator_not_available, self.now) is None
            return None
        for record in decision.records:
            self.log.append(record)
            self.machine.replay(record, None)
        for effect in decision.effects:
            if isinstance(effect, AbortWithNewProducerId):
                new = self._new_producer_id()
                self._carry_out(self.machine.abort_timed_out(effect.transactional_id, new, self.now))
            else:
                assert isinstance(effect, SendMarkers)
                self.markers.append(effect)
        return decision.replies[0].response if decision.replies else None

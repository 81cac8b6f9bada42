"""The coordinator of one partition in one leader epoch: from its machine's decisions to the log, and back.

`CoordinatorPartition` decides what is appended, answered and carried out, and when. The coordinator appends
to the replica's log, hands effects to their kind, and reports how far the log is committed.

A batch is written with acks=all: refused while fewer than min.insync.replicas are in sync, committed once the
high watermark has passed it.

Source: Kafka's CoordinatorPartitionWriter.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Protocol, TypeVarTuple

from sparklog.executor.coordinators.coordinator_kind import CarryOut, CoordinatorKind
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorRecord,
    CoordinatorResult,
    Now,
    ProducerStamp,
)
from sparklog.executor.coordinators.machine.coordinator_partition import (
    CoordinatorPartition,
    CoordinatorState,
    PendingRequest,
)
from sparklog.executor.coordinators.records.framing import encode_key, encode_value
from sparklog.executor.partitions.replica import Replica
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import LeaderEpoch, Offset

_Event = TypeVarTuple("_Event")


class CoordinatorOwner(Protocol):
    def now(self) -> Now: ...

    def obey_lease(self) -> None: ...

    def schedule(self, coordinator: "Coordinator") -> None:
        """Call the partition's `tick` in time, after a decision."""

    def reload(self, coordinator: "Coordinator") -> None:
        """Load a successor in a later turn of the loop; this coordinator has closed its partition."""


class Coordinator:
    """Port of the partition's `CoordinatorPartition`, and reader of its replica's progress."""

    is_follower: Final = False
    """The replica reports progress as to a consumer."""

    partition_type: ClassVar[type[CoordinatorPartition]] = CoordinatorPartition
    """The simulator has one that forgives its machine nothing."""

    def __init__(
        self,
        replica: Replica,
        kind: CoordinatorKind,
        effects: Mapping[type[Any], CarryOut],
        owner: CoordinatorOwner,
    ) -> None:
        """`effects` has a function for each type of effect that the kind's machines have."""
        assert replica.leader_epoch is not None, "it leads"
        self.replica: Final = replica
        self.leader_epoch: LeaderEpoch = replica.leader_epoch
        """Leader epoch of the partition: Kafka's coordinator epoch."""
        self.partition_index: Final = replica.topic_partition.partition
        self.partition: Final = self.partition_type(
            str(replica), kind.new_machine(self.partition_index), self, kind.write_timeout_ms
        )
        self._codec = kind.codec
        self._may_lead_on = kind.leads_on
        self._effects = effects
        self._owner = owner
        replica.progress.add_reader(self)

    def decide(self, decide: Callable[[Any, *_Event, Now], CoordinatorResult], *event: *_Event) -> None:
        """Let the machine decide about the outcome of an effect; a no-op once this is closed."""
        self._owner.obey_lease()
        now = self._owner.now()

        self.partition.decide(lambda machine: (decide(machine, *event, now),), now)
        self._owner.schedule(self)

    def complete_transaction(self, end: EndTransactionMarker, request: PendingRequest) -> None:
        now = self._owner.now()
        producer = ProducerStamp(end.producer_id, end.producer_epoch)
        append = partial(self.append_marker, end, now)
        self.partition.append_marker(producer, end.committed, append, request, now)
        self._owner.schedule(self)

    def leads_on(self, replica: Replica) -> bool:
        """Go on in the new leader epoch of `replica`, which led on; False if a successor has to load.

        If the replica has followed in between, or its lease was out, this is closed already. Source: Kafka's
        CoordinatorRuntime.scheduleLoadOperation.
        """
        if (
            not self._may_lead_on
            or replica is not self.replica
            or self.partition.state is not CoordinatorState.ACTIVE
        ):
            return False
        assert replica.leader_epoch == self.leader_epoch + 1, "it led on"
        self.leader_epoch = replica.leader_epoch
        self.wake()
        return True

    def close(self) -> None:
        self.replica.progress.remove_reader(self)
        self.partition.close()

    # --- the partition's port -------------------------------------------------------------------

    def append(self, decision: CoordinatorResult, now: Now) -> Offset:
        """Append a decision's records as one batch; return the offset after it.

        Raises:
            KafkaError, OSError: nothing was appended.
        """
        replica = self._leading()
        batch = self._batch(decision.records, decision.producer, now)
        limit_bytes = replica.settings.log.max_message_bytes
        if len(batch) > limit_bytes:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"{replica}: {len(batch)} bytes of records exceed max.message.bytes, which is {limit_bytes}",
            )
        header = read_header(batch)
        appended = replica.append(batch, header, now.monotonic_ms, now.wall_ms, None, decision.verification)
        return appended.last_offset + 1

    def append_marker(self, end: EndTransactionMarker, now: Now) -> Offset:
        """Append a transaction's marker; return the offset after it.

        Raises:
            KafkaError, OSError: nothing was appended.
        """
        appended = self._leading().append_marker(end, now.monotonic_ms, now.wall_ms, None)
        return appended.last_offset + 1

    def carry_out(self, effect: Any) -> None:
        self._effects[type(effect)](effect, self)

    def broken(self) -> None:
        self._owner.reload(self)

    def _leading(self) -> Replica:
        """Return the replica, if it accepts acks=all.

        Raises:
            KafkaError: it does not lead, or in another epoch, or with too few replicas in sync.
        """
        replica = self.replica
        replica.require_leader_in(self.leader_epoch)
        replica.require_min_isr()
        return replica

    def _batch(self, records: Sequence[CoordinatorRecord], producer: ProducerStamp | None, now: Now) -> bytes:
        try:
            encoded = [
                SimpleRecord(encode_key(key), None if value is None else encode_value(value), (), now.wall_ms)
                for key, value in records
            ]
        except Exception as error:
            # A value that does not fit its field is a mistake: none of the batch is written.
            raise KafkaError(ErrorCode.unknown_server_error, f"{self.replica}: {error!r}") from error
        return build_batch(
            encoded,
            producer_id=None if producer is None else producer.producer_id,
            producer_epoch=None if producer is None else producer.producer_epoch,
            codec=self._codec,
            transactional=producer is not None,
        )

    # --- the replica's reader -------------------------------------------------------------------

    def touch(self) -> None:
        """Do nothing: a coordinator does not depend on the log start offset."""

    def wake(self) -> None:
        """Report the new high watermark to the partition.

        A leader may commit as it begins another epoch, before its listeners are notified: then no reply of
        this epoch is sent.
        """
        if self.replica.leader_epoch == self.leader_epoch:
            self.partition.committed(self.replica.high_watermark)

    def unwatch(self) -> None:
        """Do nothing: the role listener reports a removed replica too."""

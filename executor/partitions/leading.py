"""Leading a partition with a log in one leader epoch, as the leader machine decides.

The machine decides what is committed and who is in sync; here clients' batches go into the log, what happens
goes to the machine, and what it says is done.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from sparklog.executor.partitions.machine.events import (
    AdvanceHighWatermark,
    Appended,
    FailWaitingAppends,
    IsrProposalAnswered,
    LeaderEffect,
    LeaderEvent,
    PartitionChanged,
    ProposeIsr,
    RegisteredBroker,
)
from sparklog.executor.partitions.machine.leader import PartitionLeader
from sparklog.executor.partitions.progress import PartitionProgress, WaitingAppend
from sparklog.executor.partitions.replica_host import ReplicaHost
from sparklog.executor.partitions.settings import PartitionSettings
from sparklog.node.metadata.registrations import PartitionRegistration
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.machine.verification import Verification
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.node.storage.results import AppendInfo
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import BatchHeader
from sparklog.protocol.types import BrokerId

logger = logging.getLogger(__name__)


class Leading:
    """A log, the machine that leads its partition, and the requests that wait for its commits."""

    __slots__ = ("_log", "_progress", "_propose_isr", "machine")

    def __init__(
        self,
        log: Log,
        progress: PartitionProgress,
        host: ReplicaHost[Any],
        propose_isr: Callable[[ProposeIsr], None],
        registration: PartitionRegistration,
        settings: PartitionSettings,
        brokers: Mapping[BrokerId, RegisteredBroker],
        now_ms: int,
    ) -> None:
        self._log = log
        self._progress = progress
        self._propose_isr = propose_isr
        self.machine = PartitionLeader(
            broker_id=host.broker_id,
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            replicas=registration.replicas,
            isr=frozenset(registration.isr),
            leader_epoch_start_offset=log.log_end_offset,
            high_watermark=progress.high_watermark,
            min_insync_replicas=settings.min_insync_replicas,
            replica_lag_time_max_ms=host.replica_lag_time_max_ms,
            brokers=brokers,
            own_broker_epoch=host.broker_epoch(),
            started_ms=now_ms,
            directories=registration.directories,
            adding_replicas=registration.adding_replicas,
        )

    def require_min_isr(self) -> None:
        """Check that acks=all can be promised.

        Raises:
            KafkaError: not_enough_replicas.
        """
        machine = self.machine
        if machine.is_under_min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self._log.topic_partition} has {len(machine.isr)} replicas in sync {sorted(machine.isr)}, "
                f"min.insync.replicas asks for {machine.effective_min_insync_replicas}",
            )

    def append(
        self,
        records: bytes | memoryview,
        header: BatchHeader,
        now_ms: int,
        wall_ms: int,
        waiting: WaitingAppend | None,
        verification: Verification | None = None,
        marker: EndTransactionMarker | None = None,
    ) -> AppendInfo:
        """Append a validated batch, or a marker's; see `Replica.append`."""
        machine = self.machine
        if waiting is not None:
            self.require_min_isr()
        appended = self._log.append_as_leader(
            records, header, machine.leader_epoch, wall_ms, verification, marker
        )
        end_offset = appended.last_offset + 1
        if not appended.duplicate:
            effects = machine.handle(Appended(end_offset, now_ms))
            self._progress.appended()
            if effects:
                self._carry_out(effects)
        if waiting is not None:
            self._progress.await_commit(end_offset, waiting)
        return appended

    def take_log(self, log: Log) -> None:
        """Replace the log by another one with the same content."""
        self._log = log

    def partition_changed(
        self, registration: PartitionRegistration, settings: PartitionSettings, now_ms: int
    ) -> None:
        """Pass a change of the partition's metadata in the same leader epoch to the machine."""
        self.handle(
            PartitionChanged(
                registration.partition_epoch,
                registration.replicas,
                frozenset(registration.isr),
                settings.min_insync_replicas,
                now_ms,
                registration.directories,
                registration.adding_replicas,
            )
        )

    def isr_proposal_answered(self, answer: IsrProposalAnswered) -> None:
        machine, name = self.machine, self._log.topic_partition
        before = machine.isr
        self.handle(answer)
        if answer.error_code != ErrorCode.none:
            logger.info("%s: the controller answered an ISR proposal with %s", name, answer.error_code.name)
        elif machine.isr != before:
            logger.info("%s: ISR %s, was %s", name, sorted(machine.isr), sorted(before))

    def handle(self, event: LeaderEvent) -> None:
        """Pass an event to the machine, and carry its effects out.

        Raises:
            KafkaError: what `PartitionLeader.handle` raises.
        """
        effects = self.machine.handle(event)
        if effects:
            self._carry_out(effects)

    def _carry_out(self, effects: list[LeaderEffect]) -> None:
        for effect in effects:
            match effect:
                case AdvanceHighWatermark():
                    self._progress.committed(effect.high_watermark)
                case ProposeIsr():
                    self._propose_isr(effect)
                case FailWaitingAppends():
                    self._progress.fail_appends(
                        KafkaError(
                            ErrorCode.not_enough_replicas_after_append,
                            f"{self._log.topic_partition}: replicas in sync fell to {sorted(effect.isr)}, "
                            f"min.insync.replicas asks for {effect.min_insync_replicas}",
                        )
                    )

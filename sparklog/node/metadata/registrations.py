"""Entries of the metadata image for a broker and for a partition.

Both are values: a record makes a new one. The records' `-1` is `None` here.

Source: Kafka's BrokerRegistration and PartitionRegistration; KIP-631, KIP-858, KIP-966.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self
from uuid import UUID

from sparklog.node.endpoints import Endpoint, SecurityProtocol
from sparklog.node.metadata.schemas import (
    NO_LEADER_CHANGE,
    UNASSIGNED_DIRECTORY,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    LeaderRecoveryState,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from sparklog.protocol.types import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    or_minus_one,
    unless_minus_one,
)


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """The levels of a feature that a broker supports, both inclusive."""

    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """One registration of one broker process; a restarted broker registers again.

    `broker_epoch` is the offset of the record that registered it, so it grows with every registration. A
    fenced broker leads no partition and is in no ISR.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    incarnation_id: UUID | None
    listeners: tuple[Endpoint, ...]
    features: tuple[tuple[str, FeatureRange], ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_directories: tuple[UUID, ...] = ()
    cordoned_log_directories: tuple[UUID, ...] | None = None

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> Self:
        """Return the registration of a record.

        Raises:
            ValueError: the record names a security protocol that does not exist.
        """
        return cls(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners=tuple(
                Endpoint(
                    endpoint.name, endpoint.host, endpoint.port, SecurityProtocol(endpoint.security_protocol)
                )
                for endpoint in record.end_points
            ),
            features=tuple(
                (feature.name, FeatureRange(feature.min_supported_version, feature.max_supported_version))
                for feature in record.features
            ),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_directories=record.log_dirs,
            cordoned_log_directories=record.cordoned_log_dirs,
        )

    def to_record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch,
            incarnation_id=self.incarnation_id,
            end_points=tuple(
                BrokerEndpoint(
                    name=endpoint.name,
                    host=endpoint.host,
                    port=endpoint.port,
                    security_protocol=endpoint.security_protocol,
                )
                for endpoint in self.listeners
            ),
            features=tuple(
                BrokerFeature(
                    name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level
                )
                for name, levels in self.features
            ),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=self.log_directories,
            cordoned_log_dirs=self.cordoned_log_directories,
        )

    def changed_by(self, record: BrokerRegistrationChangeRecord) -> "BrokerRegistration":
        """Apply a change record; the caller has compared broker epochs."""
        return replace(
            self,
            fenced=self.fenced if record.fenced == 0 else record.fenced > 0,
            in_controlled_shutdown=self.in_controlled_shutdown or record.in_controlled_shutdown != 0,
            log_directories=record.log_dirs or self.log_directories,
            cordoned_log_directories=(
                self.cordoned_log_directories
                if record.cordoned_log_dirs is None
                else record.cordoned_log_dirs
            ),
        )

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Return the broker's endpoint of a listener; `None` if it has no such listener."""
        for endpoint in self.listeners:
            if endpoint.name == listener_name:
                return endpoint
        return None

    def has_online_directory(self, directory_id: UUID | None) -> bool:
        """Whether a replica assigned to that directory can be served, as far as is known."""
        return directory_is_online(directory_id, self.log_directories)


def directory_is_online(directory_id: UUID | None, log_directories: Collection[UUID]) -> bool:
    """Return whether a replica assigned to a directory can be on a broker with `log_directories`.

    With at most the reserved ids (unassigned, migrating) the broker gets the benefit of the doubt.
    """
    if directory_id is None or not log_directories or directory_id in log_directories:
        return True
    return directory_id == UNASSIGNED_DIRECTORY


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """State of a partition as committed by the controller.

    `replicas` are in order of preference, and `directories` are parallel to them. `leader_epoch` grows with
    every election, `partition_epoch` with every change. `elr` are replicas outside the ISR that still have
    every committed record (KIP-966). During a reassignment (KIP-455), `adding_replicas` are the new ones
    among them, and `removing_replicas` those that it will remove.
    """

    replicas: tuple[BrokerId, ...]
    directories: tuple[UUID | None, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    removing_replicas: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED

    @classmethod
    def from_record(cls, record: PartitionRecord) -> Self:
        """Return the partition of a record.

        Raises:
            ValueError: `directories` and `replicas` differ in length, or the recovery state is unknown.
        """
        return cls(
            replicas=record.replicas,
            directories=_directories_for(record.replicas, record.directories),
            isr=record.isr,
            leader=unless_minus_one(record.leader),
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            removing_replicas=record.removing_replicas,
            adding_replicas=record.adding_replicas,
            elr=record.eligible_leader_replicas or (),
            last_known_elr=record.last_known_elr or (),
            leader_recovery_state=LeaderRecoveryState(record.leader_recovery_state),
        )

    def to_record(self, topic_id: UUID, partition: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=partition,
            topic_id=topic_id,
            replicas=self.replicas,
            isr=self.isr,
            removing_replicas=self.removing_replicas,
            adding_replicas=self.adding_replicas,
            leader=or_minus_one(self.leader),
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=self.directories,
            eligible_leader_replicas=self.elr or None,
            last_known_elr=self.last_known_elr or None,
        )

    def changed_by(self, record: PartitionChangeRecord) -> "PartitionRegistration":
        """Apply a change record: the next partition epoch, and with a `leader` the next leader epoch.

        Raises:
            ValueError: `directories` and `replicas` differ in length, or the recovery state is unknown.
        """
        replicas = self.replicas if record.replicas is None else record.replicas
        directories = self.directories
        if record.replicas is not None or record.directories is not None:
            directories = _directories_for(
                replicas, directories if record.directories is None else record.directories
            )
        elects = record.leader != NO_LEADER_CHANGE
        leader = self.leader
        if elects:
            leader = unless_minus_one(record.leader)
        return PartitionRegistration(
            replicas=replicas,
            directories=directories,
            isr=self.isr if record.isr is None else record.isr,
            leader=leader,
            leader_epoch=self.leader_epoch + elects,
            partition_epoch=self.partition_epoch + 1,
            removing_replicas=(
                self.removing_replicas if record.removing_replicas is None else record.removing_replicas
            ),
            adding_replicas=self.adding_replicas
            if record.adding_replicas is None
            else record.adding_replicas,
            elr=self.elr if record.eligible_leader_replicas is None else record.eligible_leader_replicas,
            last_known_elr=self.last_known_elr if record.last_known_elr is None else record.last_known_elr,
            leader_recovery_state=(
                self.leader_recovery_state
                if record.leader_recovery_state == -1
                else LeaderRecoveryState(record.leader_recovery_state)
            ),
        )

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def original_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas without those that a reassignment adds: its cancellation returns to these."""
        return tuple(each for each in self.replicas if each not in self.adding_replicas)

    @property
    def target_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas without those that a reassignment removes: its completion leaves these."""
        return tuple(each for each in self.replicas if each not in self.removing_replicas)

    @property
    def preferred_leader(self) -> BrokerId:
        """The first replica, which leads if it can."""
        return self.replicas[0]

    @property
    def eligible(self) -> tuple[BrokerId, ...]:
        """The replicas from which a leader is elected cleanly."""
        return self.isr or self.elr

    def directory_of(self, broker_id: BrokerId) -> UUID | None:
        """Return the directory of the broker's replica; `None` if unknown.

        Raises:
            ValueError: the broker has no replica of the partition.
        """
        return self.directories[self.replicas.index(broker_id)]


def _directories_for(
    replicas: Sequence[BrokerId], directories: Sequence[UUID | None]
) -> tuple[UUID | None, ...]:
    """Return one directory for each replica; none, or only zero ids, mean that all are unknown."""
    if not any(directories):
        return (None,) * len(replicas)
    if len(directories) != len(replicas):
        raise ValueError(f"{len(directories)} directories for the {len(replicas)} replicas {list(replicas)}")
    return tuple(directories)

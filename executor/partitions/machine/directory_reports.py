"""The directories of this broker's replicas, and the replicas that the controller must not count.

Pure. KIP-858's AssignReplicasToDirs says both: a replica lies in a directory, or, in the reserved directory
LOST, in none. A replica that lacks something it had acknowledged, or cannot be read, is said to be lost. The
controller then takes it out of the ISR and of the eligible leader replicas, so that it counts again only when
it has caught up; and once the metadata says that it is out, it is said to lie where it lies. One that is out
already, because its machine stopped too, is not said to be lost: what is left of it may be the longest log
there is. A replica in which damage was found while it served is reported as DAMAGED: as LOST, but the
controller refuses that for the last replica that may be elected cleanly.

Order for the caller: `opened` or `lost` when that is known; `image_changed` for each partition of this broker
that an image changes; send what `assign` is called with. Nothing damaged is at stake once `undeclared` is
zero; until then the broker does not ask to be unfenced.
"""

from collections.abc import Callable, Collection
from uuid import UUID

from sparklog.node.metadata.registrations import PartitionRegistration
from sparklog.node.metadata.schemas import DAMAGED_DIRECTORY, LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from sparklog.protocol.types import BrokerId, TopicIdPartition


def directory_to_report(
    registration: PartitionRegistration,
    broker_id: BrokerId,
    lies_in: UUID | None,
    own_directories: Collection[UUID],
    *,
    damaged: bool,
) -> UUID | None:
    """Return the directory to report to the controller; None if no report is due.

    `lies_in` is None for a replica that cannot be opened.
    """
    assigned, counts = registration.directory_of(broker_id), _counts(registration, broker_id)
    if lies_in is None or (damaged and _is_in_sync(registration, broker_id)):
        return None if assigned == LOST_DIRECTORY else LOST_DIRECTORY
    if assigned == lies_in:
        return None
    if assigned is None or assigned == UNASSIGNED_DIRECTORY:
        # A broker's only directory needs no report: the controller has it from the registration.
        return lies_in if len(own_directories) > 1 else None
    # The controller elects no leader in a directory that this broker no longer has: while the replica
    # still counts, a log in another directory must not pass for it.
    return lies_in if assigned in own_directories or not counts else None


def _is_in_sync(registration: PartitionRegistration, broker_id: BrokerId) -> bool:
    """Whether the metadata takes the replica to have all committed records."""
    return broker_id in (*registration.isr, *registration.elr)


def _counts(registration: PartitionRegistration, broker_id: BrokerId) -> bool:
    """Whether the replica may lead with its log, complete or not."""
    return _is_in_sync(registration, broker_id) or broker_id in registration.last_known_elr


class DirectoryReports:
    def __init__(self, broker_id: BrokerId, assign: Callable[[TopicIdPartition, UUID], None]) -> None:
        self._broker_id = broker_id
        self._assign = assign
        self._lies_in: dict[UUID, dict[int, UUID | None]] = {}
        """By topic id and partition; None for one that cannot be opened."""
        self._moves_to: dict[TopicIdPartition, UUID] = {}
        """Where replicas will lie that are about to lie in another directory."""
        self._damaged: dict[TopicIdPartition, UUID] = {}
        """The reserved directory as which to report them."""
        self._undeclared: set[TopicIdPartition] = set()
        self.own_directories: tuple[UUID, ...] = ()
        """The directories of this broker that are online."""

    @property
    def undeclared(self) -> int:
        """The number of incomplete replicas that the controller may still take for complete."""
        return len(self._undeclared)

    def opened(self, key: TopicIdPartition, directory_id: UUID, *, damaged: bool) -> None:
        """Report the replica's directory; `damaged`: it lacks records that it had."""
        self._lies_in.setdefault(key.topic_id, {})[key.partition] = directory_id
        self._moves_to.pop(key, None)
        if damaged:
            self.damaged(key)

    def moves_to(self, key: TopicIdPartition, directory_id: UUID) -> None:
        """Report the directory to which the replica moves once the metadata has it.

        That is reported regardless of the present metadata: another change may be on its way.
        """
        self._moves_to[key] = directory_id
        if key not in self._damaged:
            self._assign(key, directory_id)

    def stays(self, key: TopicIdPartition) -> None:
        self._moves_to.pop(key, None)

    def damaged(self, key: TopicIdPartition) -> None:
        self._damaged[key] = LOST_DIRECTORY
        self._undeclared.add(key)

    def found_damage(self, key: TopicIdPartition) -> None:
        """Report that the replica has damaged records, which it keeps if it is the last one."""
        self._damaged.setdefault(key, DAMAGED_DIRECTORY)
        self._undeclared.add(key)

    def kept_damage(self, key: TopicIdPartition) -> None:
        """Withdraw `found_damage`: the replica is the last one, and counts with the records it has."""
        if self._damaged.get(key) == DAMAGED_DIRECTORY:
            del self._damaged[key]
            self._undeclared.discard(key)

    def lost(self, key: TopicIdPartition) -> None:
        """Report that the replica cannot be opened, or its files can no longer be used."""
        self._lies_in.setdefault(key.topic_id, {})[key.partition] = None
        self._moves_to.pop(key, None)
        self._undeclared.add(key)

    def forget(self, key: TopicIdPartition) -> None:
        of_topic = self._lies_in.get(key.topic_id, {})
        of_topic.pop(key.partition, None)
        if not of_topic:
            self._lies_in.pop(key.topic_id, None)
        self._moves_to.pop(key, None)
        self._damaged.pop(key, None)
        self._undeclared.discard(key)

    def forget_topic(self, topic_id: UUID) -> None:
        for partition in tuple(self._lies_in.get(topic_id, ())):
            self.forget(TopicIdPartition(topic_id, partition))

    def image_changed(self, key: TopicIdPartition, registration: PartitionRegistration) -> None:
        """Compare the metadata of a partition with its replica; report the difference."""
        of_topic = self._lies_in.get(key.topic_id, {})
        if key.partition not in of_topic:
            return
        broker_id, lies_in = self._broker_id, of_topic[key.partition]
        if registration.replicas == (broker_id,) and lies_in is not None:
            # No other replica has more: what is missing is lost, and to wait for it brings nothing.
            self._damaged.pop(key, None)
            self._undeclared.discard(key)
        if registration.directory_of(broker_id) == LOST_DIRECTORY:
            self._undeclared.discard(key)
        if not _is_in_sync(registration, broker_id):
            # Among those whose logs may have lost something it counts for what it has.
            self._damaged.pop(key, None)
        if not _counts(registration, broker_id) or (lies_in is not None and key not in self._damaged):
            self._undeclared.discard(key)
        directory_id = directory_to_report(
            registration,
            broker_id,
            self._moves_to.get(key, lies_in),
            self.own_directories,
            damaged=key in self._damaged,
        )
        if directory_id == LOST_DIRECTORY and lies_in is not None:
            directory_id = self._damaged[key]
        if directory_id is not None:
            self._assign(key, directory_id)

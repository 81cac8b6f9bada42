"""In which directories this broker's replicas lie, and which of them the controller must not count.

Pure. KIP-858's AssignReplicasToDirs says both: a replica lies in a directory, or, in the reserved directory
LOST, in none. A replica that lacks something it had acknowledged, or cannot be read, is said to be lost. The
controller then takes it out of the ISR and of the eligible leader replicas, so that it counts again only when
it has caught up; and once the metadata says that it is out, it is said to lie where it lies. One that is out
already, because its machine stopped too, is not said to be lost: what is left of it may be the longest log
there is.

Order for the caller: `opened` or `lost` when that is known; `image_changed` for each partition of this broker
that an image changes; send what `assign` is called with. Nothing damaged is at stake once `undeclared` is
zero; until then the broker does not ask to be unfenced.
"""

from collections.abc import Callable, Collection
from uuid import UUID

from sparklog.node.metadata.registrations import PartitionRegistration
from sparklog.node.metadata.schemas import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from sparklog.protocol.types import BrokerId, TopicIdPartition


def directory_to_report(
    registration: PartitionRegistration,
    broker_id: BrokerId,
    lies_in: UUID | None,
    own_directories: Collection[UUID],
    *,
    damaged: bool,
) -> UUID | None:
    """Return the directory to tell the controller, None if it knows all that it may know.

    `lies_in` is None for a replica that cannot be opened.
    """
    told, counts = registration.directory_of(broker_id), _counts(registration, broker_id)
    if lies_in is None or (damaged and _is_in_sync(registration, broker_id)):
        return None if told == LOST_DIRECTORY else LOST_DIRECTORY
    if told == lies_in:
        return None
    if told is None or told == UNASSIGNED_DIRECTORY:
        # A broker's only directory needs no telling: the controller has it from the registration.
        return lies_in if len(own_directories) > 1 else None
    # Told of a directory that this broker no longer has, the controller lets nobody lead from there: while
    # the replica still counts, what lies elsewhere must not pass for it.
    return lies_in if told in own_directories or not counts else None


def _is_in_sync(registration: PartitionRegistration, broker_id: BrokerId) -> bool:
    """Whether the replica is taken to have everything that is committed."""
    return broker_id in (*registration.isr, *registration.elr)


def _counts(registration: PartitionRegistration, broker_id: BrokerId) -> bool:
    """Whether the replica may lead for what it has, all of it or not."""
    return _is_in_sync(registration, broker_id) or broker_id in registration.last_known_elr


class DirectoryReports:
    """What the controller has to be told about the replicas of one broker."""

    def __init__(self, broker_id: BrokerId, assign: Callable[[TopicIdPartition, UUID], None]) -> None:
        self._broker_id = broker_id
        self._assign = assign
        self._lies_in: dict[UUID, dict[int, UUID | None]] = {}
        """By topic id and partition; None for one that cannot be opened."""
        self._moves_to: dict[TopicIdPartition, UUID] = {}
        """Where replicas will lie that are about to lie in another directory."""
        self._damaged: set[TopicIdPartition] = set()
        self._undeclared: set[TopicIdPartition] = set()
        self.own_directories: tuple[UUID, ...] = ()
        """The directories of this broker that are online."""

    @property
    def undeclared(self) -> int:
        """How many replicas the controller may still take for whole that are not."""
        return len(self._undeclared)

    def opened(self, key: TopicIdPartition, directory_id: UUID, *, damaged: bool) -> None:
        """The replica lies in that directory; `damaged`: it lacks something it had."""
        self._lies_in.setdefault(key.topic_id, {})[key.partition] = directory_id
        self._moves_to.pop(key, None)
        if damaged:
            self.damaged(key)

    def moves_to(self, key: TopicIdPartition, directory_id: UUID) -> None:
        """It is going to lie in that directory, once the metadata says so.

        That is told whatever the metadata says now: another word may be on its way.
        """
        self._moves_to[key] = directory_id
        if key not in self._damaged:
            self._assign(key, directory_id)

    def stays(self, key: TopicIdPartition) -> None:
        """It goes on to lie where it does."""
        self._moves_to.pop(key, None)

    def damaged(self, key: TopicIdPartition) -> None:
        """The replica lacks something it had, or has it no longer as it was."""
        self._damaged.add(key)
        self._undeclared.add(key)

    def lost(self, key: TopicIdPartition) -> None:
        """The replica cannot be opened, or its files can no longer be used."""
        self._lies_in.setdefault(key.topic_id, {})[key.partition] = None
        self._moves_to.pop(key, None)
        self._undeclared.add(key)

    def forget(self, key: TopicIdPartition) -> None:
        """The partition is no longer this broker's."""
        of_topic = self._lies_in.get(key.topic_id, {})
        of_topic.pop(key.partition, None)
        if not of_topic:
            self._lies_in.pop(key.topic_id, None)
        self._moves_to.pop(key, None)
        self._damaged.discard(key)
        self._undeclared.discard(key)

    def forget_topic(self, topic_id: UUID) -> None:
        """The topic is gone."""
        for partition in tuple(self._lies_in.get(topic_id, ())):
            self.forget(TopicIdPartition(topic_id, partition))

    def image_changed(self, key: TopicIdPartition, registration: PartitionRegistration) -> None:
        """Compare what the metadata says of a partition with what is so; have the difference told."""
        of_topic = self._lies_in.get(key.topic_id, {})
        if key.partition not in of_topic:
            return
        broker_id, lies_in = self._broker_id, of_topic[key.partition]
        if registration.replicas == (broker_id,) and lies_in is not None:
            # No other replica has more: what is missing is lost, and to wait for it brings nothing.
            self._damaged.discard(key)
            self._undeclared.discard(key)
        if registration.directory_of(broker_id) == LOST_DIRECTORY:
            self._undeclared.discard(key)
        if not _is_in_sync(registration, broker_id):
            # Among those whose logs may have lost something it counts for what it has.
            self._damaged.discard(key)
        if not _counts(registration, broker_id) or (lies_in is not None and key not in self._damaged):
            self._undeclared.discard(key)
        directory_id = directory_to_report(
            registration,
            broker_id,
            self._moves_to.get(key, lies_in),
            self.own_directories,
            damaged=key in self._damaged,
        )
        if directory_id is not None:
            self._assign(key, directory_id)

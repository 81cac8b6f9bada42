"""The partitions that a broker's new state concerns, but that could not all be changed at once.

A broker that is fenced, or shuts down, leaves every ISR, and those of a directory that failed; one that is
unfenced may lead partitions without a leader. That may be ten thousand partitions, and one decision about all
of them would block the controller's loop, and with it every broker's lease. So a decision changes some
hundreds of them, in the batch that changes the broker. The others are noted here when that batch is replayed,
and are changed in the next turns of the loop.

The rules:

- The notes follow from images alone: a driver that takes over notes the partitions that the one before it
  left to do.
- While a broker is in an ISR that it has to leave (`ClusterState.is_leaving`) it is not unfenced, and cannot
  register again: it would come back into the ISR by never having left it.
- No decision counts on a replica in a directory that has failed: the batch that begins with its partitions
  has the broker's registration without the directory, which determines the replicas in sync
  (`ClusterState.is_in_sync`).

Pure. Order for the caller: `changed` for each image in order, after its index; `take` until nothing is left.
"""

from collections.abc import Iterable, Iterator
from itertools import filterfalse, islice

from sparklog.driver.controller.machine.topic_index import TopicIndex
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.features import ELIGIBLE_LEADER_REPLICAS_FEATURE
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import BrokerId, TopicIdPartition


class UnsettledPartitions:
    """The noted partitions, in the order of their notes; those for preferred leaders come last."""

    def __init__(self, image: MetadataImage, index: TopicIndex) -> None:
        """Note all that `image` leaves to do."""
        self._noted: dict[TopicIdPartition, None] = dict.fromkeys(index.leaderless)
        self._to_balance: dict[TopicIdPartition, None] = {}
        """Partitions with a leader that need their preferred one. None of them is in `_noted`."""
        for broker_id in image.brokers:
            if is_active(image, broker_id):
                self.note(in_failed_directories(image, index, broker_id))
            else:
                self.note(to_leave(image, index, broker_id))

    def __len__(self) -> int:
        return len(self._noted) + len(self._to_balance)

    def changed(
        self, before: MetadataImage, after: MetadataImage, delta: MetadataDelta, index: TopicIndex
    ) -> None:
        """Note the changes from one image to the next; `index` is the later one's."""
        for broker_id in sorted(delta.changed_brokers):
            if is_active(before, broker_id) and not is_active(after, broker_id):
                self.note(to_leave(after, index, broker_id))
            elif is_active(after, broker_id) and not is_active(before, broker_id):
                self.note(index.leaderless)
            elif is_active(after, broker_id) and _loses_directories(before, after, broker_id):
                self.note(in_failed_directories(after, index, broker_id))

    def note(self, keys: Iterable[TopicIdPartition]) -> None:
        for key in keys:
            self._noted[key] = None
            self._to_balance.pop(key, None)

    def note_preferred(self, keys: Iterable[TopicIdPartition]) -> None:
        self._to_balance.update(dict.fromkeys(key for key in keys if key not in self._noted))

    def take(self, limit: int) -> dict[TopicIdPartition, bool]:
        """Remove the next partitions; return them, and whether each needs its preferred leader."""
        taken = dict.fromkeys(islice(self._noted, limit), False)
        taken |= dict.fromkeys(islice(self._to_balance, limit - len(taken)), True)
        for key, is_to_balance in taken.items():
            del (self._to_balance if is_to_balance else self._noted)[key]
        return taken


def is_active(image: MetadataImage, broker_id: BrokerId) -> bool:
    """Whether the broker may lead and be in sync: registered, unfenced, not shutting down."""
    registration = image.brokers.get(broker_id)
    return registration is not None and not (registration.fenced or registration.in_controlled_shutdown)


def in_failed_directories(
    image: MetadataImage, index: TopicIndex, broker_id: BrokerId
) -> Iterator[TopicIdPartition]:
    """Yield the partitions whose ISR a broker is still in, though their directory has failed there."""
    registration, topics = image.brokers[broker_id], image.topics.by_id
    for key in index.in_sync[broker_id]:
        partition = topics[key.topic_id].partitions[key.partition]
        if not registration.has_online_directory(partition.directory_of(broker_id)):
            yield key


def _loses_directories(before: MetadataImage, after: MetadataImage, broker_id: BrokerId) -> bool:
    had, has = (image.brokers[broker_id].log_directories for image in (before, after))
    return not set(had) <= set(has)


def to_leave(image: MetadataImage, index: TopicIndex, broker_id: BrokerId) -> Iterable[TopicIdPartition]:
    """Return the partitions whose ISR the broker leaves when it is active no more.

    Without eligible leader replicas (KIP-966) the last one in sync stays in the ISR, without leading.
    """
    in_sync = index.in_sync[broker_id]
    if image.features.get(ELIGIBLE_LEADER_REPLICAS_FEATURE, 0) > 0:
        return in_sync
    topics = image.topics.by_id

    def is_waited_for(key: TopicIdPartition) -> bool:
        partition = topics[key.topic_id].partitions[key.partition]
        return partition.leader is None and partition.isr == (broker_id,)

    return filterfalse(is_waited_for, in_sync)

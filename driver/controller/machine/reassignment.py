"""A partition on its way to other replicas: what it goes through, and what calling it off means (KIP-455).

It begins with the replicas of its target beside those that are there already (`reassigned`). Those that are
new copy the log and join the ISR like any other replica. When the ISR has all of the target, the others leave
(`Assignment.is_complete`, `completed`). Called off, the new ones leave instead (`cancelled`).

The rules this module keeps:

- What a partition had before its first reassignment is what any later one is called off to. A reassignment
  that takes the place of another does not make replicas original that were only being added.
- A replica that was being added, and that the new target does not have, leaves at once, unless it is counted
  on (in sync, or eligible to lead): then it is both added and removed, and leaves with the others at the end.

Source: KIP-455, and Kafka's PartitionReassignmentReplicas and PartitionReassignmentRevert. Kafka's controller
takes for original whatever is there when a reassignment takes the place of another, so that to cancel the
second leaves behind what the first had added.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Self
from uuid import UUID

from sparklog.node.metadata.image import PartitionRegistration
from sparklog.protocol.types import BrokerId


class Assignment(NamedTuple):
    """Where a partition's replicas are, and where they are going."""

    replicas: tuple[BrokerId, ...]
    """The target first, in its order."""
    directories: tuple[UUID | None, ...]
    """Parallel to `replicas`."""
    adding: tuple[BrokerId, ...]
    """Those that are not original."""
    removing: tuple[BrokerId, ...]
    """Those that are not of the target."""

    @classmethod
    def of(cls, partition: PartitionRegistration) -> Self:
        """Return what the partition has."""
        return cls(
            partition.replicas, partition.directories, partition.adding_replicas, partition.removing_replicas
        )

    def is_complete(self, isr: Collection[BrokerId]) -> bool:
        """Whether the partition is being reassigned, and with this ISR needs what it removes no more."""
        return bool(self.adding or self.removing) and all(
            broker_id in isr for broker_id in self.replicas if broker_id not in self.removing
        )

    def completed(self) -> "Assignment":
        """Return what is left at the end: the target."""
        return self._only([broker_id for broker_id in self.replicas if broker_id not in self.removing])

    def changes(self, partition: PartitionRegistration) -> dict[str, Any]:
        """Return what is to be another in the partition: fields of it and of a PartitionChangeRecord."""
        fields = {
            "replicas": (self.replicas, partition.replicas),
            "directories": (self.directories, partition.directories),
            "adding_replicas": (self.adding, partition.adding_replicas),
            "removing_replicas": (self.removing, partition.removing_replicas),
        }
        return {name: wanted for name, (wanted, present) in fields.items() if wanted != present}

    def _only(self, replicas: Sequence[BrokerId]) -> "Assignment":
        """Return these of the replicas, and no reassignment."""
        directory_of = dict(zip(self.replicas, self.directories, strict=True))
        return Assignment(tuple(replicas), tuple(directory_of[each] for each in replicas), (), ())


def reassigned(
    partition: PartitionRegistration,
    target: Sequence[BrokerId],
    default_directory: Callable[[BrokerId], UUID | None],
) -> Assignment:
    """Return what the partition has from now on, on its way to `target`.

    It may be complete as it is. `default_directory` says where a replica that is new will lie.
    """
    original = partition.original_replicas
    counted_on = {*original, *partition.isr, *partition.elr, *partition.last_known_elr}
    staying = [each for each in partition.replicas if each not in target and each in counted_on]
    replicas = (*target, *staying)
    return Assignment(
        replicas,
        tuple(
            partition.directory_of(each) if each in partition.replicas else default_directory(each)
            for each in replicas
        ),
        adding=tuple(each for each in replicas if each not in original),
        removing=tuple(staying),
    )


def cancelled(partition: PartitionRegistration) -> Assignment:
    """Return what the partition had before it was reassigned.

    In the order of preference that it has now: Kafka keeps no other.
    """
    return Assignment.of(partition)._only(partition.original_replicas)

"""A partition's reassignment to other replicas: its steps, and its cancellation (KIP-455).

It begins with the replicas of its target beside the present ones (`reassigned`). New replicas copy the log
and join the ISR like any other replica. When the ISR has all of the target, the others leave
(`Assignment.is_complete`, `completed`). After a cancellation the new ones leave instead (`cancelled`).

The rules:

- The replicas from before a partition's first reassignment are those that a cancellation of any later one
  restores. A reassignment that replaces another does not make replicas original that were only being added.
- A replica that was being added, and that the new target does not have, leaves at once, unless it is counted
  on (in sync, or eligible to lead): then it is both added and removed, and leaves with the others at the end.

Source: KIP-455, and Kafka's PartitionReassignmentReplicas and PartitionReassignmentRevert. Kafka's controller
takes the present replicas for original when a reassignment replaces another, so that the cancellation of the
second leaves behind what the first had added.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Self
from uuid import UUID

from sparklog.node.metadata.image import PartitionRegistration
from sparklog.protocol.types import BrokerId


class Assignment(NamedTuple):
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
        return cls(
            partition.replicas, partition.directories, partition.adding_replicas, partition.removing_replicas
        )

    def is_complete(self, isr: Collection[BrokerId]) -> bool:
        """Whether a reassignment is under way that this ISR completes: it has all of the target."""
        return bool(self.adding or self.removing) and all(
            broker_id in isr for broker_id in self.replicas if broker_id not in self.removing
        )

    def completed(self) -> "Assignment":
        return self._only([broker_id for broker_id in self.replicas if broker_id not in self.removing])

    def changes(self, partition: PartitionRegistration) -> dict[str, Any]:
        """Return the changed fields of the partition, also those of a PartitionChangeRecord."""
        fields = {
            "replicas": (self.replicas, partition.replicas),
            "directories": (self.directories, partition.directories),
            "adding_replicas": (self.adding, partition.adding_replicas),
            "removing_replicas": (self.removing, partition.removing_replicas),
        }
        return {name: wanted for name, (wanted, present) in fields.items() if wanted != present}

    def _only(self, replicas: Sequence[BrokerId]) -> "Assignment":
        """Return the assignment with these of the replicas, and no reassignment."""
        directory_of = dict(zip(self.replicas, self.directories, strict=True))
        return Assignment(tuple(replicas), tuple(directory_of[each] for each in replicas), (), ())


def reassigned(
    partition: PartitionRegistration,
    target: Sequence[BrokerId],
    default_directory: Callable[[BrokerId], UUID | None],
) -> Assignment:
    """Return the partition's assignment on its way to `target`.

    It may be complete already. `default_directory` returns the directory of a new replica.
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
    """Return the assignment from before the reassignment.

    In the present order of preference: Kafka keeps no other.
    """
    return Assignment.of(partition)._only(partition.original_replicas)

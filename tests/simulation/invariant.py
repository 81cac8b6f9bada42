"""What an invariant may want to know: everything that happens, at the end of the very step in which it does.

A check raises `Violation`; it costs what has changed, not what there is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from sparklog.driver.controller.quorum.machine.candidate import BecomeLeader
from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.transactions.machine.events import SendMarkers
from sparklog.executor.metadata.machine.quorum_voter import QuorumAnswer, VoteRequest
from sparklog.executor.partitions.replica import Replica
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration
from sparklog.node.metadata_log.machine.voter_set import VoterKey, VoterSet
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import LeaderEpoch, Offset, TopicIdPartition
from tests.simulation.disk import MemoryLog
from tests.simulation.ledger import Ledger, Promise

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess
    from tests.simulation.controller_process import ControllerProcess
    from tests.simulation.member import Held, Member
    from tests.simulation.observer import Observer


class Violation(Exception):  # noqa: N818  (what it is, not an error of the simulator)
    """An invariant does not hold."""

    def __init__(self, invariant: str, message: str, key: TopicIdPartition | None = None) -> None:
        super().__init__(invariant, message, key)
        self.invariant = invariant
        self.message = message
        self.key = key

    def __str__(self) -> str:
        return f"{self.invariant}: {self.message}"


class Invariant:
    """Something that must always be true."""

    alone: ClassVar[str | None] = None
    """The only one that may fail, by name; None: all."""

    def __init__(self, world: "Observer") -> None:
        self.world = world

    def fail(self, message: str, key: TopicIdPartition | None = None) -> None:
        """Report that it is not, also where what production calls gets over whatever is raised."""
        if Invariant.alone not in (None, type(self).__name__):
            return
        violation = Violation(type(self).__name__, message, key)
        self.world.violations.append(violation)
        raise violation

    def leader_began(
        self, broker: "BrokerProcess", replica: Replica, registration: PartitionRegistration, ledger: Ledger
    ) -> None:
        """A broker leads a partition, in this leader epoch."""

    def replica_changed(self, broker: "BrokerProcess", replica: Replica, ledger: Ledger) -> None:
        """A replica's log or high watermark is another one than before."""

    def committed(self, ledger: Ledger, batches: list[bytes]) -> None:
        """A leader's high watermark passed these batches for the first time."""

    def partition_decided(
        self, key: TopicIdPartition, before: PartitionRegistration | None, after: PartitionRegistration
    ) -> None:
        """The controller changed a partition."""

    def image_replayed(self, broker: "BrokerProcess", image: MetadataImage) -> None:
        """A broker has replayed the metadata log so far."""

    def acknowledging(
        self, broker: "BrokerProcess", replica: Replica, end_offset: Offset, *, all_acks: bool
    ) -> None:
        """A broker tells a producer that everything below `end_offset` is as safe as it asked for."""

    def serving(self, broker: "BrokerProcess", key: TopicIdPartition) -> None:
        """A broker gives a consumer records."""

    def promised(self, promise: Promise, ledger: Ledger) -> None:
        """A producer was told that its batch is safe."""

    def consumed(self, offset: Offset, records: bytes, leader_epoch: LeaderEpoch, ledger: Ledger) -> None:
        """A consumer was given a batch."""

    def out_of_range(self, offset: Offset, leader_epoch: LeaderEpoch, ledger: Ledger) -> None:
        """A consumer was told that there is nothing at the offset up to which it had read."""

    def coordinated(
        self,
        broker: "BrokerProcess",
        replica: Replica,
        leader_epoch: LeaderEpoch,
        asked: Any,
        response: Any,
        ledger: Ledger,
    ) -> None:
        """A coordinator of a leader epoch answers what it was asked (a `coordinating.Asked`)."""

    def markers_sent(
        self, broker: "BrokerProcess", leader_epoch: LeaderEpoch, markers: SendMarkers, ledger: Ledger
    ) -> None:
        """A coordinator has decided how a transaction ends, and says so to its partitions."""

    def producer_given(
        self, transactional_id: str, producer: ProducerStamp, asker: str, *, is_new: bool
    ) -> None:
        """A producer was told its id and epoch; `is_new` if all before it are fenced."""

    def read_committed(
        self, offset: Offset, next_offset: Offset, shown: list[Offset], ledger: Ledger
    ) -> None:
        """A reader of committed records has read up to an offset, and seen the batches at some."""

    def offset_read(
        self, group_id: str, offset: Offset | None, possible: set[Offset | None], key: TopicIdPartition
    ) -> None:
        """A client was told what its group has committed; `possible` is what it may be told."""

    def held_twice(
        self, group_id: str, held: "Held", members: "tuple[Member, Member]", key: TopicIdPartition
    ) -> None:
        """Two members of a group hold the same partition, as they see it."""

    def member_refused(
        self, group_id: str, identity: str, error_code: ErrorCode, key: TopicIdPartition
    ) -> None:
        """A member whose session lasts by its own clock is told that it is none."""

    def rebalanced(self, group_id: str, before: set[int] | None, after: set[int]) -> None:
        """A group is in another generation or epoch though nothing has happened to it."""

    def epoch_fell(self, group_id: str, before: int, after: int, key: TopicIdPartition) -> None:
        """A member is told a lower epoch than before."""

    def snapshot_loaded(self, broker: "BrokerProcess", image: MetadataImage) -> None:
        """A broker begins with a snapshot."""

    def voted(self, key: VoterKey, request: VoteRequest, answer: QuorumAnswer) -> None:
        """A voter is about to answer a candidate."""

    def driver_won(self, driver: "ControllerProcess", lead: BecomeLeader) -> None:
        """A driver has won an election, and is about to lead."""

    def metadata_committed(self, driver: "ControllerProcess", voters: VoterSet, end_offset: Offset) -> None:
        """A driver takes everything below `end_offset` for committed."""

    def controller_rests(self, image: MetadataImage) -> None:
        """A driver has nothing left to decide until something happens, on top of this image."""

    def settled(self, ledger: Ledger, logs: list[MemoryLog]) -> None:
        """All faults are over, and everybody had the time to catch up."""


@contextmanager
def alone(invariant: str | None) -> Iterator[None]:
    """Have no other invariant fail while inside: what two of them find, one finds first."""
    Invariant.alone = invariant
    try:
        yield
    finally:
        Invariant.alone = None


def ends_reassignment(before: PartitionRegistration, after: PartitionRegistration) -> bool:
    """Whether the leader may have come into the ISR by the very decision that elects it."""
    is_over = before.is_reassigning and not after.is_reassigning
    return is_over and set(after.replicas) == set(before.target_replicas) == set(after.isr)

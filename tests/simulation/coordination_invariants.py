"""What must hold of coordinators; see `tests.simulation.invariants`."""

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sparklog.executor.coordinators.groups.machine.offsets import OffsetCommit, OffsetFetch
from sparklog.executor.coordinators.records.consumer_offsets import OffsetCommitKey
from sparklog.executor.coordinators.records.framing import CONSUMER_OFFSETS_RECORDS
from sparklog.executor.coordinators.transactions.machine.events import SendMarkers
from sparklog.executor.partitions.replica import Replica
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.types import LeaderEpoch, Offset, TopicIdPartition
from tests.key_values import read_keys_and_values
from tests.simulation.group_events import OffsetDelete
from tests.simulation.invariant import Invariant
from tests.simulation.ledger import Ledger

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess
    from tests.simulation.observer import Observer

_OffsetOf = tuple[str, str, int]


class OffsetHistory:
    """What has been committed for each partition of each group, and up to where in the log that holds."""

    def __init__(self) -> None:
        self._count = self._losses = 0
        self._ends: defaultdict[_OffsetOf, list[Offset]] = defaultdict(list)
        self._offsets: defaultdict[_OffsetOf, list[Offset | None]] = defaultdict(list)

    def follow(self, ledger: Ledger) -> None:
        """Take in what is committed by now."""
        if ledger.losses != self._losses:
            self.__init__()  # type: ignore[misc]
            self._losses = ledger.losses
        for batch in ledger.batches[self._count :]:
            header = read_header(batch)
            for key, value in read_keys_and_values(batch, header, 0):
                of, committed = CONSUMER_OFFSETS_RECORDS.decode(key, value)
                if isinstance(of, OffsetCommitKey):
                    names = (of.group, of.topic, of.partition)
                    self._ends[names].append(header.next_offset)
                    self._offsets[names].append(None if committed is None else committed.offset)
        self._count = len(ledger.batches)

    def offset_at(self, of: _OffsetOf, end_offset: Offset) -> Offset | None:
        """Return what was committed when the log ended there."""
        number = bisect_right(self._ends[of], end_offset)
        return self._offsets[of][number - 1] if number else None


class OffsetsAreAsCommitted(Invariant):
    """A coordinator says of offsets what the committed part of its log says: no more, no less, no sooner."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._histories: dict[TopicIdPartition, OffsetHistory] = {}

    def coordinated(
        self,
        broker: "BrokerProcess",
        replica: Replica,
        leader_epoch: LeaderEpoch,
        asked: Any,
        response: Any,
        ledger: Ledger,
    ) -> None:
        if not ledger.counts(leader_epoch) or asked.end_offset is None:
            return
        key, event, end_offset = ledger.key, asked.message.event, asked.end_offset
        if end_offset > ledger.end_offset:
            self.fail(
                f"{broker.name} answers on what lies below {end_offset}, committed is what lies below "
                f"{ledger.end_offset}",
                key,
            )
        said: dict[_OffsetOf, Offset | None]
        if isinstance(event, OffsetCommit):
            said = _acknowledged(event, response)
        elif isinstance(event, OffsetDelete):
            said = {(event.group_id, event.topic, event.partition): None}
        elif isinstance(event, OffsetFetch):
            said = _read(event, response)
        else:
            return
        history = self._histories.setdefault(key, OffsetHistory())
        history.follow(ledger)
        for of, offset in said.items():
            there = history.offset_at(of, end_offset)
            if there != offset:
                self.fail(f"{broker.name} says that {of} is {offset}, committed is {there}", key)


class AcknowledgedCommitIsRead(Invariant):
    """A client reads what it was told is committed, or something that was not answered."""

    def offset_read(
        self, group_id: str, offset: Offset | None, possible: set[Offset | None], key: TopicIdPartition
    ) -> None:
        if offset not in possible:
            self.fail(f"{group_id} reads {offset}, was told {possible}", key)


class SuspendedCoordinatorIsSilent(Invariant):
    """Nobody is answered, and no markers are begun with, by a coordinator that leads no more.

    Nor by one whose lease is out.
    """

    def coordinated(
        self,
        broker: "BrokerProcess",
        replica: Replica,
        leader_epoch: LeaderEpoch,
        asked: Any,
        response: Any,
        ledger: Ledger,
    ) -> None:
        if replica.leadership is None or replica.suspended or replica.leader_epoch != leader_epoch:
            self.fail(f"{broker.name} answers as of epoch {leader_epoch}, and leads no more", ledger.key)

    def markers_sent(
        self, broker: "BrokerProcess", leader_epoch: LeaderEpoch, markers: SendMarkers, ledger: Ledger
    ) -> None:
        replica = broker.replicas.get(*ledger.key)
        leads = (
            replica is not None and replica.leadership is not None and replica.leader_epoch == leader_epoch
        )
        if replica is None or not leads or replica.suspended:
            self.fail(
                f"{broker.name} sends markers as of epoch {leader_epoch}, and leads no more", ledger.key
            )


def _acknowledged(event: OffsetCommit, response: Any) -> dict[_OffsetOf, Offset | None]:
    return {
        (event.group_id, topic, asked.partition): asked.offset
        for (topic, _, partitions), (_, errors) in zip(event.topics, response, strict=True)
        for asked, (_, error_code) in zip(partitions, errors, strict=True)
        if error_code is ErrorCode.none
    }


def _read(event: OffsetFetch, response: Any) -> dict[_OffsetOf, Offset | None]:
    error_code, topics = response
    if error_code is not ErrorCode.none:
        return {}
    # What is committed of another topic of the name is not told to who names his by id.
    return {
        (event.group_id, topic, row.partition): None if row.committed is None else row.committed.offset
        for (topic, rows), (_, topic_id, _) in zip(topics, event.topics, strict=True)
        for row in rows
        if row.error_code is ErrorCode.none and (row.committed is not None or topic_id is None)
    }


COORDINATION_INVARIANTS: tuple[type[Invariant], ...] = (
    OffsetsAreAsCommitted,
    AcknowledgedCommitIsRead,
    SuspendedCoordinatorIsSilent,
)

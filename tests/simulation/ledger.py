"""What is committed, as an all-knowing observer sees it: per partition, and who was promised what.

A record is committed when any leader's high watermark passes it. The ledger only grows; every log, answer and
promise is held against it.

One loss is not the algorithm's fault: the topic allows an unclean election, or the disks of all brokers that
count have lost something. `allow_loss` says so when it is decided; when the leader elected then begins, what
it does not have is struck from the ledger, and everything is checked again from there on. What leaders of
earlier epochs promise or show is not held against anybody any more.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from sparklog.protocol.records.batch import STAMP_BYTES, BatchHeader, read_header
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicIdPartition
from tests.simulation.committed_table import CommittedTable
from tests.simulation.disk import MemoryLog


@dataclass(slots=True)
class Ledger:
    """One partition's committed batches."""

    key: TopicIdPartition
    batches: list[bytes] = field(default_factory=list)
    end_offsets: list[Offset] = field(default_factory=list)
    leaders: dict[LeaderEpoch, tuple[BrokerId, BrokerEpoch | None]] = field(default_factory=dict)
    """Who led in which leader epoch."""
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    """The last committed sequence number of each producer, in each of its epochs."""
    since_epoch: LeaderEpoch = 0
    """Leaders of earlier epochs do not count any more."""
    losing: bool = False
    """The leader of `since_epoch`, or a later one, is about to say what is left."""
    losses: int = 0
    """How often something was struck, or might have been."""
    table: CommittedTable | None = None
    """What is committed, by key, of a partition that is compacted."""
    _struck: list[bytes] = field(default_factory=list)
    """Of a partition that is compacted."""
    _since_epoch_before: LeaderEpoch = 0
    producers_before_loss: int = 0
    """Producers with ids up to this one may miss batches in between."""

    @property
    def end_offset(self) -> Offset:
        """The end of what is committed."""
        return self.end_offsets[-1] if self.end_offsets else 0

    def counts(self, leader_epoch: LeaderEpoch | None) -> bool:
        """Whether what is said in this leader epoch is held against the ledger."""
        return not self.losing and leader_epoch is not None and leader_epoch >= self.since_epoch

    def allow_loss(self, leader_epoch: LeaderEpoch, last_producer_id: int) -> None:
        """The leader of `leader_epoch` need not have everything."""
        if not self.losing:
            self._since_epoch_before = self.since_epoch
        self.since_epoch = leader_epoch
        self.losing = True
        self.losses += 1
        self.producers_before_loss = last_producer_id

    def disallow_loss(self) -> None:
        """What was decided did not come to be."""
        self.since_epoch, self.losing = self._since_epoch_before, False

    def strike(self, log: MemoryLog, last_producer_id: int) -> int:
        """Strike what the new leader does not have; return how many batches that are."""
        self.losing = False
        self.losses += 1
        self.producers_before_loss = last_producer_id
        kept = self.common_count(log)
        struck = self.batches[kept:]
        del self.batches[kept:], self.end_offsets[kept:]
        if self.table is not None:
            self.table.allow_loss()
            self._take_back(log, struck)
        self.sequences.clear()
        for batch in self.batches:
            header = read_header(batch)
            self.sequences[header.producer_id, header.producer_epoch] = header.last_sequence
        return len(struck)

    def _take_back(self, log: MemoryLog, struck: list[bytes]) -> None:
        """Have what was struck before and comes back with this leader, who may have cleaned some of it."""
        for batch in self._struck:
            header = read_header(batch)
            if header.base_offset >= self.end_offset and _is_of(header, log):
                self.batches.append(batch)
                self.end_offsets.append(header.next_offset)
        self._struck += struck

    def extend(self, log: MemoryLog, count: int) -> list[bytes]:
        """Take in what has newly been committed in a leader's log; return it."""
        first = log.count_below(self.end_offset)
        new = log.batches[first:count]
        if self.table is not None:
            for batch in new:
                self.table.take(batch)
        self.batches += new
        self.end_offsets += log.end_offsets[first:count]
        return new

    def common_count(self, log: MemoryLog) -> int:
        """Return how many of the committed batches a log begins with, or has cleaned."""
        number = 0
        for batch in log.batches:
            following = self.number_behind(number, batch)
            if following is None:
                break
            number = following
        # What it cleaned away was the same if it is of the same leader.
        while self.table is not None and number < len(self.batches):
            if not _is_of(read_header(self.batches[number]), log):
                break
            number += 1
        return number

    def first_difference(self, log: MemoryLog, count: int) -> int | None:
        """Return the number of the first of a log's first `count` batches that is not the committed one.

        Nor what a cleaning may have made of it. Only committed ones are looked at, and none twice.
        """
        count = min(count, log.count_below(self.end_offset), len(log.batches))
        number = self.number_at(log.end_offsets[log.verified - 1]) if log.verified else 0
        while log.verified < count:
            following = self.number_behind(number, log.batches[log.verified])
            if following is None:
                return log.verified
            number = following
            log.verified += 1
        return None

    def number_at(self, offset: Offset) -> int:
        """Return the number of the first committed batch that ends above an offset."""
        return bisect_right(self.end_offsets, offset)

    def number_behind(self, number: int, batch: bytes) -> int | None:
        """Return the number of the committed batch behind one that somebody has.

        `number` is that of the next committed one. None if it is not what is committed, nor what a cleaning
        may have made of it, or if what lies before it cannot have gone.
        """
        if number < len(self.batches) and self.batches[number] == batch:
            return number + 1
        if self.table is None:
            return None
        found = self.number_at(read_header(batch).base_offset)
        if found >= len(self.batches) or self.table.complaint(self.batches[found], batch) is not None:
            return None
        if any(self.table.complaint(gone, None) is not None for gone in self.batches[number:found]):
            return None
        return found + 1


def _is_of(header: BatchHeader, log: MemoryLog) -> bool:
    """Whether a log has had that very batch, by its leaders."""
    epoch = log.epochs.epoch_at(header.base_offset)
    return epoch == header.partition_leader_epoch and header.next_offset <= log.log_end_offset


@dataclass(frozen=True, slots=True)
class Promise:
    """What a producer was told: its batch is at this offset."""

    key: TopicIdPartition
    base_offset: Offset
    records: bytes
    """As the producer sent it."""
    all_acks: bool
    leader_epoch: LeaderEpoch
    """Of the leader that promised."""

    def is_kept_by(self, batch: bytes) -> bool:
        """Whether a batch of a log is the promised one; base offset and epoch are the leader's to write."""
        return batch[STAMP_BYTES:] == self.records[STAMP_BYTES:]

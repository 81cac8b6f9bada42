"""What is committed, as an all-knowing observer sees it: per partition, and who was promised what.

A record is committed when any leader's high watermark passes it. The ledger only grows; every log, answer and
promise is held against it.

One loss is not the algorithm's fault: when every broker that had all records has crashed, the last leader
leads again (KIP-966), and if its disk lost records, they are lost. Its ledger is void from then on.
"""

from dataclasses import dataclass, field

from sparklog.records.batch import STAMP_BYTES
from sparklog.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicIdPartition
from tests.simulation.disk import MemoryLog


@dataclass(slots=True)
class Ledger:
    """One partition's committed batches."""

    key: TopicIdPartition
    batches: list[bytes] = field(default_factory=list)
    end_offsets: list[Offset] = field(default_factory=list)
    is_void: bool = False
    leaders: dict[LeaderEpoch, tuple[BrokerId, BrokerEpoch | None]] = field(default_factory=dict)
    """Who led in which leader epoch."""
    sequences: dict[int, int] = field(default_factory=dict)
    """The last committed sequence number of each producer."""

    @property
    def end_offset(self) -> Offset:
        """The end of what is committed."""
        return self.end_offsets[-1] if self.end_offsets else 0

    def extend(self, log: MemoryLog, count: int) -> list[bytes]:
        """Take in what has newly been committed in a leader's log; return it."""
        first = len(self.batches)
        new = log.batches[first:count]
        self.batches += new
        self.end_offsets += log.end_offsets[first:count]
        return new

    def first_difference(self, log: MemoryLog, count: int) -> int | None:
        """Return the number of the first of a log's first `count` batches that is not the committed one.

        Only batches that are committed are looked at, and none twice.
        """
        count = min(count, len(self.batches), len(log.batches))
        while log.verified < count:
            if log.batches[log.verified] != self.batches[log.verified]:
                return log.verified
            log.verified += 1
        return None


@dataclass(frozen=True, slots=True)
class Promise:
    """What a producer was told: its batch is at this offset."""

    key: TopicIdPartition
    base_offset: Offset
    records: bytes
    """As the producer sent it."""
    all_acks: bool

    def is_kept_by(self, batch: bytes) -> bool:
        """Whether a batch of a log is the promised one; base offset and epoch are the leader's to write."""
        return batch[STAMP_BYTES:] == self.records[STAMP_BYTES:]

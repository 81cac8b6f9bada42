"""A broker's disk: partition logs and what is checkpointed beside them.

The page cache outlives the process, not the machine: a crash of the machine costs each log the batches after
some point that was not written back yet, which is what recovery leaves after a torn tail. The logs keep real
batches and the production epochs and producer states over them; only the files are missing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from random import Random
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import STAMP_BYTES, BatchHeader, iterate_headers, stamp
from sparklog.storage.leader_epochs import LeaderEpochs
from sparklog.storage.log_config import LogConfig
from sparklog.storage.producer_states import Duplicate, ProducerStates
from sparklog.storage.results import AppendInfo
from sparklog.types import BrokerEpoch, LeaderEpoch, Offset, TimestampMs, TopicIdPartition, TopicPartition


class MemoryLog:
    """What `sparklog.storage.Log` does as far as a replica sees, on a simulated disk."""

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = str(topic_partition)
        self.batches: list[bytes] = []
        self.headers: list[BatchHeader] = []
        self.end_offsets: list[Offset] = []
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self.log_start_offset: Offset = 0
        self.log_end_offset: Offset = 0
        self.written_back = 0
        """How many batches would survive a crash of the machine."""
        self.verified = 0
        """How many batches are known to be what is committed; kept by the invariants."""

    def append_as_leader(
        self,
        records: bytes | memoryview,
        headers: Sequence[BatchHeader],
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
    ) -> AppendInfo:
        (header,) = headers
        if header.producer_id >= 0:
            outcome = self.producers.check(header)
            if type(outcome) is Duplicate:
                return AppendInfo(
                    outcome.base_offset, outcome.last_offset, None, self.log_start_offset, duplicate=True
                )
        base_offset = self.log_end_offset
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        batch = stamp(base_offset, leader_epoch, header) + bytes(records[STAMP_BYTES:])
        final = header._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch)
        self._append(batch, final)
        return AppendInfo(base_offset, self.log_end_offset - 1, None, self.log_start_offset)

    def append_as_follower(self, records: bytes | memoryview) -> AppendInfo | None:
        base_offset = self.log_end_offset
        for position, header in iterate_headers(records):
            if header.base_offset < self.log_end_offset:
                raise KafkaError(
                    ErrorCode.offset_out_of_range,
                    f"offset {header.base_offset} cannot follow {self.log_end_offset}",
                )
            epoch = header.partition_leader_epoch
            if self.epochs.latest is None or epoch > self.epochs.latest:
                self.epochs.assign(epoch, header.base_offset)
            self._append(bytes(records[position : position + header.size_bytes]), header)
        if base_offset == self.log_end_offset:
            return None
        return AppendInfo(base_offset, self.log_end_offset - 1, None, self.log_start_offset)

    def _append(self, batch: bytes, header: BatchHeader) -> None:
        self.batches.append(batch)
        self.headers.append(header)
        self.log_end_offset = header.next_offset
        self.end_offsets.append(self.log_end_offset)
        self.producers.update(header)

    def truncate_to(self, offset: Offset) -> bool:
        if offset >= self.log_end_offset:
            return False
        self.keep(bisect_right(self.end_offsets, offset))
        return True

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        self.keep(0)
        self.epochs.clear()
        self.log_start_offset = self.log_end_offset = offset

    def keep(self, count: int) -> None:
        """Keep the first `count` batches."""
        del self.batches[count:], self.headers[count:], self.end_offsets[count:]
        self.log_end_offset = self.end_offsets[-1] if count else self.log_start_offset
        self.written_back = min(self.written_back, count)
        self.verified = min(self.verified, count)
        self.epochs.truncate_from_end(self.log_end_offset)
        self.reload()

    def reload(self) -> None:
        """Make the producers' states from the batches, as loading or truncating a log does."""
        self.producers = ProducerStates()
        for header in self.headers:
            self.producers.update(header)

    def advance_log_start_offset(self, offset: Offset) -> bool:
        raise AssertionError("nothing is deleted from the start of a log yet")

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        return high_watermark

    def reconfigure(self, config: LogConfig) -> None:
        pass

    def count_below(self, offset: Offset) -> int:
        """Return how many batches end at or below `offset`."""
        return bisect_right(self.end_offsets, offset)

    def read(self, offset: Offset, *, max_batches: int, up_to_offset: Offset) -> bytes:
        """Return whole batches from `offset` on, all below `up_to_offset`."""
        first = bisect_right(self.end_offsets, offset)
        last = min(first + max_batches, bisect_left(self.end_offsets, up_to_offset + 1))
        return b"".join(self.batches[first:last])


class Disk:
    """What is left of a broker when its process ends."""

    def __init__(self, directory_id: UUID) -> None:
        self.directory_id = directory_id
        self.logs: dict[TopicIdPartition, MemoryLog] = {}
        self.high_watermarks: dict[TopicIdPartition, Offset] = {}
        """The checkpoint."""
        self.damaged_epoch: BrokerEpoch | None = None
        """Under which the broker was registered when that happened last."""
        self.reached: dict[TopicIdPartition, Offset] = {}
        """The highest log end offset that each log ever had, for the invariants."""
        self.broker_epoch_at_clean_shutdown: int | None = None
        self.damaged: set[TopicIdPartition] = set()
        """Partitions that lost records, until that is known: see `World._forgive`."""

    def reach(self, key: TopicIdPartition, log_end_offset: Offset) -> None:
        """Note that a log has got so far."""
        if log_end_offset > self.reached.get(key, 0):
            self.reached[key] = log_end_offset

    def write_back(self, random: Random) -> None:
        """Let the system write some of what is dirty."""
        for log in self.logs.values():
            log.written_back = random.randint(log.written_back, len(log.batches))

    def sync(self) -> None:
        """A clean shutdown writes everything."""
        for log in self.logs.values():
            log.written_back = len(log.batches)

    def lose_unwritten(self, random: Random) -> None:
        """The machine crashes."""
        for key, log in self.logs.items():
            kept = random.randint(log.written_back, len(log.batches))
            if kept < len(log.batches):
                self.damaged.add(key)
                log.keep(kept)
            log.written_back = kept

    def lose_everything(self, directory_id: UUID) -> None:
        """The broker comes back on an empty disk."""
        self.damaged.update(self.logs)
        self.logs.clear()
        self.high_watermarks.clear()
        self.directory_id = directory_id

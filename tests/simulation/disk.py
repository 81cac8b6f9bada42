"""A broker's disk: partition logs and what is checkpointed beside them.

The page cache outlives the process, not the machine. A crash of the machine leaves of each log what was
written back, and of what follows any part: whole batches, one torn off in the middle, one with a flipped bit.
Recovery is production's walk and rules over the bytes that are left. The logs keep real batches and the
production epochs and producer states over them; only the files are missing.
"""

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from sparklog.executor.metadata.machine.quorum_voter import ElectionState
from sparklog.node.storage.log.log import LAST_LEADER_EPOCH, Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.leader_epochs import LeaderEpochs
from sparklog.node.storage.machine.producer_states import Duplicate, ProducerStates
from sparklog.node.storage.machine.recovery_rules import PreviousStop, SoundPrefix
from sparklog.node.storage.machine.verification import Verification
from sparklog.node.storage.producers.producer_replay import apply_batch
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.node.storage.results import AppendInfo, ReadResult
from sparklog.node.storage.segments.batch_walk import walk_with_crc
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import (
    STAMP,
    STAMP_BYTES,
    BatchHeader,
    CorruptBatchError,
    iterate_headers,
)
from sparklog.protocol.types import (
    AbortedTransaction,
    BrokerEpoch,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicIdPartition,
    TopicPartition,
)
from tests.simulation.metadata_copy import MetadataCopy
from tests.simulation.segments import MemorySegment, MemorySegments

_SEGMENT_BATCHES = 4
_TAKEN_BACK = 3
"""The most batches by which a log is cut without loading its producers."""
_READ_BEFORE = 16
_BASE_OFFSET = range(8)
"""As little as `_LEADER_EPOCH`, where there may be gaps between offsets."""
_LEADER_EPOCH = range(12, 16)
"""Where in a batch a flipped bit need not be noticed: no CRC covers it, and it may say something newer."""


class MemoryLog:
    """What `sparklog.node.storage.Log` does as far as a replica sees, on a simulated disk."""

    def __init__(self, disk: "Disk", topic_partition: TopicPartition, topic_id: UUID) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = str(topic_partition)
        self.batches: list[bytes] = []
        self.headers: list[BatchHeader] = []
        self.end_offsets: list[Offset] = []
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self.missing: object = None
        self.identity_unsynced = False
        """A crash of the machine takes batches here, and no topic's id."""
        self.loading: object = None
        """Set while the producers are not what the batches say; see `sparklog.node.storage.Log`."""
        self.log_start_offset: Offset = 0
        self.log_end_offset: Offset = 0
        self.config = LogConfig()
        self.segments = MemorySegments(0)
        self.cleaned_offset: Offset | None = None
        self.truncations = 0
        self.written_back = 0
        """How many batches would survive a crash of the machine."""
        self.reached: Offset = 0
        """The highest end it ever had, but for what a leader has had it cut off; kept for the invariants, as
        what follows."""
        self.followed_ms: list[tuple[Offset, Offset, int]] = []
        """From where to where it came by an answer of its leader, and when."""
        self.verified = 0
        """How many batches are known to be what is committed."""
        self.is_before_loss = False
        """Whether its high watermark may be from before committed batches were lost with others."""
        self.seen: object = None
        """What the invariants saw of the replica when they looked last."""
        self.seen_leader: object = None
        self._disk = disk

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        log: Any = self
        return Log.last_stable_offset(log, high_watermark)

    def aborted_transactions(self, *arguments: Any, **named: Any) -> Sequence[AbortedTransaction]:
        log: Any = self
        return Log.aborted_transactions(log, *arguments, **named)

    @property
    def local_log_start_offset(self) -> Offset:
        """Nothing is in a tier."""
        return self.log_start_offset

    def append_as_leader(
        self,
        records: bytes | memoryview,
        header: BatchHeader,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        verification: Verification | None = None,
        marker: EndTransactionMarker | None = None,
    ) -> AppendInfo:
        if marker is not None:
            self.producers.check_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_version,
            )
        elif header.producer_id >= 0:
            outcome = self.producers.check(header, verification, verifies=True)
            if type(outcome) is Duplicate:
                return AppendInfo(
                    outcome.base_offset, outcome.last_offset, None, self.log_start_offset, duplicate=True
                )
        base_offset = self.log_end_offset
        batch = STAMP.pack(base_offset, header.batch_length, leader_epoch) + bytes(records[STAMP_BYTES:])
        final = header._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch)
        self._append(batch, final, now_ms)
        return AppendInfo(base_offset, self.log_end_offset - 1, None, self.log_start_offset)

    def append_as_follower(
        self,
        records: bytes | memoryview,
        now_ms: TimestampMs,
        *,
        up_to_leader_epoch: LeaderEpoch = LAST_LEADER_EPOCH,
    ) -> AppendInfo | None:
        base_offset = self.log_end_offset
        for position, header in iterate_headers(records):
            if header.partition_leader_epoch > up_to_leader_epoch:
                break
            if header.base_offset < self.log_end_offset:
                raise KafkaError(
                    ErrorCode.offset_out_of_range,
                    f"offset {header.base_offset} cannot follow {self.log_end_offset}",
                )
            self._append(bytes(records[position : position + header.size_bytes]), header, now_ms)
        if base_offset == self.log_end_offset:
            return None
        return AppendInfo(base_offset, self.log_end_offset - 1, None, self.log_start_offset)

    def _append(self, batch: bytes, header: BatchHeader, now_ms: TimestampMs) -> None:
        assert self.loading is None, f"{self.directory} does not know its producers yet"
        if self._disk.is_failing:
            raise OSError(errno.EIO, "simulated", self.directory)
        epoch = header.partition_leader_epoch
        if self.epochs.latest is None or epoch > self.epochs.latest:
            self.epochs.assign(epoch, header.base_offset)
        if len(self.headers) - self.count_below(self.segments.all[-1].base_offset) >= _SEGMENT_BATCHES:
            self.segments.roll(header.base_offset)
        self.batches.append(batch)
        self.headers.append(header)
        self.log_end_offset = header.next_offset
        self.reached = max(self.reached, self.log_end_offset)
        self.end_offsets.append(self.log_end_offset)
        self._apply(self.producers, batch, header, now_ms)

    def _apply(self, producers: ProducerStates, batch: bytes, header: BatchHeader, now_ms: int) -> None:
        if header.is_control:
            segment: Any = self.segments.with_offset(header.base_offset)
            apply_batch(producers, header, batch, segment, now_ms)
        else:
            producers.update(header, now_ms)

    def truncate_to(self, offset: Offset) -> bool:
        if offset >= self.log_end_offset:
            return False
        producers, was_loading = self.producers, self.loading is not None
        count = bisect_right(self.end_offsets, offset)
        before, removed = self.headers[max(count - _READ_BEFORE, 0) : count], self.headers[count:]
        self.truncations += 1
        self.keep(count)
        self.reached = min(self.reached, self.log_end_offset)
        if was_loading or producers.end_offset > self.log_end_offset:
            self.producers = producers
            is_known = len(removed) <= _TAKEN_BACK and producers.take_back(removed, before)
            if was_loading or not is_known:
                self.loading = object()
        return True

    def take_producers(self, loading: object, producers: ProducerStates) -> None:
        if self.loading is loading:
            self.producers = producers
            self.loading = None

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        self.truncations += 1
        self.keep(0)
        self.epochs.clear()
        self.log_start_offset = self.log_end_offset = offset
        self.reached = min(self.reached, offset)
        self.segments = MemorySegments(offset)

    def keep(self, count: int) -> None:
        """Keep the first `count` batches."""
        del self.batches[count:], self.headers[count:], self.end_offsets[count:]
        self.log_end_offset = self.end_offsets[-1] if count else self.log_start_offset
        self.segments.cut(self.log_end_offset)
        self.followed_ms = [each for each in self.followed_ms if each[0] < self.log_end_offset]
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, self.log_end_offset)
        self.written_back = min(self.written_back, count)
        self.verified = min(self.verified, count)
        self._disk.lower_high_watermark(self)
        self.epochs.truncate_from_end(self.log_end_offset)
        self.reload()

    def fetched_ms(self, offset: Offset) -> int:
        """Return when it was past an offset that it has fetched; 0 if it has not."""
        return next((ms for start, end, ms in reversed(self.followed_ms) if start <= offset < end), 0)

    def batches_in(self, start: Offset, end: Offset) -> list[bytes]:
        """Return the batches of the segments from one offset to another."""
        return self.batches[self.count_below(start) : self.count_below(end)]

    def replace_start(
        self,
        segments_end: Offset,
        segments: list[MemorySegment],
        batches: list[bytes],
        headers: list[BatchHeader],
    ) -> None:
        """Have the log begin with these batches, which are on the disk, up to `segments_end`."""
        count = self.count_below(segments_end)
        self.batches[:count], self.headers[:count] = batches, headers
        self.end_offsets = [header.next_offset for header in self.headers]
        self.segments.replace_start(segments_end, segments)
        self.written_back = len(batches) + max(self.written_back - count, 0)
        self.verified = 0

    def reload(self) -> None:
        """Make the producers' states from the batches, as opening or emptying a log does."""
        self.producers = self.loaded_producers()
        self.loading = None

    def loaded_producers(self) -> ProducerStates:
        """Return the producers' states as the batches make them."""
        producers = ProducerStates()
        for batch, header in zip(self.batches, self.headers, strict=True):
            self._apply(producers, batch, header, 0)
        return producers

    def lose_unwritten(self, random: Random) -> bool:
        """Lose what a crash of the machine may take, and recover; say whether anything is gone."""
        batches = self.batches
        before, kept = len(batches), random.randint(self.written_back, len(batches))
        damage = random.choice(("whole", "torn", "flipped"))
        if kept == before:
            return False
        if damage == "torn":
            content = b"".join(batches[: kept + 1])
            content = content[: len(content) - random.randrange(1, len(batches[kept]))]
        elif damage == "flipped":
            batch = bytearray(batches[kept])
            position = random.randrange(len(batch))
            if position in _LEADER_EPOCH or (self._disk.compacts and position in _BASE_OFFSET):
                position = len(batch) - 1
            batch[position] ^= 1 << random.randrange(8)
            content = b"".join([*batches[:kept], bytes(batch), *batches[kept + 1 :]])
        else:
            content = b"".join(batches[:kept])
        self._recover(content, kept)
        self.written_back = len(self.batches)
        return True

    def _recover(self, content: bytes, sound: int) -> None:
        found: list[bytes] = []
        headers: list[BatchHeader] = []
        prefix = SoundPrefix(
            self.log_start_offset, self.epochs, PreviousStop.UNKNOWN, may_have_gaps=self._disk.compacts
        )
        file: Any = _MemoryFile(content)
        try:
            for position, header, crc_matches in walk_with_crc(file, 0, len(content)):
                epoch = header.partition_leader_epoch
                if prefix.offer(header.base_offset, header.last_offset, epoch, crc_matches=crc_matches):
                    break
                found.append(content[position : position + header.size_bytes])
                headers.append(header)
        except CorruptBatchError:
            pass  # the log ends here
        self.batches, self.headers = found, headers
        self.end_offsets = [header.next_offset for header in headers]
        self.verified = min(self.verified, sound)
        self.segments.forget_indexes()
        self.keep(len(found))

    def advance_log_start_offset(self, offset: Offset) -> bool:
        raise AssertionError("nothing is deleted from the start of a log yet")

    def end_offset_for(self, leader_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        latest = self.epochs.latest
        if latest is None:
            return None
        return self.epochs.end_offset_for(min(leader_epoch, latest), self.log_end_offset)

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config

    def count_below(self, offset: Offset) -> int:
        """Return how many batches end at or below `offset`."""
        return bisect_right(self.end_offsets, offset)

    def read(
        self,
        offset: Offset,
        *,
        max_bytes: int,
        up_to_offset: Offset,
        min_one_batch: bool = True,
        cached_only: bool = False,
    ) -> ReadResult:
        """Return whole batches from `offset` on, all below `up_to_offset`."""
        first = last = bisect_right(self.end_offsets, offset)
        end = bisect_left(self.end_offsets, up_to_offset + 1)
        left_bytes = max_bytes
        while last < end and (len(self.batches[last]) <= left_bytes or (min_one_batch and last == first)):
            left_bytes -= len(self.batches[last])
            last += 1
        if last == first:
            return ReadResult(None, offset)
        region: Any = MemoryRegion(b"".join(self.batches[first:last]))
        return ReadResult(region, self.end_offsets[last - 1])


class MemoryRegion(bytes):
    """Batches as a reader gets them, where production has a region of a file."""

    position = 0

    def read(self) -> bytes:
        return self

    @property
    def length(self) -> int:
        return len(self)

    @property
    def file(self) -> "_MemoryFile":
        return _MemoryFile(self)

    def is_cached(self) -> bool:
        return True


class _MemoryFile:
    """What production's walk reads: a file that is nowhere."""

    def __init__(self, content: bytes) -> None:
        self.path = Path("simulated.log")
        self._descriptor = os.memfd_create("simulated")
        os.pwrite(self._descriptor, content, 0)

    def fileno(self) -> int:
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)


class Disk:
    """What is left of a broker when its process ends."""

    def __init__(self, directory_id: UUID, *, compacts: bool) -> None:
        self.directory_id = directory_id
        self.compacts = compacts
        """Whether its logs are cleaned."""
        self.logs: dict[TopicIdPartition, MemoryLog] = {}
        self.high_watermarks: dict[TopicIdPartition, Offset] = {}
        """The checkpoint."""
        self.metadata = MetadataCopy()
        self.lacks_metadata = False
        """Whether the copy is known to lack what was fsynced: a bit was flipped in it."""
        self.election: ElectionState | None = None
        """What is in `quorum-state`."""
        self.cluster_id: str | None = None
        """What is in `meta.properties`; None while the directories are blank."""
        self.is_failing = False
        """Whether every write raises an error: the disk is full, or broken."""
        self.failed_epoch: BrokerEpoch | None = None
        """Under which the broker was registered when it met an error of this disk last."""
        self.broker_epoch_at_clean_shutdown: BrokerEpoch | None = None
        self.running_broker_epoch: BrokerEpoch | None = None
        """Of the last incarnation, while the machine goes on and the disk has lost nothing."""
        self.damaged: set[TopicIdPartition] = set()
        """Partitions that lost records, until that is known: see `World._forgive`."""
        self.damaged_epoch: BrokerEpoch | None = None
        """Under which the broker was registered when that happened last."""
        self._lost: dict[UUID, MetadataCopy] = {}
        self._reached_before: dict[TopicIdPartition, Offset] = {}

    @property
    def previous_broker_epoch(self) -> BrokerEpoch | None:
        """The broker epoch under which everything that was acknowledged is there (KIP-966)."""
        clean = self.broker_epoch_at_clean_shutdown
        return self.running_broker_epoch if clean is None else clean

    def metadata_of(self, directory_id: UUID) -> MetadataCopy:
        """Return the copy of the metadata log that is, or was, in a directory of this broker."""
        return self._lost.get(directory_id, self.metadata)

    def reached(self, key: TopicIdPartition) -> Offset:
        """Return up to where a partition ever was here, but for what a leader has had it cut off."""
        log = self.logs.get(key)
        return max(self._reached_before.get(key, 0), 0 if log is None else log.reached)

    def lower_high_watermark(self, log: MemoryLog) -> None:
        """Let the checkpoint not say more than a log that was cut has."""
        key = TopicIdPartition(log.topic_id, log.topic_partition.partition)
        if self.high_watermarks.get(key, 0) > log.log_end_offset:
            self.high_watermarks[key] = log.log_end_offset

    def write_back(self, random: Random) -> None:
        """Let the system write some of what is dirty."""
        for log in self.logs.values():
            log.written_back = random.randint(log.written_back, len(log.batches))

    def sync(self) -> None:
        """A clean shutdown writes everything."""
        self.metadata.flushed_offset = self.metadata.end_offset
        for log in self.logs.values():
            log.written_back = len(log.batches)

    def lose_unwritten(self, random: Random) -> None:
        """The machine crashes."""
        self.metadata.lose_unflushed(random)
        for key, log in self.logs.items():
            if log.lose_unwritten(random):
                self.damaged.add(key)

    def drop(self, key: TopicIdPartition) -> None:
        """Delete a log."""
        self._reached_before[key] = self.reached(key)
        self.logs.pop(key, None)
        self.high_watermarks.pop(key, None)

    def damage_metadata(self, random: Random) -> None:
        """The machine crashes, and a bit of what was fsynced long ago has flipped; recovery cuts it off."""
        self.lose_unwritten(random)
        copy = self.metadata
        if copy.end_offset > copy.start_offset:
            copy.truncate_to(random.randrange(copy.start_offset, copy.end_offset))
            self.lacks_metadata = True

    def lose_everything(self, directory_id: UUID) -> None:
        """The broker comes back on an empty disk."""
        self.damaged.update(self.logs)
        for key in list(self.logs):
            self.drop(key)
        self._lost[self.directory_id] = self.metadata
        self.metadata = MetadataCopy()
        self.lacks_metadata = False
        self.election = self.cluster_id = None
        self.directory_id = directory_id
        self.is_failing = False
        self.broker_epoch_at_clean_shutdown = self.running_broker_epoch = None

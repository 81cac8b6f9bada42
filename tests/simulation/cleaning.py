"""The log cleaner of a broker's process: production's planning, maps and filters over the logs of its disk.

What a cleaning makes of the sealed segments takes their place later, unless the log was cut meanwhile or the
process has ended: then nothing of it is there. How files and checkpoints come through a crash in between is
tested on real files.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from sparklog.executor.logs.machine.cleaner_schedule import Cleanable, CleanerSchedule, LogFacts, SegmentFacts
from sparklog.executor.partitions.replica import Replica
from sparklog.node.storage.cleaning.batch_windows import Window
from sparklog.node.storage.cleaning.cleaner import KeyMapping
from sparklog.node.storage.cleaning.key_hashes import KeyHashes
from sparklog.node.storage.cleaning.offset_map import SLOT_BYTES, OffsetMap
from sparklog.node.storage.cleaning.record_filter import RecordFilter, Round
from sparklog.node.storage.cleaning.request import LastBatch
from sparklog.node.storage.index.aborted_transaction import AbortedTransactionEntry
from sparklog.node.storage.machine.cleaned_transactions import CleanedTransactions
from sparklog.node.storage.machine.segment_groups import SealedSegment, group_segments
from sparklog.protocol.records.batch import BatchHeader, iterate_headers
from sparklog.protocol.types import Offset, TimestampMs
from tests.simulation.committed_table import DELETE_RETENTION_MS
from tests.simulation.disk import MemoryLog
from tests.simulation.leading import START_MS
from tests.simulation.segments import MemorySegment

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess

IN_ONE_SEED_OF: Final = 8
_MAX_DECOMPRESSED_BYTES: Final = 1 << 20
_SEGMENT_BYTES: Final = 2_000


class CleanedPart(NamedTuple):
    """What is to stand where a log's first segments were."""

    segments_end: Offset
    """Where they ended."""
    segments: list[MemorySegment]
    batches: list[bytes]
    headers: list[BatchHeader]
    cleaned_up_to: Offset


class Cleaner:
    """Cleans the logs of one broker's process, one at a time."""

    def __init__(self, broker: "BrokerProcess") -> None:
        self._broker = broker
        # Its own, so that other seeds mean what they meant.
        self._random = Random(broker.incarnation)
        self._schedule = CleanerSchedule()
        self._dirty_ratio = self._random.choice((0.01, 0.3))
        self._room = self._random.choice((1, 3, 100))
        """For how many keys: a log may take several rounds."""
        self._look_later()

    def _look_later(self) -> None:
        self._broker.after(1 + self._random.randrange(300), self._look)

    def _look(self) -> None:
        broker = self._broker
        logs = {
            replica.topic_partition: replica
            for replica in broker.replicas
            if not replica.offline
            and replica.log.loading is None
            and len(broker.disk.logs[replica.key].segments.all) > 1
        }
        facts = [self._facts(replica) for replica in logs.values()]
        part = self._schedule.choose(facts, self._wall_ms, broker.now_ms)
        if part is None:
            self._look_later()
            return
        replica = logs[part.topic_partition]
        log = broker.disk.logs[replica.key]
        broker.after(
            self._random.randrange(200), self._replace, replica, log.truncations, self._clean(log, part)
        )

    def _replace(self, replica: Replica, truncations: int, cleaned: CleanedPart) -> None:
        broker = self._broker
        self._schedule.ended(replica.topic_partition)
        log = broker.disk.logs.get(replica.key)
        if replica in broker.replicas and log is not None and log.truncations == truncations:
            broker.world.outcome.cleaned += log.count_below(cleaned.segments_end) - len(cleaned.batches)
            log.replace_start(cleaned.segments_end, cleaned.segments, cleaned.batches, cleaned.headers)
            log.cleaned_offset = cleaned.cleaned_up_to
            broker.world.tell(replica.key, f"{broker.name} has cleaned up to {cleaned.cleaned_up_to}")
        self._look_later()

    @property
    def _wall_ms(self) -> TimestampMs:
        return START_MS + self._broker.scheduler.now_ms

    def _facts(self, replica: Replica) -> LogFacts:
        log = self._broker.disk.logs[replica.key]
        starts = log.segments.starts
        return LogFacts(
            replica.topic_partition,
            [
                SegmentFacts(start, sum(map(len, log.batches_in(start, end))), None, 0)
                for start, end in pairwise(starts)
            ],
            starts[-1],
            log.log_start_offset,
            log.log_end_offset,
            log.last_stable_offset(replica.high_watermark),
            log.cleaned_offset,
            self._dirty_ratio,
            0,
            None,
        )

    def _clean(self, log: MemoryLog, part: Cleanable) -> CleanedPart:
        """Do one round, as `sparklog.node.storage.cleaning.cleaner` does it over files."""
        hashes = KeyHashes()
        first, end = part.first_dirty_offset, part.end_offset
        offset_map = OffsetMap((self._room + 2) * SLOT_BYTES, 0.9, max(end - first, 1))
        mapping = KeyMapping(
            offset_map, hashes, _aborted_from(log, first), first, end, _MAX_DECOMPRESSED_BYTES
        )
        known_up_to = end
        bases = log.segments.starts
        starts = [start for start in bases if start < end]
        ends = bases[1 : len(starts) + 1]
        for window in _windows(log, starts, ends):
            full_at = mapping.take(window)
            if full_at is not None:
                known_up_to = full_at
                break
        count = sum(start < known_up_to for start in starts)
        starts, ends = starts[:count], ends[:count]
        of_round = Round(
            known_up_to,
            end,
            {
                producer_id: LastBatch(
                    producer.batches[-1].last_offset if producer.batches else None, producer.producer_epoch
                )
                for producer_id, producer in log.producers.producers.items()
            },
            self._wall_ms,
            DELETE_RETENTION_MS,
            _MAX_DECOMPRESSED_BYTES,
        )
        aborted: list[AbortedTransactionEntry] = []
        record_filter = RecordFilter(
            offset_map, hashes, CleanedTransactions(_aborted_from(log, 0)), aborted.append, of_round
        )
        batches: list[bytes] = []
        headers: list[BatchHeader] = []
        sealed = []
        for window, start in zip(_windows(log, starts, ends), starts, strict=True):
            remains = record_filter.remains(window)
            content = b"".join(remains.parts)
            sealed.append(SealedSegment(start, len(content), 0, 0))
            for position, header in iterate_headers(content):
                batches.append(content[position : position + header.size_bytes])
                headers.append(header)
        segments_end = ends[-1] if ends else bases[0]
        groups = group_segments(sealed, segments_end, segment_bytes=_SEGMENT_BYTES, segment_index_bytes=1)
        segments = [MemorySegment.at(group[0].base_offset) for group in groups]
        for entry in aborted:
            number = bisect_right([segment.base_offset for segment in segments], entry.last_offset) - 1
            segments[number].transaction_index.append(entry)
        return CleanedPart(segments_end, segments, batches, headers, known_up_to)


def _aborted_from(log: MemoryLog, offset: Offset) -> list[AbortedTransactionEntry]:
    """Return the aborted transactions whose markers lie at `offset` or above."""
    found = (segment.transaction_index.overlapping(offset, 2**63 - 1)[0] for segment in log.segments.all)
    return [entry for entries in found for entry in entries]


def _windows(log: MemoryLog, starts: list[Offset], ends: list[Offset]) -> Iterator[Window]:
    """Yield the segments, each as a whole."""
    for start, end in zip(starts, ends, strict=True):
        batches = log.batches_in(start, end)
        content = memoryview(b"".join(batches))
        yield Window(content, list(iterate_headers(content)))

"""Rebuilding producer state: the newest usable snapshot, and the batch headers after it.

Headers suffice, except for transaction markers, whose record has the outcome; an aborted one is also added to
its segment's transaction index if a recovery has dropped it there.

A snapshot has only the last batch of each producer, and the log of every replica may begin with one: then no
broker would know the producer's other batches in flight when all brokers stopped, and their retries would be
refused as out of order, which is fatal to a producer. So the batches before the snapshot are read, too.
"""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparklog.node.storage.files import PRODUCER_SNAPSHOT_SUFFIX, offset_file
from sparklog.node.storage.index.aborted_transaction import AbortedTransactionEntry
from sparklog.node.storage.machine.producer_states import CompletedTransaction, ProducerStates
from sparklog.node.storage.producers.producer_snapshots import (
    CorruptSnapshotError,
    decode_snapshot,
    snapshot_offsets,
)
from sparklog.node.storage.producers.transaction_markers import read_marker
from sparklog.node.storage.segments.batch_walk import header_at, walk_headers
from sparklog.node.storage.segments.segment import Segment
from sparklog.protocol.records.batch import BatchHeader, CorruptBatchError
from sparklog.protocol.types import Offset, TimestampMs

logger = logging.getLogger(__name__)

_BATCHES_A_PAUSE: Final = 1024
_ENTRIES_BEFORE_SNAPSHOT: Final = 128
"""Distance in index entries: each stands for index.interval.bytes of log, or for one larger batch."""


def apply_batch(
    producers: ProducerStates,
    header: BatchHeader,
    batch: bytes | memoryview | None,
    segment: Segment,
    now_ms: TimestampMs,
) -> None:
    """Update `producers`, and the segment's transaction index, by a batch that is in the log.

    `batch` are its bytes, or None to read them from the segment if they are needed (a marker).

    Raises:
        CorruptBatchError: a malformed transaction marker.
        OSError: the segment cannot be read, or its transaction index not written.
    """
    if not header.is_control:
        producers.update(header, now_ms)
        return
    if not header.has_producer_id or header.record_count == 0:
        return
    if batch is None:
        position = segment.position_of(header.base_offset)
        batch = os.pread(segment.file.fileno(), header.size_bytes, position)
    marker = read_marker(header, batch)
    if marker is None:
        return
    completed = producers.end_transaction(
        header, now_ms, aborted=marker.aborted, coordinator_epoch=marker.coordinator_epoch
    )
    if completed is not None and completed.aborted:
        _index_aborted(segment, completed)


def _index_aborted(segment: Segment, completed: CompletedTransaction) -> None:
    last_offset = segment.transaction_index.last_offset()
    if last_offset is None or last_offset < completed.last_offset:
        segment.transaction_index.append(
            AbortedTransactionEntry(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                completed.last_stable_offset,
            )
        )


def load_producers(
    directory: Path,
    segments: Sequence[Segment],
    *,
    log_end_offset: Offset,
    replay_from: Offset,
    now_ms: TimestampMs,
    pause: Callable[[], None] = lambda: None,
) -> ProducerStates:
    """Return the producers as of `log_end_offset`, replaying at least from `replay_from` on.

    Replayed batches may lie below the log's start: the end of a transaction that is open in the snapshot, or
    batches whose retries have to be recognised, may have been deleted (DeleteRecords) since.

    Replayed batches count as appended now, since only snapshots have their time: a producer that is
    remembered too long costs some bytes, one that expires too early may have records appended twice.

    Unreadable snapshots are removed; so are those above `log_end_offset`. Retention may remove the oldest
    ones meanwhile. `pause` is called about every thousand batches, and may raise.

    Raises:
        OSError: the files cannot be read.
        CorruptBatchError: the log does not consist of batches.
    """
    producers = ProducerStates()
    start = 0
    for offset in reversed(snapshot_offsets(directory)):
        path = offset_file(directory, offset, PRODUCER_SNAPSHOT_SUFFIX)
        if offset > log_end_offset:
            path.unlink()
        elif offset <= replay_from:
            try:
                producers = decode_snapshot(path.read_bytes(), now_ms)
                start = offset
                producers.end_offset = offset if producers.producers else 0
                _complete(producers, segments, start)
                break
            except FileNotFoundError:
                continue
            except CorruptSnapshotError as error:
                logger.warning("Removing producer snapshot %s: %s", path, error)
                path.unlink()
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start:
            continue
        first_position = segment.position_of(start) if start > segment.base_offset else 0
        for number_of_batch, (_, header) in enumerate(
            walk_headers(segment.file, first_position, segment.size_bytes), start=1
        ):
            if number_of_batch % _BATCHES_A_PAUSE == 0:
                pause()
            if header.producer_id >= 0:
                apply_batch(producers, header, None, segment, now_ms)
    return producers


def producers_at(
    directory: Path, segments: Sequence[Segment], end_offset: Offset, now_ms: TimestampMs
) -> ProducerStates:
    """Return the producers as of `end_offset`, where a batch ends, in a log that may go on behind it.

    As `load_producers`, but no file is changed: for a copy of the state, taken in another thread.

    Raises:
        OSError: the files cannot be read.
        CorruptBatchError: the log does not consist of batches, or a snapshot is damaged.
    """
    producers = ProducerStates()
    start = 0
    for offset in reversed(snapshot_offsets(directory)):
        if offset <= end_offset:
            path = offset_file(directory, offset, PRODUCER_SNAPSHOT_SUFFIX)
            with suppress(FileNotFoundError, CorruptSnapshotError):
                producers, start = decode_snapshot(path.read_bytes(), now_ms), offset
                break
    for number, segment in enumerate(segments):
        if segment.base_offset >= end_offset:
            break
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start:
            continue
        first_position = segment.position_of(start) if start > segment.base_offset else 0
        for _, header in walk_headers(segment.file, first_position, segment.size_bytes):
            if header.base_offset >= end_offset:
                break
            if header.producer_id >= 0:
                apply_batch(producers, header, None, segment, now_ms)
    return producers


def _complete(producers: ProducerStates, segments: Sequence[Segment], offset: Offset) -> None:
    """Add to the producers of a snapshot their batches before the last one, as far as these are near."""
    if not producers.producers:
        return
    recent = ProducerStates()
    try:
        for segment, start, end in _stretches_before(segments, offset):
            for _, header in walk_headers(segment.file, start, end):
                recent.update(header, 0)
    except CorruptBatchError as error:
        logger.warning("Retries of batches before offset %d may not be recognised: %s", offset, error)
        return
    for producer_id, state in producers.producers.items():
        found = recent.producers.get(producer_id)
        if (
            found is not None
            and state.batches
            and found.producer_epoch == state.producer_epoch
            and found.batches[-1].last_offset == state.batches[-1].last_offset
        ):
            state.batches = found.batches


def _stretches_before(segments: Sequence[Segment], offset: Offset) -> list[tuple[Segment, int, int]]:
    """Return the ranges before `offset` (segment, from, to), rising, of at least the wanted length."""
    stretches: list[tuple[Segment, int, int]] = []
    entries = 0
    for segment in reversed(segments):
        if segment.base_offset >= offset:
            continue
        end = segment.position_of(offset)
        start = segment.scan_start(offset - 1)
        while start > 0 and entries < _ENTRIES_BEFORE_SNAPSHOT:
            entries += 1
            start = segment.scan_start(header_at(segment.file, start, segment.size_bytes).base_offset - 1)
        stretches.append((segment, start, end))
        if entries == _ENTRIES_BEFORE_SNAPSHOT:
            break
        entries += 1
    return stretches[::-1]

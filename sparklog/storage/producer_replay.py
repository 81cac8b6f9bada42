"""Rebuilding producer state: the newest usable snapshot, and the batch headers after it.

Headers suffice, but for transaction markers, whose record says how the transaction ended; an aborted one
is also entered into its segment's transaction index if a recovery has dropped it there.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from sparklog.records.batch import BatchHeader, CorruptBatchError
from sparklog.records.builder import read_records
from sparklog.storage.batch_walk import walk_headers
from sparklog.storage.files import PRODUCER_SNAPSHOT_SUFFIX, offset_file
from sparklog.storage.producer_snapshots import CorruptSnapshotError, decode_snapshot, snapshot_offsets
from sparklog.storage.producer_states import CompletedTransaction, ProducerStates
from sparklog.storage.segment import Segment
from sparklog.storage.transaction_index import AbortedTransactionEntry
from sparklog.types import Offset

logger = logging.getLogger(__name__)

_MARKER_KEY: Final = Struct(">hh")
_MARKER_VALUE: Final = Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1


def apply_batch(
    producers: ProducerStates, header: BatchHeader, batch: bytes | memoryview | None, segment: Segment
) -> None:
    """Update `producers`, and the segment's transaction index, by a batch that is in the log.

    `batch` are its bytes, or None to read them from the segment if they are needed (a marker).

    Raises:
        CorruptBatchError: a transaction marker that is not one.
        OSError: the segment cannot be read, or its transaction index not written.
    """
    if not header.is_control:
        producers.update(header)
        return
    if not header.has_producer_id or header.record_count == 0:
        return
    if batch is None:
        position = segment.position_of(header.base_offset)
        batch = os.pread(segment.file.fileno(), header.size_bytes, position)
    record = next(iter(read_records(batch, header, 0)))
    if record.key is None or len(record.key) < 4 or record.value is None or len(record.value) < 6:
        raise CorruptBatchError(f"the control batch at offset {header.base_offset} has no marker in it")
    _, control_type = _MARKER_KEY.unpack_from(record.key)
    if control_type not in (_ABORT, _COMMIT):
        return
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    completed = producers.end_transaction(
        header, aborted=control_type == _ABORT, coordinator_epoch=coordinator_epoch
    )
    if completed is not None and completed.aborted:
        _index_aborted(segment, completed)


def _index_aborted(segment: Segment, completed: CompletedTransaction) -> None:
    entries = segment.transaction_index.entries()
    if not entries or entries[-1].last_offset < completed.last_offset:
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
    log_start_offset: Offset,
    log_end_offset: Offset,
    replay_from: Offset,
) -> ProducerStates:
    """Return the producers as of `log_end_offset`, replaying at least from `replay_from` on.

    Snapshots that cannot be read are removed; so are those above `log_end_offset`.

    Raises:
        OSError: the files cannot be read.
    """
    producers = ProducerStates()
    start = log_start_offset
    for offset in reversed(snapshot_offsets(directory)):
        path = offset_file(directory, offset, PRODUCER_SNAPSHOT_SUFFIX)
        if offset > log_end_offset:
            path.unlink()
        elif offset <= replay_from:
            try:
                producers = decode_snapshot(path.read_bytes())
                start = max(offset, log_start_offset)
                break
            except CorruptSnapshotError as error:
                logger.warning("Removing producer snapshot %s: %s", path, error)
                path.unlink()
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start:
            continue
        first_position = segment.position_of(start) if start > segment.base_offset else 0
        for _, header in walk_headers(segment.file, first_position, segment.size_bytes):
            if header.producer_id >= 0:
                apply_batch(producers, header, None, segment)
    return producers

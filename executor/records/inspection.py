"""Checks that need the records themselves, for topics that ask for them.

A broker otherwise takes on trust what a header says of its records. A compacted topic must have a key on
every record, and message.timestamp.before.max.ms binds every record, of which the header names only the
first and the latest timestamp. A leader calls this after `validate_produced`, with the records decompressed.
"""

import numpy as np

from sparklog.errors import TIMESTAMPS_ARE_BOUNDED, ErrorCode, KafkaError
from sparklog.records.batch import NO_TIMESTAMP, BatchHeader
from sparklog.records.decode import OpenedBatch, locate_records
from sparklog.records.fields import locate_headers, record_starts
from sparklog.records.varints import MalformedRecordsError
from sparklog.types import TimestampMs

__all__ = ["inspect_records"]


def inspect_records(
    payload: bytes | memoryview,
    header: BatchHeader,
    *,
    require_keys: bool,
    earliest_ms: TimestampMs | None = None,
    latest_ms: TimestampMs | None = None,
) -> None:
    """Check every record in `payload`, the decompressed records of a batch that `validate_produced` let pass.

    Timestamps must lie in [earliest_ms, latest_ms]; None leaves a side open, and a record without a
    timestamp passes.

    Raises:
        KafkaError: INVALID_RECORD (a null key where `require_keys`, records that do not fill the batch, whose
            headers do not fill them, or whose offsets are not 0 to count - 1), INVALID_TIMESTAMP.
    """
    try:
        starts = record_starts(payload, 0, len(payload), header.record_count)
        located = locate_records([OpenedBatch(header, payload, 0, len(payload), starts)])
        fields = located.fields
        if fields.header_counts.any():
            locate_headers(located.data, fields.header_counts, fields.header_positions, fields.ends)
    except MalformedRecordsError as error:
        raise KafkaError(ErrorCode.invalid_record, f"batch is malformed: {error}") from error
    if (fields.offset_deltas != np.arange(header.record_count)).any():
        raise KafkaError(ErrorCode.invalid_record, "offsets inside the batch are not 0, 1, 2, ...")
    if require_keys and (fields.key_lengths < 0).any():
        row = int(np.argmax(fields.key_lengths < 0))
        raise KafkaError(ErrorCode.invalid_record, f"record {row} has no key, which a compacted topic needs")
    timestamps = header.base_timestamp + fields.timestamp_deltas
    wrong = np.zeros(len(timestamps), dtype=bool)
    if earliest_ms is not None:
        wrong |= timestamps < earliest_ms
    if latest_ms is not None:
        wrong |= timestamps > latest_ms
    wrong &= timestamps != NO_TIMESTAMP
    if wrong.any():
        row = int(np.argmax(wrong))
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"record {row} has timestamp {timestamps[row]}, not within [{earliest_ms}, {latest_ms}], "
            f"{TIMESTAMPS_ARE_BOUNDED}",
        )

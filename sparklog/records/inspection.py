"""Checks that need the records themselves, for topics that ask for them.

A broker otherwise takes on trust what a header says of its records. A compacted topic must have a key on
every record, and message.timestamp.before.max.ms binds every record, of which the header names only the
first and the latest timestamp. A leader calls this after `validate_produced`; a compressed batch is
decompressed for it, within a bound.
"""

import numpy as np

from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import NO_TIMESTAMP, BatchHeader
from sparklog.records.codecs import DEFAULT_DECOMPRESSED_LIMIT_BYTES
from sparklog.records.decode import locate_records, open_batch
from sparklog.records.fields import MalformedRecordsError
from sparklog.types import TimestampMs

__all__ = ["inspect_records"]


def inspect_records(
    records: bytes | memoryview,
    header: BatchHeader,
    *,
    require_keys: bool,
    earliest_ms: TimestampMs | None = None,
    latest_ms: TimestampMs | None = None,
    limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES,
) -> None:
    """Check every record of the one batch in `records`, which `validate_produced` has let pass.

    Timestamps must lie in [earliest_ms, latest_ms]; None leaves a side open, and a record without a
    timestamp passes.

    Raises:
        KafkaError: INVALID_RECORD (a null key where `require_keys`, records that do not fill the batch, or
            whose offsets are not 0 to count - 1), INVALID_TIMESTAMP, and what `decompress` raises.
    """
    try:
        located = locate_records([open_batch(records, 0, header, limit_bytes)])
    except MalformedRecordsError as error:
        raise KafkaError(ErrorCode.invalid_record, f"batch is malformed: {error}") from error
    fields = located.fields
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
            f"record {row} has timestamp {timestamps[row]}, which is not within [{earliest_ms}, {latest_ms}]",
        )

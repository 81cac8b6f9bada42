"""Cleaning a log in the process of the test, and looking at what is left."""

from typing import NamedTuple

from sparklog.node.storage.cleaning.cleaner import clean
from sparklog.node.storage.cleaning.request import CleaningOutcome, CleaningRequest
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log.log_cleaning import CleaningLimits, LogCleaning
from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.records.builder import read_records

LIMITS = CleaningLimits(
    dedupe_buffer_bytes=2**20,
    load_factor=0.9,
    max_bytes_a_second=None,
    window_bytes=2**22,
    max_decompressed_bytes=2**24,
)


class Kept(NamedTuple):
    """A record in a log, and what its batch says of it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int
    codec: int
    producer_id: int
    is_control: bool


def cleanable_end(log: Log, high_watermark: int) -> int:
    """Return up to where a log may be cleaned."""
    return min(log.last_stable_offset(high_watermark), log.segments.active.base_offset)


def clean_round(
    log: Log, now_ms: int, *, high_watermark: int | None = None, limits: CleaningLimits = LIMITS
) -> CleaningOutcome | None:
    """Do one round as a broker does, in this process; None if there is nothing to clean."""
    end_offset = cleanable_end(log, log.log_end_offset if high_watermark is None else high_watermark)
    first_dirty_offset = max(log.cleaned_offset or 0, log.log_start_offset)
    if end_offset <= log.first_segment_base_offset or end_offset < first_dirty_offset:
        return None
    request, truncations = LogCleaning(log).request(first_dirty_offset, end_offset, limits, now_ms)
    outcome = clean(CleaningRequest.decode(request.encode()))
    take_over(log, outcome, truncations, now_ms)
    return outcome


def take_over(log: Log, outcome: CleaningOutcome, truncations: int, now_ms: int) -> None:
    """Put what was cleaned in its place."""
    opened = [LogCleaning(log).open_cleaned(group, now_ms) for group in outcome.groups]
    for group, segment in zip(outcome.groups, opened, strict=True):
        assert LogCleaning(log).replace(group, segment, truncations, now_ms)
    LogCleaning(log).rename_files()
    LogCleaning(log).note_cleaned(outcome.cleaned_up_to, truncations)


def records_from(log: Log, offset: int) -> list[Kept]:
    """Return what reads from an offset on show, up to the log's end."""
    found: list[Kept] = []
    while offset < log.log_end_offset:
        result = log.read(offset, max_bytes=400, up_to_offset=log.log_end_offset)
        assert result.region is not None
        assert result.next_offset > offset
        data = result.region.read()
        for position, header in iterate_headers(data):
            for record in read_records(data, header, position):
                assert record.offset is not None
                if record.offset >= offset:
                    found.append(
                        Kept(
                            record.offset,
                            record.key,
                            record.value,
                            record.timestamp_ms,
                            record.headers,
                            header.partition_leader_epoch,
                            header.codec,
                            header.producer_id,
                            header.is_control,
                        )
                    )
        offset = result.next_offset
    return found


def committed(log: Log, records: list[Kept]) -> list[Kept]:
    """Return the records that a read_committed consumer shows."""
    aborted = sorted(log.aborted_transactions(0, log.log_end_offset), key=lambda entry: entry.first_offset)
    open_aborted: set[int] = set()
    shown: list[Kept] = []
    for record in records:
        while aborted and aborted[0].first_offset <= record.offset:
            open_aborted.add(aborted.pop(0).producer_id)
        if record.is_control:
            open_aborted.discard(record.producer_id)
        elif record.producer_id not in open_aborted:
            shown.append(record)
    return shown


def state_of(records: list[Kept]) -> dict[bytes, bytes]:
    """Return what a table made of the records holds."""
    table: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table

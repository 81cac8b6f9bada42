"""Recovery of one segment after an unclean stop: its end, its indexes.

The part below the recovery point was fsynced and is trusted, as far as the offset index leads; from there on
every batch is read, its CRC checked and its place in the log (`recovery_rules`). The first byte that is not
part of a sound batch ends the log. The data behind it is kept aside (`cut_files`).
"""

import logging
from collections.abc import Callable

from sparklog.node.storage.index import offset_index, time_index
from sparklog.node.storage.index.index_file import read_used
from sparklog.node.storage.index.time_index import TimestampOffset
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import Cut, SoundPrefix
from sparklog.node.storage.segments.batch_walk import header_at, is_torn_append, walk_headers, walk_with_crc
from sparklog.node.storage.segments.cut_files import cut_segment
from sparklog.node.storage.segments.segment import MAX_RELATIVE_OFFSET, Segment
from sparklog.protocol.records.batch import BatchHeader, CorruptBatchError
from sparklog.protocol.types import Offset

logger = logging.getLogger(__name__)


def indexes_are_sound(segment: Segment, config: LogConfig, *, thorough: bool) -> bool:
    """Adopt the entries of a segment's index files if they match its log; return whether they do.

    Checks the last entries and the log behind them; `thorough` reads every entry.
    """
    offsets, times = segment.offset_index, segment.time_index
    if not segment.size_bytes and not offsets.path.exists() and not times.path.exists():
        return True  # a segment has index files when it has entries
    try:
        offset_bytes, time_bytes = offsets.path.stat().st_size, times.path.stat().st_size
        if offset_bytes % offsets.ENTRY.size or time_bytes % times.ENTRY.size:
            return False
        if thorough and (
            offset_index.sound_entries(offsets.path.read_bytes(), segment.size_bytes) * 8 != offset_bytes
            or time_index.sound_entries(times.path.read_bytes()) * 12 != time_bytes
        ):
            return False
        offsets.adopt(offset_bytes // offsets.ENTRY.size)
        times.adopt(time_bytes // times.ENTRY.size)
        if _last_entries_fit(segment, config):
            segment.load_max_timestamp()
            return True
    except FileNotFoundError:
        return False
    except CorruptBatchError as error:
        logger.warning("An index of %s is wrong: %s", segment.file.path, error)
    return False


def _last_entries_fit(segment: Segment, config: LogConfig) -> bool:
    last = segment.offset_index.last_entry()
    position, size_bytes = (0 if last is None else last.position), segment.size_bytes
    if last is not None:
        if not 0 < position < size_bytes:
            return False
        if header_at(segment.file, position, size_bytes).last_offset != last.last_offset:
            return False
    # A batch that begins more than the interval behind the last entry means that entries are missing.
    start = position
    max_timestamp_ms = -1
    for position, header in walk_headers(segment.file, start, size_bytes):
        if position - start > config.index_interval_bytes:
            return False
        max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp)
    last_time = segment.time_index.last_entry()
    if last_time is None:
        return max_timestamp_ms < 0
    return max_timestamp_ms <= last_time.timestamp_ms and _time_entry_fits(segment, last_time)


def _time_entry_fits(segment: Segment, entry: TimestampOffset) -> bool:
    """Whether the batch that ends with the entry's offset has its timestamp."""
    size_bytes = segment.size_bytes
    position = segment.position_of(entry.offset)
    if position == size_bytes:
        return False
    header = header_at(segment.file, position, size_bytes)
    return header.last_offset == entry.offset and header.max_timestamp == entry.timestamp_ms


def recover_segment(
    segment: Segment,
    recovery_point: Offset,
    config: LogConfig,
    prefix: SoundPrefix,
    checked: Callable[[BatchHeader], None],
) -> Cut | None:
    """Check a segment from `recovery_point` on, rebuild its indexes, cut off a damaged end.

    Calls `checked` for each batch that stays. The segment is sealed afterwards. Returns the cut, if there was
    one; `prefix.end_offset` may then lie in an earlier segment.

    Raises:
        OSError: the files cannot be read or written.
    """
    start, last_offset = _trusted_start(segment, recovery_point)
    segment.make_active(config)
    last_time = segment.time_index.last_entry()
    if last_time is not None:
        segment.max_timestamp_ms, segment.offset_of_max_timestamp = last_time
    if start:
        prefix.end_offset = header_at(segment.file, start, segment.size_bytes).base_offset
    # The trusted batch has an entry already.
    last_entry_position = start
    end = start
    reason: str | None = None
    try:
        for position, header, crc_matches in walk_with_crc(segment.file, start, segment.size_bytes):
            reason = prefix.offer(
                header.base_offset, header.last_offset, header.partition_leader_epoch, crc_matches=crc_matches
            )
            if reason is None and header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
                reason = f"the batch at offset {header.base_offset} is too far from its segment's first"
            if reason is not None:
                break
            if header.max_timestamp > segment.max_timestamp_ms:
                segment.max_timestamp_ms = header.max_timestamp
                segment.offset_of_max_timestamp = header.last_offset
            if (
                position - last_entry_position > config.index_interval_bytes
                and segment.offset_index.entry_count < segment.offset_index.max_entries
            ):
                segment.offset_index.append(header.last_offset, position)
                segment.time_index.maybe_append(segment.max_timestamp_ms, segment.offset_of_max_timestamp)
                last_entry_position = position
            end = position + header.size_bytes
            checked(header)
    except CorruptBatchError as error:
        reason = error.message
    cut = None
    if reason is not None:
        torn = is_torn_append(segment.file, end, segment.size_bytes, prefix.end_offset)
        earlier = prefix.finish()
        cut = Cut(prefix.end_offset, earlier or reason, torn and earlier is None)
        cut_segment(segment, end, cut.reason)
    segment.transaction_index.truncate_to(last_offset)
    segment.seal()
    return cut


def _trusted_start(segment: Segment, recovery_point: Offset) -> tuple[int, Offset]:
    """Keep the trusted index entries below `recovery_point`; return the position from which to read.

    With it comes an offset not above the batch there.
    """
    offsets, times = segment.offset_index, segment.time_index
    kept_offsets = kept_times = position = 0
    last_offset = segment.base_offset
    offset_content, time_content = read_used(offsets.path), read_used(times.path)
    if recovery_point > segment.base_offset:
        sound = offset_index.sound_entries(offset_content, segment.size_bytes)
        low, high = 0, sound
        while low < high:
            middle = (low + high) // 2
            if (
                segment.base_offset + offsets.ENTRY.unpack_from(offset_content, middle * 8)[0]
                < recovery_point
            ):
                low = middle + 1
            else:
                high = middle
        if low:
            relative, candidate = offsets.ENTRY.unpack_from(offset_content, (low - 1) * 8)
            sound_times = time_index.sound_entries(time_content)
            while (
                kept_times < sound_times
                and times.ENTRY.unpack_from(time_content, kept_times * 12)[1] <= relative
            ):
                kept_times += 1
            kept_offsets, position = low, candidate
            last_offset = segment.base_offset + relative
    _write_entries(segment, offset_content[: kept_offsets * 8], time_content[: kept_times * 12])
    if not kept_offsets or _lead_to(segment, position, last_offset):
        return position, last_offset
    _write_entries(segment, b"", b"")
    return 0, segment.base_offset


def _write_entries(segment: Segment, offset_content: bytes, time_content: bytes) -> None:
    for index, content in ((segment.offset_index, offset_content), (segment.time_index, time_content)):
        if content or index.path.exists():
            index.path.write_bytes(content)
        index.adopt(len(content) // index.ENTRY.size)


def _lead_to(segment: Segment, position: int, last_offset: Offset) -> bool:
    """Whether the last index entries match the batch at `position` up to `last_offset`."""
    try:
        header = header_at(segment.file, position, segment.size_bytes)
        if header.last_offset != last_offset:
            return False
        last_time = segment.time_index.last_entry()
        if last_time is None:
            return header.max_timestamp < 0
        return header.max_timestamp <= last_time.timestamp_ms and _time_entry_fits(segment, last_time)
    except CorruptBatchError:
        return False

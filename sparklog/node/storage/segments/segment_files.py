"""The files of a segment: their list, and renaming them.

Readers with open files continue, and a look-up that opens a file finds it under its new name.
"""

from pathlib import Path

from sparklog.node.storage.files import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file,
)
from sparklog.node.storage.segments.segment import Segment


def files_of(segment: Segment) -> list[Path]:
    candidates = (segment.path(suffix) for suffix in SEGMENT_SUFFIXES)
    return [path for path in candidates if path.exists()]


def mark_deleted(segment: Segment) -> list[Path]:
    """Rename the files of a segment that has left its log to `.deleted`; return the new names.

    Raises:
        OSError: one cannot be renamed.
    """
    segment.release()
    return [path.rename(path.with_name(path.name + DELETED_SUFFIX)) for path in files_of(segment)]


def rename_files(segment: Segment, name_suffix: str) -> None:
    """Rename the files to end in `name_suffix`; a failure leaves finished renames in place.

    The log file comes first, as in Kafka: recovery decides by it.

    Raises:
        OSError: one cannot be renamed.
    """
    if segment.name_suffix != name_suffix:
        path = offset_file(segment.directory, segment.base_offset, LOG_SUFFIX + name_suffix)
        segment.file.path.rename(path)
        segment.file.path = path
        segment.name_suffix = name_suffix
    segment.offset_index.rename(segment.path(OFFSET_INDEX_SUFFIX))
    segment.time_index.rename(segment.path(TIME_INDEX_SUFFIX))
    segment.transaction_index.rename(segment.path(TRANSACTION_INDEX_SUFFIX))

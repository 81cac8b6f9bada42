"""Recovery of an interrupted cleaning in a log's directory: completed or undone, as by Kafka's LogLoader.

A cleaning writes segments whose files end in `.cleaned`. To replace its sources by one, its files are renamed
to `.swap`, then those of the sources to `.deleted`, then `.swap` is removed from the names; always the log
file first. So:

- A `.cleaned` file is incomplete, and so is a `.swap` file at or above the lowest of them: they are removed.
- Any other `.swap` segment is complete: the rest of its sources is removed, and it gets its final name.

The result is on the disk before the log is opened: nothing may be appended to a log whose directory differs
after a crash.
"""

import logging
import os
from pathlib import Path

from sparklog.node.storage.file_region import LogFile
from sparklog.node.storage.files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    offset_of,
    sync_directory,
)
from sparklog.node.storage.segments.batch_walk import walk_headers
from sparklog.protocol.types import Offset

logger = logging.getLogger(__name__)


def settled_names(directory: Path) -> frozenset[str]:
    """Return the names of a log's files, once an interrupted cleaning is settled.

    One look for all of them, since a broker opens thousands of logs when it starts.

    Raises:
        CorruptBatchError, OSError: as `settle_interrupted_swap` raises them.
    """
    names = _names_in(directory)
    if any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
        settle_interrupted_swap(directory)
        names = _names_in(directory)
    return names


def _names_in(directory: Path) -> frozenset[str]:
    with os.scandir(directory) as entries:
        return frozenset(entry.name for entry in entries)


def settle_interrupted_swap(directory: Path) -> None:
    """Remove or complete all files of an interrupted cleaning.

    Raises:
        CorruptBatchError: a swapped segment does not consist of batches.
        OSError: the files cannot be read, renamed or removed.
    """
    cleaned = _ending_in(directory, CLEANED_SUFFIX)
    swapped = _ending_in(directory, SWAP_SUFFIX)
    if not cleaned and not swapped:
        return
    first_unfinished = min((offset for offset, _ in cleaned), default=None)
    for offset, path in swapped:
        if first_unfinished is not None and offset >= first_unfinished:
            path.unlink()
    for _, path in cleaned:
        path.unlink()
    finished = [(offset, path) for offset, path in swapped if path.exists()]
    for offset, path in finished:
        if path.name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            end_offset = _end_offset(path, offset)
            logger.info("%s: completing the cleaning of offsets %d to %d", directory, offset, end_offset)
            _remove_replaced(directory, offset, end_offset)
    for _, path in finished:
        path.rename(path.with_name(path.name.removesuffix(SWAP_SUFFIX)))
    sync_directory(directory)


def _ending_in(directory: Path, suffix: str) -> list[tuple[Offset, Path]]:
    """Return the segments' files with a suffix, log files first."""
    found = [
        (offset, path)
        for path in directory.iterdir()
        if path.name.endswith(suffix) and (offset := offset_of(path.name)) is not None
    ]
    return sorted(found, key=lambda entry: (not entry[1].name.endswith(LOG_SUFFIX + suffix), entry[1].name))


def _end_offset(path: Path, base_offset: Offset) -> Offset:
    """Return the offset after a segment's last batch; at least the one after its base offset."""
    file = LogFile.open(path)
    end_offset = base_offset + 1
    for _, header in walk_headers(file, 0, file.size_bytes()):
        end_offset = header.next_offset
    return end_offset


def _remove_replaced(directory: Path, base_offset: Offset, end_offset: Offset) -> None:
    for path in sorted(directory.iterdir()):
        offset = offset_of(path.name)
        if path.name.endswith(SEGMENT_SUFFIXES) and offset is not None and base_offset <= offset < end_offset:
            path.unlink()

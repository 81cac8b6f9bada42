"""Copies of data that recovery cut off a log, beside it: `<segment>.log.cut-<n>`.

A single wrong bit may cut a log; an operator finds the records behind it here. Rules kept: only the newest
few files are kept, each up to a limit; no code reads them; a disk too full for a copy does not stop a
recovery.
"""

import logging
import os
from pathlib import Path
from typing import Final

from sparklog.node.storage.files import NO_SPACE
from sparklog.node.storage.segments.segment import Segment
from sparklog.node.storage.segments.segment_files import files_of

logger = logging.getLogger(__name__)

CUT_FILES_KEPT: Final = 3
CUT_BYTES_KEPT: Final = 64 * 1024 * 1024
_COPY_BYTES: Final = 1024 * 1024


def cut_segment(segment: Segment, end: int, reason: str) -> None:
    """Truncate a segment's log file at the position `end`, after copying the rest.

    Raises:
        OSError: the files cannot be read or written.
    """
    if segment.size_bytes > end:
        keep_copy(segment, end, reason)
        os.ftruncate(segment.file.fileno(), end)
        segment.size_bytes = end


def keep_copy(segment: Segment, start: int, reason: str) -> None:
    """Copy the data of a segment from the position `start` on, before it is cut off.

    Raises:
        OSError: the files cannot be read or written.
    """
    target = _free_name(segment.file.path)
    logger.error(
        "%s is cut at position %d: %s. The %d bytes behind it are kept as %s",
        segment.file.path,
        start,
        reason,
        segment.size_bytes - start,
        target.name,
    )
    _copy(segment.file.fileno(), start, min(segment.size_bytes - start, CUT_BYTES_KEPT), target)
    _remove_oldest(target)


def set_segment_aside(segment: Segment, reason: str) -> None:
    """Remove a whole segment from its log; its log file is renamed to `.cut-<n>`.

    Raises:
        OSError: the files cannot be renamed.
    """
    segment.release()
    log_path = segment.file.path
    for path in files_of(segment):
        if path != log_path:
            path.unlink()
    target = _free_name(log_path)
    logger.error("%s is taken out of its log and kept as %s: %s", log_path, target.name, reason)
    log_path.rename(target)
    _remove_oldest(target)


def _free_name(log_path: Path) -> Path:
    number = 1
    while (path := log_path.with_name(f"{log_path.name}.cut-{number}")).exists():
        number += 1
    return path


def _remove_oldest(newest: Path) -> None:
    others = [path for path in newest.parent.glob("*.log.cut-*") if path != newest]
    others.sort(key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True)
    for path in others[CUT_FILES_KEPT - 1 :]:
        path.unlink()


def _copy(descriptor: int, position: int, length: int, target: Path) -> None:
    try:
        with target.open("wb", buffering=0) as file:
            while length > 0:
                chunk = os.pread(descriptor, min(length, _COPY_BYTES), position)
                if not chunk:
                    break
                file.write(chunk)
                position += len(chunk)
                length -= len(chunk)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        logger.warning("%s has only a part of the data that was cut off: %s", target, error)

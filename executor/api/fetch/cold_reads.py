"""Reads of records that are not in the page cache, done in another thread than the event loop's.

Look-ups on the loop touch nothing that is not there (`Log.read` with `cached_only`); what they need is then
looked up once in another thread (`look_up`). The records are next: `os.sendfile` of a region of a log file
that is not cached (`FileRegion.is_cached`) would stop every connection for as long as the disk takes.
"""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from sparklog.node.storage.file_region import FileRegion
from sparklog.node.storage.log.log import Log
from sparklog.protocol.types import Offset

_CHUNK_BYTES: Final = 1 << 20


class ColdLookUp(NamedTuple):
    """A read that would have blocked the event loop."""

    log: Log
    offset: Offset
    max_bytes: int
    up_to_offset: Offset
    min_one_batch: bool
    with_aborted_transactions: bool

    def run(self) -> None:
        """Read it into the page cache. Blocks.

        Raises:
            KafkaError: as `Log.read` and `Log.aborted_transactions`.
        """
        result = self.log.read(
            self.offset,
            max_bytes=self.max_bytes,
            up_to_offset=self.up_to_offset,
            min_one_batch=self.min_one_batch,
        )
        if self.with_aborted_transactions:
            self.log.aborted_transactions(self.offset, result.next_offset)


def look_up(look_ups: Sequence[ColdLookUp]) -> list[Exception | None]:
    """Do look-ups once, blocking; return the error of each, of any kind, since a request waits for it."""
    errors: list[Exception | None] = []
    for one in look_ups:
        try:
            one.run()
            errors.append(None)
        except Exception as error:  # a mistake of the log's must not leave a request unanswered
            errors.append(error)
    return errors


def warm(regions: Sequence[FileRegion]) -> list[OSError | None]:
    """Read the regions into the page cache, blocking; return the error of each."""
    errors: list[OSError | None] = []
    for region in regions:
        errors.append(None)
        end = region.position + region.length
        position = region.position
        try:
            while position < end:
                read_bytes = len(os.pread(region.fileno(), min(_CHUNK_BYTES, end - position), position))
                if read_bytes == 0:
                    break
                position += read_bytes
        except OSError as error:
            errors[-1] = error
    return errors

"""Regions of log files that are not in the page cache: brought there beside the event loop.

`os.sendfile` of such a region would stop every connection for as long as the disk takes. Whether a region
is cold is judged by its first and last byte, without waiting (preadv2 with RWF_NOWAIT); where the file
system cannot tell, it counts as warm.
"""

import os
from collections.abc import Sequence
from typing import Final

from sparklog.storage.file_region import FileRegion

_CHUNK_BYTES: Final = 1 << 20


def is_cold(region: FileRegion) -> bool:
    """Whether sending the region would have to wait for the disk."""
    byte = bytearray(1)
    try:
        for position in (region.position, region.position + region.length - 1):
            os.preadv(region.fileno(), [byte], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def warm(regions: Sequence[FileRegion]) -> list[OSError | None]:
    """Read the regions once, for the page cache's sake; return what went wrong with each. Blocks."""
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

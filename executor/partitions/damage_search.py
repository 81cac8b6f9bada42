"""The search for damaged records in a region of a log's file, once a follower has asked for it too often.

See `machine/damage.py`.
"""

from sparklog.executor.partitions.machine.damage import Damage
from sparklog.node.storage.file_region import FileRegion
from sparklog.node.storage.segments.batch_walk import walk_with_crc
from sparklog.protocol.records.batch import CorruptBatchError
from sparklog.protocol.types import Offset


def find_damage(region: FileRegion, offset: Offset) -> Damage | None:
    """Return the first damaged batch of a region whose first record is at `offset`.

    Blocks; off the loop.

    Raises:
        OSError: the file cannot be read.
    """
    end = region.position + region.length
    expected = offset
    where = f"{region.file.path} is damaged"
    try:
        for position, header, crc_matches in walk_with_crc(region.file, region.position, end):
            if not crc_matches or header.last_offset < expected:
                return Damage(
                    min(header.base_offset, expected),
                    header.next_offset,
                    f"{where} at position {position}: the CRC of offset {header.base_offset} is another one",
                )
            expected = header.next_offset
    except CorruptBatchError as error:
        return Damage(expected, None, f"{where}: {error.message}")
    return None

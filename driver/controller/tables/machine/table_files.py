"""The files of a topic's table: the tier's segments, and pieces of segments that belong to the table alone.

A segment is a file of the table as it is if all its records count. Of one that an unclean election or
DeleteRecords has cut, and of one whose records lie in several partitions of the table, the table has pieces:
objects of its own below `tables/`. The name of a piece says of which segment it is, and which offsets count,
so that a new driver knows the pieces that a former one has committed.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.node.remote_log.machine.manifest import RemoteSegment
from sparklog.protocol.types import Offset, TimestampMs

TABLES: Final = "tables/"
_SUFFIX: Final = ".parquet"


class LiveFile(NamedTuple):
    name: str
    """Its path below the prefix of the store."""
    partition: int
    first_offset: Offset
    last_offset: Offset
    """Inclusive."""


class ColumnFigures(NamedTuple):
    """The figures of one column of a file; a bound that is not known is None."""

    field_id: int
    value_count: int
    null_count: int
    lower_bound: bytes | None
    upper_bound: bytes | None


@dataclass(frozen=True, slots=True)
class TableFile:
    """All that a snapshot says of a file; the figures are those of its footer, so they are exact."""

    name: str
    partition: int
    first_offset: Offset
    last_offset: Offset
    """Inclusive."""
    first_timestamp_ms: TimestampMs
    """The smallest."""
    max_timestamp_ms: TimestampMs
    record_count: int
    size_bytes: int
    row_group_starts: tuple[int, ...]
    """Positions in the object, at which readers divide it."""
    typed: tuple[ColumnFigures, ...] = ()
    """Of typed columns."""

    @property
    def live(self) -> LiveFile:
        return LiveFile(self.name, self.partition, self.first_offset, self.last_offset)


class Window(NamedTuple):
    """A segment of a manifest, and those of its offsets that count for the table: [start, end)."""

    segment: RemoteSegment
    partition: int
    start_offset: Offset
    end_offset: Offset

    @property
    def piece_stem(self) -> str:
        """Return the beginning of the last part of the names of its pieces."""
        stem = self.segment.name.rpartition("/")[2].removesuffix(_SUFFIX)
        return f"{stem}-{self.start_offset}-{self.end_offset}-"


def table_prefix(topic: str, topic_id: UUID) -> str:
    """Return the path below which a table's own objects lie, with a slash at its end."""
    return f"{TABLES}{topic}-{topic_id}/"


def pieces_prefix(topic: str, topic_id: UUID, partition: int) -> str:
    """Return the path below which the pieces of a partition lie, with a slash at its end."""
    return f"{table_prefix(topic, topic_id)}data/{partition}/"


def piece_name(topic: str, topic_id: UUID, window: Window, value: int) -> str:
    """Return the name of the piece whose records have this value of the table's partition."""
    prefix = pieces_prefix(topic, topic_id, window.partition)
    return f"{prefix}{window.piece_stem}{value}{_SUFFIX}"

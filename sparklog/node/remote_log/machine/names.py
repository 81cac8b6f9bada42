"""The names of objects in the store, below its prefix.

The name of a segment has the leader epoch of its writer, so that a deposed leader, which collects orphans of
its own and of earlier epochs, never deletes the object of a later one.
"""

from typing import Final
from uuid import UUID

from sparklog.protocol.types import LeaderEpoch, Offset

MANIFESTS: Final = "manifests/"
PRODUCERS: Final = "producers/"
SEGMENTS: Final = "segments/"
TABLE_MARKERS: Final = "tables/topics/"
"""An object for each topic whose objects a table may have: they outlive the topic until it is deleted."""


def topic_prefixes(topic: str, topic_id: UUID) -> tuple[str, str, str]:
    """Return the paths below which all of a topic lies, its manifests' last, each with a slash at its end."""
    return f"{SEGMENTS}{topic}-{topic_id}/", f"{PRODUCERS}{topic_id}/", f"{MANIFESTS}{topic_id}/"


def manifest_name(topic_id: UUID, partition: int) -> str:
    return f"{MANIFESTS}{topic_id}/{partition}"


def table_marker_name(topic_id: UUID) -> str:
    """Return the name of the object that says that a table has files of the topic."""
    return f"{TABLE_MARKERS}{topic_id}"


def segments_prefix(topic: str, topic_id: UUID, partition: int) -> str:
    """Return the path below which the segments of a partition lie, with a slash at its end."""
    segments, _, _ = topic_prefixes(topic, topic_id)
    return f"{segments}{partition}/"


def producers_prefix(topic_id: UUID, partition: int) -> str:
    """Return the path below which the producers' snapshots of a partition lie, with a slash at its end."""
    return f"{PRODUCERS}{topic_id}/{partition}/"


def segment_file_name(base_offset: Offset, leader_epoch: LeaderEpoch, unique: str) -> str:
    """Return the last part of the name of a segment.

    >>> segment_file_name(5, 3, "1f00aa07-2")
    '00000000000000000005-0000000003-1f00aa07-2.parquet'
    """
    return f"{base_offset:020d}-{leader_epoch:010d}-{unique}.parquet"


def producers_file_name(end_offset: Offset, leader_epoch: LeaderEpoch, unique: str) -> str:
    """Return the last part of the name of a producers' snapshot."""
    return f"{end_offset:020d}-{leader_epoch:010d}-{unique}.snapshot"


def leader_epoch_of(name: str) -> LeaderEpoch | None:
    """Return the leader epoch in the name of a segment or snapshot; None for a name of another form.

    >>> leader_epoch_of("segments/t-id/0/" + segment_file_name(5, 3, "1f00aa07-2"))
    3
    """
    offset, _, rest = name.rpartition("/")[2].partition("-")
    leader_epoch, _, unique = rest.partition("-")
    if len(offset) != 20 or len(leader_epoch) != 10 or not unique:
        return None
    if not (offset.isascii() and offset.isdigit() and leader_epoch.isascii() and leader_epoch.isdigit()):
        return None
    return int(leader_epoch)

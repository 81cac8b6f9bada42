"""Topics of requests about offsets: by name, or by id from version 10 of OffsetCommit and OffsetFetch.

Offsets are committed under names, with the id of the topic that has the name now.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.registrations import PartitionRegistration
from sparklog.protocol.errors import ErrorCode

FIRST_VERSION_WITH_TOPIC_IDS: Final = 10


class NamedTopic(NamedTuple):
    named: Any
    """Name or id, as the response repeats it."""
    name: str
    topic_id: UUID | None
    partitions: Mapping[int, PartitionRegistration]
    error_code: ErrorCode
    """Error if there is no such topic."""


def named_topic(image: MetadataImage, topic: Any, *, by_id: bool) -> NamedTopic:
    if by_id:
        found = None if topic.topic_id is None else image.topics.by_id.get(topic.topic_id)
        if found is None:
            return NamedTopic(topic.topic_id, "", topic.topic_id, {}, ErrorCode.unknown_topic_id)
        return NamedTopic(topic.topic_id, found.name, found.topic_id, found.partitions, ErrorCode.none)
    found = image.topics.by_name.get(topic.name)
    if found is None:
        return NamedTopic(topic.name, topic.name, None, {}, ErrorCode.unknown_topic_or_partition)
    return NamedTopic(topic.name, topic.name, found.topic_id, found.partitions, ErrorCode.none)

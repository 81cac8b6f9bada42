"""Topics as requests about offsets name them: by name, and by id from version 10 of the two that have it.

Offsets are committed under names, and with the id of the topic that has the name now.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.registrations import PartitionRegistration
from sparklog.protocol.errors import ErrorCode

FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
"""Of OffsetCommit and OffsetFetch."""


class NamedTopic(NamedTuple):
    """A topic that a request names."""

    named: Any
    """Its name or its id, as the answer has to repeat it."""
    name: str
    topic_id: UUID | None
    partitions: Mapping[int, PartitionRegistration]
    error_code: ErrorCode
    """Why there is no such topic."""


def named_topic(image: MetadataImage, topic: Any, *, by_id: bool) -> NamedTopic:
    """Find the topic that a request's item names."""
    if by_id:
        found = None if topic.topic_id is None else image.topics.by_id.get(topic.topic_id)
        if found is None:
            return NamedTopic(topic.topic_id, "", topic.topic_id, {}, ErrorCode.unknown_topic_id)
        return NamedTopic(topic.topic_id, found.name, found.topic_id, found.partitions, ErrorCode.none)
    found = image.topics.by_name.get(topic.name)
    if found is None:
        return NamedTopic(topic.name, topic.name, None, {}, ErrorCode.unknown_topic_or_partition)
    return NamedTopic(topic.name, topic.name, found.topic_id, found.partitions, ErrorCode.none)

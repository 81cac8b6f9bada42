"""Rules for topic names.

Kafka's rule: 1 to 249 characters of `a-z A-Z 0-9 . _ -`, and not `.` or `..`. Two names that differ only in
`.` and `_` may not coexist (their metrics would collide in Kafka). Topic names become directory names, so no
other name may reach the disk.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC

MAX_TOPIC_NAME_LENGTH: Final = 249
CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, "__share_group_state"})

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


class InvalidTopicNameError(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_topic_exception, message)


def check_topic_name(name: str) -> None:
    """Check that a topic may have the name.

    Raises:
        InvalidTopicNameError: it may not; the message has the reason.
    """
    if not name:
        raise InvalidTopicNameError("a topic name must not be empty")
    if name in (".", ".."):
        raise InvalidTopicNameError(f"a topic cannot be named {name!r}")
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        raise InvalidTopicNameError(
            f"{name[:40]}... has {len(name)} characters, a topic name at most {MAX_TOPIC_NAME_LENGTH}"
        )
    if not _LEGAL.match(name):
        raise InvalidTopicNameError(f"topic name {name!r} has characters other than a-z A-Z 0-9 . _ -")


def is_internal_topic(name: str) -> bool:
    """Whether the topic belongs to a coordinator, which creates it and alone writes to it."""
    return name in INTERNAL_TOPICS


def is_made_by_the_cluster(name: str) -> bool:
    """Whether clients may not create a topic of the name: an internal topic, or the metadata log."""
    return name in INTERNAL_TOPICS or name == CLUSTER_METADATA_TOPIC


def collision_key(name: str) -> str:
    """Return the form of a name that two topics must not share.

    >>> collision_key("flights.2013") == collision_key("flights_2013")
    True
    """
    return name.replace(".", "_")


_FIRST_BY_ID: Final = 12
"""Metadata version from which topics may be named by id; the two versions before only have the field."""


def are_topics_named(topics: Iterable[Any] | None, api_version: int) -> bool:
    """Whether a Metadata request names topics as its version permits
    (KafkaApis.handleTopicMetadataRequest)."""
    if topics is None or api_version >= _FIRST_BY_ID:
        return True
    return all(topic.topic_id is None and topic.name is not None for topic in topics)

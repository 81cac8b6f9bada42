"""Metadata and assignments of classic consumers, which are opaque bytes to all other code.

Both begin with an int16 version. A version above the highest known one is read as that: later versions only
add fields at the end.

Source: Kafka's ConsumerProtocol, ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json.
"""

from collections.abc import Collection, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from kio.schema.consumer_protocol_assignment.v0 import data as assignment_v0
from kio.schema.consumer_protocol_assignment.v1 import data as assignment_v1
from kio.schema.consumer_protocol_assignment.v2 import data as assignment_v2
from kio.schema.consumer_protocol_assignment.v3 import data as assignment_v3
from kio.schema.consumer_protocol_subscription.v0 import data as subscription_v0
from kio.schema.consumer_protocol_subscription.v1 import data as subscription_v1
from kio.schema.consumer_protocol_subscription.v2 import data as subscription_v2
from kio.schema.consumer_protocol_subscription.v3 import data as subscription_v3

from sparklog.executor.coordinators.groups.machine.assignors import Assignment
from sparklog.node.metadata.image import TopicsImage
from sparklog.protocol.codec.encoder import encode_to_bytes
from sparklog.protocol.codec.guard import MalformedRequestError, decode_entity
from sparklog.protocol.errors import ErrorCode, KafkaError

MAX_MEMORY_BYTES: Final = 2 << 20
"""Memory limit of one member's decoded metadata: some 30,000 topics; decoding blocks the loop."""
_VERSION: Final = Struct(">h")
_ASSIGNMENTS: Final = (assignment_v0, assignment_v1, assignment_v2, assignment_v3)
_SUBSCRIPTIONS: Final = (
    subscription_v0.ConsumerProtocolSubscription,
    subscription_v1.ConsumerProtocolSubscription,
    subscription_v2.ConsumerProtocolSubscription,
    subscription_v3.ConsumerProtocolSubscription,
)


class MalformedConsumerProtocolError(KafkaError):
    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.inconsistent_group_protocol, f"malformed {what} of the consumer protocol")


class Subscription(NamedTuple):
    topics: frozenset[str]
    owned_partitions: Mapping[str, Collection[int]]
    rack_id: str | None


def read_subscription(metadata: bytes) -> Subscription:
    """Return the subscription in a member's metadata.

    Raises:
        MalformedConsumerProtocolError: they are not of the consumer protocol.
    """
    read = _read(metadata, _SUBSCRIPTIONS, "subscription")
    return Subscription(
        frozenset(read.topics),
        {one.topic: one.partitions for one in getattr(read, "owned_partitions", ())},
        getattr(read, "rack_id", None) or None,
    )


def read_assignment(assignment: bytes) -> tuple[Mapping[str, Collection[int]], bool]:
    """Return a member's assignment, and whether its assignor added user data.

    Raises:
        MalformedConsumerProtocolError: it is not of the consumer protocol.
    """
    entities = tuple(module.ConsumerProtocolAssignment for module in _ASSIGNMENTS)
    read = _read(assignment, entities, "assignment")
    return {one.topic: one.partitions for one in read.assigned_partitions}, bool(read.user_data)


def write_assignment(assignment: Assignment, topics: TopicsImage, metadata: bytes) -> bytes:
    """Return an assignment in the version of a member's `metadata`; deleted topics are left out.

    Raises:
        MalformedConsumerProtocolError: the member's metadata are not of the consumer protocol.
    """
    version = _version(metadata, "subscription")
    module = _ASSIGNMENTS[version]
    partitions_of = {
        topics.by_id[topic_id].name: tuple(sorted(partitions))
        for topic_id, partitions in assignment.items()
        if topic_id in topics.by_id
    }
    entity = module.ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            module.TopicPartition(topic=name, partitions=partitions_of[name])
            for name in sorted(partitions_of)
        ),
        user_data=None,
    )
    return _VERSION.pack(version) + encode_to_bytes(entity)


def _version(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise MalformedConsumerProtocolError(what)
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MalformedConsumerProtocolError(what)
    return min(version, len(_ASSIGNMENTS) - 1)


def _read(data: bytes, entities: tuple[type[Any], ...], what: str) -> Any:
    entity = entities[_version(data, what)]
    try:
        read, _ = decode_entity(entity, data, _VERSION.size, MAX_MEMORY_BYTES)
    except MalformedRequestError as error:
        raise MalformedConsumerProtocolError(what) from error
    return read

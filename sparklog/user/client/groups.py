"""Groups as reported by their coordinators: their list, their members, their committed offsets.

Each broker is asked once; groups of brokers that fail are missing, and the failures are returned.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.offset_fetch.v9.request import OffsetFetchRequest, OffsetFetchRequestGroup

from sparklog.protocol.codec.guard import MalformedRequestError, decode_entity
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, TopicPartition, unless_minus_one
from sparklog.user.client.broker_requests import ask_brokers
from sparklog.user.client.cluster_client import ClusterClient

CONSUMER_TYPE: Final = "consumer"
"""Type of the groups of KIP-848; the others are classic groups."""
_CONSUMER_PROTOCOL: Final = "consumer"
_DEAD: Final = "Dead"
"""State of a classic group that does not exist."""
_NO_SUCH_GROUP: Final = (ErrorCode.group_id_not_found, ErrorCode.invalid_group_id)
"""The second is the answer for the empty name, which only a classic group may have."""
_VERSION_BYTES: Final = 2


class ListedGroup(NamedTuple):
    group_id: str
    group_type: str
    state: str
    protocol_type: str
    coordinator: BrokerId


class GroupListing(NamedTuple):
    groups: tuple[ListedGroup, ...]
    failures: Mapping[BrokerId, KafkaError]


class GroupMember(NamedTuple):
    """A member; `assignment` None is unreadable, since its protocol is a client's own."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...] | None
    member_epoch: int | None = None
    subscription: str | None = None


class GroupDescription(NamedTuple):
    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    group_epoch: int | None = None
    assignment_epoch: int | None = None


class GroupDescriptions(NamedTuple):
    groups: Mapping[str, GroupDescription]
    failures: Mapping[BrokerId, KafkaError]


class CommittedOffset(NamedTuple):
    offset: Offset
    leader_epoch: LeaderEpoch | None
    metadata: str


def list_groups(cluster: ClusterClient, brokers: Iterable[BrokerId]) -> GroupListing:
    responses, failures = ask_brokers(cluster, dict.fromkeys(brokers, ListGroupsRequest()))
    groups = list[ListedGroup]()
    for broker_id, response in responses.items():
        if response.error_code is not ErrorCode.none:
            failures[broker_id] = KafkaError(
                response.error_code, f"broker {broker_id} refused to list its groups"
            )
            continue
        groups.extend(
            ListedGroup(each.group_id, each.group_type, each.group_state, each.protocol_type, broker_id)
            for each in response.groups
        )
    return GroupListing(tuple(groups), failures)


def describe_groups(
    cluster: ClusterClient, classic: Mapping[str, BrokerId], consumer: Mapping[str, BrokerId]
) -> GroupDescriptions:
    """Describe groups of either type, given with the coordinator of each.

    Groups that do not exist, or not with this type, are missing.
    """
    described, failures = dict[str, GroupDescription](), dict[BrokerId, KafkaError]()
    for broker_groups, request, description in (
        (_by_broker(classic), _classic_request, _classic_group),
        (_by_broker(consumer), _consumer_request, _consumer_group),
    ):
        answers = ask_brokers(cluster, {broker: request(ids) for broker, ids in broker_groups.items()})
        failures.update(answers.failures)
        for broker_id, response in answers.responses.items():
            for each in response.groups:
                if each.error_code in _NO_SUCH_GROUP:
                    continue
                if each.error_code is not ErrorCode.none:
                    what = f"broker {broker_id} refused to describe group {each.group_id}"
                    failures[broker_id] = KafkaError(each.error_code, what)
                elif each.group_state != _DEAD:
                    described[each.group_id] = description(each)
    return GroupDescriptions(described, failures)


def committed_offsets(
    cluster: ClusterClient, groups: Mapping[str, BrokerId]
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """Fetch all committed offsets of groups; a refused group is missing."""
    requests = {
        broker_id: OffsetFetchRequest(
            groups=tuple(OffsetFetchRequestGroup(group_id=each, topics=None) for each in group_ids)
        )
        for broker_id, group_ids in _by_broker(groups).items()
    }
    return {
        group.group_id: {
            TopicPartition(topic.name, each.partition_index): CommittedOffset(
                each.committed_offset, unless_minus_one(each.committed_leader_epoch), each.metadata or ""
            )
            for topic in group.topics
            for each in topic.partitions
            if each.error_code is ErrorCode.none and each.committed_offset >= 0
        }
        for response in ask_brokers(cluster, requests).responses.values()
        for group in response.groups
        if group.error_code is ErrorCode.none
    }


def _by_broker(groups: Mapping[str, BrokerId]) -> dict[BrokerId, list[str]]:
    by_broker = defaultdict[BrokerId, list[str]](list)
    for group_id, broker_id in groups.items():
        by_broker[broker_id].append(group_id)
    return by_broker


def _classic_request(group_ids: Iterable[str]) -> Any:
    return DescribeGroupsRequest(groups=tuple(group_ids), include_authorized_operations=False)


def _consumer_request(group_ids: Iterable[str]) -> Any:
    return ConsumerGroupDescribeRequest(group_ids=tuple(group_ids), include_authorized_operations=False)


def _classic_group(group: Any) -> GroupDescription:
    is_of_consumers = group.protocol_type == _CONSUMER_PROTOCOL
    return GroupDescription(
        group_id=group.group_id,
        group_type="classic",
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=_read_assignment(member.member_assignment) if is_of_consumers else None,
            )
            for member in group.members
        ),
    )


def _consumer_group(group: Any) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        group_type=CONSUMER_TYPE,
        state=group.group_state,
        protocol_type=_CONSUMER_PROTOCOL,
        assignor=group.assignor_name,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=tuple(
                    TopicPartition(topic.topic_name, partition)
                    for topic in member.assignment.topic_partitions
                    for partition in topic.partitions
                ),
                member_epoch=member.member_epoch,
                subscription=", ".join(
                    filter(None, (*member.subscribed_topic_names, member.subscribed_topic_regex))
                ),
            )
            for member in group.members
        ),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )


def _read_assignment(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """Parse a consumer's assignment; all versions begin like the first one.

    >>> _read_assignment(b"\\0\\1" + b"\\0\\0\\0\\1\\0\\1a" + b"\\0\\0\\0\\1\\0\\0\\0\\7" + b"\\xff" * 4)
    (TopicPartition(topic='a', partition=7),)
    >>> _read_assignment(b""), _read_assignment(b"of a client's own")
    ((), None)
    """
    if not assignment:  # nothing was assigned yet
        return ()
    try:
        read, _ = decode_entity(ConsumerProtocolAssignment, assignment, _VERSION_BYTES)
    except MalformedRequestError:
        return None
    return tuple(
        TopicPartition(topic.topic, partition)
        for topic in read.assigned_partitions
        for partition in topic.partitions
    )

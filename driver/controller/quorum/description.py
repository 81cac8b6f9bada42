"""The leader of the metadata log, its voters, and each replica's progress.

For the driver itself, and for the response to DescribeQuorum (KIP-595, KIP-853). The response counts the
leader among the voters, although this one has no vote: Kafka's tools look for the leader there, and measure
the lag of the others by it.

Source: Kafka's RaftUtil.singletonDescribeQuorumResponse and MetadataQuorumCommand.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.endpoints import CONTROLLER_LISTENER, Endpoint
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, BrokerId, LeaderEpoch, Offset, TimestampMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """A voter, or an observer that fetches; a voter that has not fetched yet has no values."""

    key: VoterKey
    is_voter: bool
    log_end_offset: Offset | None
    last_fetch_age_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The metadata log as its leader sees it at one moment."""

    leader_epoch: LeaderEpoch
    high_watermark: Offset
    log_end_offset: Offset
    has_majority: bool
    replicas: tuple[ReplicaDescription, ...]
    """The voters first."""


def describe_quorum(quorum: QuorumLeader, log_end_offset: Offset, now_ms: int) -> QuorumDescription:
    """Return the leader's state; `now_ms` is of the clock by which the fetches were noted."""
    voters = quorum.voters.keys
    described = []
    for key in (*sorted(voters), *sorted(quorum.replicas.keys() - voters)):
        replica = quorum.replicas.get(key)
        described.append(
            ReplicaDescription(
                key=key,
                is_voter=key in voters,
                log_end_offset=None if replica is None else replica.log_end_offset,
                last_fetch_age_ms=None if replica is None else now_ms - replica.last_fetch_ms,
            )
        )
    return QuorumDescription(
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        log_end_offset=log_end_offset,
        has_majority=quorum.has_majority(now_ms),
        replicas=tuple(described),
    )


def describe_quorum_response(
    quorum: QuorumLeader,
    request: Any,
    *,
    endpoints: Sequence[Endpoint],
    log_end_offset: Offset,
    now_ms: int,
) -> DescribeQuorumResponse:
    """Return the response of the leader, which listens at `endpoints`.

    `now_ms` is of the clock by which the fetches were noted.
    """
    partition = _partition(quorum, log_end_offset, now_ms)
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    partition
                    if topic.topic_name == CLUSTER_METADATA_TOPIC and asked.partition_index == 0
                    else _unknown(asked.partition_index)
                    for asked in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=(
            *(
                _node(voter.key.node_id, [Endpoint(CONTROLLER_LISTENER, voter.host, voter.port)])
                for voter in quorum.voters
            ),
            _node(CONTROLLER_ID, endpoints),
        ),
    )


def _node(node_id: BrokerId, endpoints: Iterable[Endpoint]) -> Node:
    return Node(
        node_id=node_id,
        listeners=tuple(Listener(name=each.name, host=each.host, port=each.port) for each in endpoints),
    )


def _partition(quorum: QuorumLeader, log_end_offset: Offset, now_ms: int) -> PartitionData:
    clocks_differ_ms = wall_clock_ms() - now_ms
    voters = quorum.voters.keys
    leader = ReplicaState(
        replica_id=CONTROLLER_ID,
        replica_directory_id=None,
        log_end_offset=log_end_offset,
        last_fetch_timestamp=clocks_differ_ms + now_ms,
        last_caught_up_timestamp=clocks_differ_ms + now_ms,
    )
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=CONTROLLER_ID,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=(*(_state(quorum, key, clocks_differ_ms) for key in sorted(voters)), leader),
        observers=tuple(
            _state(quorum, key, clocks_differ_ms) for key in sorted(quorum.replicas) if key not in voters
        ),
    )


def _state(quorum: QuorumLeader, key: VoterKey, clocks_differ_ms: TimestampMs) -> ReplicaState:
    replica = quorum.replicas.get(key)
    if replica is None:
        return ReplicaState(replica_id=key.node_id, replica_directory_id=key.directory_id, log_end_offset=-1)
    caught_up_ms = replica.last_caught_up_ms
    return ReplicaState(
        replica_id=key.node_id,
        replica_directory_id=key.directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=clocks_differ_ms + replica.last_fetch_ms,
        last_caught_up_timestamp=-1 if caught_up_ms is None else clocks_differ_ms + caught_up_ms,
    )


def _unknown(partition_index: int) -> PartitionData:
    return PartitionData(
        partition_index=partition_index,
        error_code=ErrorCode.unknown_topic_or_partition,
        error_message="only the metadata log has a quorum",
        leader_id=-1,
        leader_epoch=-1,
        high_watermark=-1,
        current_voters=(),
        observers=(),
    )

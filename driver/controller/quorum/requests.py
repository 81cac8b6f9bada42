"""The driver's requests to brokers about the metadata log, and their responses (KIP-595, KIP-996)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse
from kio.schema.begin_quorum_epoch.v1 import request as begin_quorum_epoch
from kio.schema.end_quorum_epoch.v1 import request as end_quorum_epoch
from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kio.schema.vote.v2 import request as vote

from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.quorum.machine.candidate import AnnouncedBroker, AskVote
from sparklog.node.calling.list_offsets_request import AskedOffset, list_offsets_request
from sparklog.node.endpoints import CONTROLLER_LISTENER
from sparklog.node.metadata_log.machine.log_position import EMPTY_LOG, LogPosition
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.storage.results import LATEST_TIMESTAMP
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID, LeaderEpoch

COPY_MAX_BYTES: Final = 8 * 1024 * 1024
_METADATA_LOG: Final[Mapping[str, Mapping[int, LeaderEpoch]]] = {CLUSTER_METADATA_TOPIC: {0: -1}}
"""The metadata log in any leader epoch."""


class BrokerAnswerError(KafkaError):
    """A broker answered with an error of its own; here nothing has failed."""


def announced_broker(request: AddRaftVoterRequest) -> AnnouncedBroker:
    """Return the broker that announces itself.

    Raises:
        KafkaError: INVALID_REQUEST: no directory id, or no listener of the quorum.
    """
    listener = next((each for each in request.listeners if each.name == CONTROLLER_LISTENER), None)
    if listener is None or request.voter_directory_id is None:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"broker {request.voter_id} names no directory, or no {CONTROLLER_LISTENER} listener",
        )
    key = VoterKey(request.voter_id, request.voter_directory_id)
    return AnnouncedBroker(key, request.cluster_id, listener.host, listener.port)


def announcement_response(error_code: ErrorCode, message: str | None = None) -> AddRaftVoterResponse:
    return unthrottled(AddRaftVoterResponse, error_code=error_code, error_message=message)


def log_end_request(
    leader_epochs: Mapping[str, Mapping[int, LeaderEpoch]] = _METADATA_LOG,
) -> Any:
    """Return the request for the ends of a broker's copies of logs, by topic and partition.

    A named leader epoch is one that the broker must know.
    """
    return list_offsets_request(
        AskedOffset(topic, number, LATEST_TIMESTAMP, epoch)
        for topic, partitions in leader_epochs.items()
        for number, epoch in partitions.items()
    )


def log_end_of(response: Any) -> LogPosition:
    """Return the end of the broker's copy of the metadata log.

    Raises:
        BrokerAnswerError: the response has an error.
    """
    return _log_end(only_partition(response.topics))


def log_ends_of(response: Any) -> dict[tuple[str, int], LogPosition]:
    """Return the ends of the copies that the broker could report, by topic and partition."""
    return {
        (topic.name, partition.partition_index): _log_end(partition)
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code is ErrorCode.none
    }


def _log_end(partition: Any) -> LogPosition:
    return LogPosition(max(partition.leader_epoch, EMPTY_LOG.last_epoch), max(partition.offset, 0))


def copy_request(position: LogPosition) -> FetchRequest:
    """Return the request for a broker's copy from `position` on, in any epoch."""
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=position.end_offset,
        last_fetched_epoch=-1 if position == EMPTY_LOG else position.last_epoch,
        partition_max_bytes=COPY_MAX_BYTES,
    )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=CONTROLLER_ID),
        max_wait=timedelta(),
        min_bytes=0,
        max_bytes=COPY_MAX_BYTES,
        topics=(FetchTopic(topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def vote_request(cluster_id: str | None, directory_id: UUID, ask: AskVote) -> vote.VoteRequest:
    """Return a request for a vote; `directory_id` tells this driver from others with the same node id."""
    partition = vote.PartitionData(
        partition_index=0,
        replica_epoch=ask.leader_epoch,
        replica_id=CONTROLLER_ID,
        replica_directory_id=directory_id,
        voter_directory_id=ask.key.directory_id,
        last_offset_epoch=ask.position.last_epoch,
        last_offset=ask.position.end_offset,
        pre_vote=ask.pre_vote,
    )
    return vote.VoteRequest(
        cluster_id=cluster_id,
        voter_id=ask.key.node_id,
        topics=(vote.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(partition,)),),
    )


def begin_quorum_epoch_request(
    cluster_id: str, key: VoterKey, leader_epoch: LeaderEpoch, host: str, port: int
) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    partition = begin_quorum_epoch.PartitionData(
        partition_index=0,
        voter_directory_id=key.directory_id,
        leader_id=CONTROLLER_ID,
        leader_epoch=leader_epoch,
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=key.node_id,
        topics=(begin_quorum_epoch.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=(begin_quorum_epoch.LeaderEndpoint(name=CONTROLLER_LISTENER, host=host, port=port),),
    )


def end_quorum_epoch_request(
    cluster_id: str, leader_epoch: LeaderEpoch
) -> end_quorum_epoch.EndQuorumEpochRequest:
    """Return the announcement that this leader leaves; only another driver may succeed it."""
    partition = end_quorum_epoch.PartitionData(
        partition_index=0,
        leader_id=CONTROLLER_ID,
        leader_epoch=leader_epoch,
        preferred_candidates=(),
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=(end_quorum_epoch.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=(),
    )


def only_partition(topics: Any) -> Any:
    """Return the metadata log's part of a response.

    Raises:
        BrokerAnswerError: the response has an error, or no such part.
    """
    partitions = [partition for topic in topics for partition in topic.partitions]
    if len(partitions) != 1:
        raise BrokerAnswerError(
            ErrorCode.unknown_server_error, "the response has no partition of the metadata log"
        )
    if partitions[0].error_code is not ErrorCode.none:
        raise BrokerAnswerError(partitions[0].error_code, "the broker has no metadata log to show")
    return partitions[0]

"""The APIs of a broker's CONTROLLER listener: votes, leaders, its copy of the metadata log, its logs' ends.

The copy is served up to its end, whether committed or not: a candidate takes over the longest log, and only
a majority's votes then say what of it counts. Nothing is held open; a candidate asks again.
"""

import logging
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from kio.schema.begin_quorum_epoch.v1 import response as begin_response
from kio.schema.describe_quorum.v2 import response as describe_response
from kio.schema.end_quorum_epoch.v1 import response as end_response
from kio.schema.list_offsets.v11 import response as list_offsets_response
from kio.schema.vote.v2 import response as vote_response

from sparklog.executor.metadata.machine.quorum_voter import QuorumAnswer, VoteRequest
from sparklog.executor.metadata.metadata_replica import MetadataReplica
from sparklog.node.apis.listeners import listener_apis
from sparklog.node.apis.row import Side
from sparklog.node.clocks import monotonic_ms
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata_log.log_serving import ServedLog, fetch_refusal
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.metadata_log.snapshot_serving import fetch_snapshot_response
from sparklog.node.serving.requests import Api, Handler, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.serving.turns import in_task
from sparklog.node.storage.results import LATEST_TIMESTAMP
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.codec.versions import upgrade, upgrade_in_steps
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, LeaderEpoch, or_minus_one, unless_minus_one

logger = logging.getLogger(__name__)

_NO_DIRECTORY: Final = UUID(int=0)


class QuorumHandlers:
    def __init__(
        self, replica: MetadataReplica, log_end: Callable[[str, int, LeaderEpoch], LogPosition]
    ) -> None:
        """`log_end` returns the end of another log by topic, partition and leader epoch."""
        self._replica = replica
        self._log_end = log_end
        self._voter = replica.voter
        self.endpoint: Endpoint | None = None
        """Where the listener is reached, once that is known."""

    def table(self) -> dict[ApiKey, Api]:
        handlers: dict[ApiKey, Handler] = {
            ApiKey.VOTE: self.vote,
            ApiKey.BEGIN_QUORUM_EPOCH: self.begin_quorum_epoch,
            ApiKey.END_QUORUM_EPOCH: self.end_quorum_epoch,
            ApiKey.FETCH: self.fetch,
            ApiKey.FETCH_SNAPSHOT: self.fetch_snapshot,
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.DESCRIBE_QUORUM: self.describe_quorum,
        }
        return listener_apis(Side.QUORUM, handlers)

    async def vote(self, request: Request) -> Any:
        """Answer Vote, once the vote is on disk."""
        body = upgrade(request.body)
        asked = _only_partition(body)
        if asked is None:
            return vote_response.VoteResponse(error_code=ErrorCode.invalid_request, topics=())
        vote = self._replica.vote(
            VoteRequest(
                cluster_id=body.cluster_id,
                voter_id=unless_minus_one(body.voter_id),
                voter_directory_id=asked.voter_directory_id,
                candidate=VoterKey(asked.replica_id, asked.replica_directory_id or _NO_DIRECTORY),
                candidate_epoch=asked.replica_epoch,
                log=LogPosition(asked.last_offset_epoch, asked.last_offset),
                pre_vote=asked.pre_vote,
            ),
            monotonic_ms(),
        )
        answer = await in_task(vote)  # a task waits for its write even if its connection goes
        return _quorum_response(vote_response, "VoteResponse", answer, vote_granted=answer.vote_granted)

    async def begin_quorum_epoch(self, request: Request) -> Any:
        """Answer BeginQuorumEpoch, once the leader is on disk."""
        body = upgrade(request.body)
        asked = _only_partition(body)
        if asked is None:
            return begin_response.BeginQuorumEpochResponse(error_code=ErrorCode.invalid_request, topics=())
        known = self._voter.election
        answer = self._voter.begin_quorum_epoch(
            body.cluster_id,
            asked.leader_id,
            asked.leader_epoch,
            unless_minus_one(body.voter_id),
            asked.voter_directory_id,
        )
        await in_task(self._replica.settled())
        if answer.error_code is not ErrorCode.none:
            logger.warning("A leader of epoch %d is refused: %s", asked.leader_epoch, answer.error_code.name)
        elif self._voter.election != known:
            logger.info("Following the leader of epoch %d", asked.leader_epoch)
        return _quorum_response(begin_response, "BeginQuorumEpochResponse", answer)

    async def end_quorum_epoch(self, request: Request) -> Any:
        body = upgrade(request.body)
        asked = _only_partition(body)
        if asked is None:
            return end_response.EndQuorumEpochResponse(error_code=ErrorCode.invalid_request, topics=())
        answer = self._voter.end_quorum_epoch(body.cluster_id, asked.leader_id, asked.leader_epoch)
        await in_task(self._replica.settled())
        return _quorum_response(end_response, "EndQuorumEpochResponse", answer)

    def fetch(self, request: Request) -> Any:
        """Answer Fetch from this copy of the metadata log; a candidate that copies it names no epoch."""
        body, election = upgrade(request.body), self._voter.election
        if body.cluster_id not in (None, self._replica.cluster_id):
            return fetch_refusal(ErrorCode.inconsistent_cluster_id)
        served = ServedLog(
            self._replica.log,
            self._replica.snapshots,
            election.leader_id,
            election.leader_epoch,
            self._voter.high_watermark,
        )
        return served.answer(body)

    def fetch_snapshot(self, request: Request) -> Any:
        """Answer FetchSnapshot from the snapshots beside the copy."""
        election = self._voter.election
        return fetch_snapshot_response(
            upgrade(request.body),
            self._replica.snapshots.region,
            cluster_id=self._replica.cluster_id,
            leader_id=election.leader_id,
            leader_epoch=election.leader_epoch,
        )

    async def list_offsets(self, request: Request) -> Response:
        """Answer ListOffsets: the end of each log here, committed or not, and its last record's leader epoch.

        Candidates ask for the metadata log; an unclean recovery (KIP-966) asks for others, of any replica.
        """
        topics = []
        for topic in (await upgrade_in_steps(request.body)).topics:
            partitions = []
            for partition in topic.partitions:
                partitions.append(self._latest_offset(topic.name, partition))
                await turn()
            topics.append(
                list_offsets_response.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions))
            )
            await turn()
        return unthrottled(list_offsets_response.ListOffsetsResponse, topics=tuple(topics))

    def _latest_offset(self, topic: str, partition: Any) -> Any:
        number = partition.partition_index
        try:
            if partition.timestamp != LATEST_TIMESTAMP:
                raise KafkaError(ErrorCode.invalid_request, "here only the latest offset can be asked for")
            if (topic, number) == (CLUSTER_METADATA_TOPIC, 0):
                position = self._replica.position
            else:
                position = self._log_end(topic, number, partition.current_leader_epoch)
        except KafkaError as error:
            return list_offsets_response.ListOffsetsPartitionResponse(
                partition_index=number, error_code=error.error_code
            )
        return list_offsets_response.ListOffsetsPartitionResponse(
            partition_index=number,
            error_code=ErrorCode.none,
            offset=position.end_offset,
            leader_epoch=position.last_epoch,
        )

    def describe_quorum(self, request: Request) -> Any:
        """Answer DescribeQuorum as known here; only the leader knows the others' progress."""
        voter, election = self._voter, self._voter.election
        own_state = describe_response.ReplicaState(
            replica_id=voter.key.node_id,
            replica_directory_id=voter.key.directory_id,
            log_end_offset=self._replica.log.log_end_offset,
        )
        partition = describe_response.PartitionData(
            partition_index=0,
            error_code=ErrorCode.none,
            error_message=None,
            leader_id=or_minus_one(election.leader_id),
            leader_epoch=election.leader_epoch,
            high_watermark=or_minus_one(voter.high_watermark),
            current_voters=(),
            observers=(own_state,),
        )
        endpoint = self.endpoint
        assert endpoint is not None, "a listener that answers has an address"
        listener = describe_response.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
        return describe_response.DescribeQuorumResponse(
            error_code=ErrorCode.none,
            error_message=None,
            topics=(describe_response.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(partition,)),),
            nodes=(describe_response.Node(node_id=voter.key.node_id, listeners=(listener,)),),
        )


def _only_partition(body: Any) -> Any | None:
    """Return the row of the metadata log in a quorum request; None unless it is the only row."""
    if len(body.topics) != 1 or len(body.topics[0].partitions) != 1:
        return None
    topic = body.topics[0]
    partition = topic.partitions[0]
    return partition if (topic.topic_name, partition.partition_index) == (CLUSTER_METADATA_TOPIC, 0) else None


def _quorum_response(schema: Any, name: str, answer: QuorumAnswer, **more: bool) -> Any:
    """Return the response of `schema` for `answer`; another cluster's request is refused as a whole."""
    response = getattr(schema, name)
    if answer.error_code is ErrorCode.inconsistent_cluster_id:
        return response(error_code=answer.error_code, topics=())
    partition = schema.PartitionData(
        partition_index=0,
        error_code=answer.error_code,
        leader_id=or_minus_one(answer.leader_id),
        leader_epoch=answer.leader_epoch,
        **more,
    )
    topic = schema.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(partition,))
    return response(error_code=ErrorCode.none, topics=(topic,))

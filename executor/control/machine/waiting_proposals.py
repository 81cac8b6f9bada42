"""The ISR proposals of one broker's leaders on their way to the controller, many in one AlterPartition.

Pure. At most one request is under way; what is proposed meanwhile goes into the next. Each proposal is
answered exactly once. Retrying is the partition leader's business: only it knows whether the proposal stands.

Order for the caller: `add` at any time; `next_request`, and while it returns one, send that, report what came
of it to `answered`, and ask again.

Source: Kafka's AlterPartitionManager; KIP-497, KIP-903 (broker epochs).
"""

import logging
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.alter_partition.v3 import AlterPartitionRequest
from kio.schema.alter_partition.v3.request import BrokerState, PartitionData, TopicData

from executor.control.isr_proposer import IsrAnswered
from sparklog.errors import ErrorCode
from sparklog.types import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicIdPartition

__all__ = ["IsrProposal", "WaitingProposals"]

logger = logging.getLogger(__name__)


class IsrProposal(NamedTuple):
    """What one leader proposes, and who hears the answer."""

    topic_id: UUID
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    new_isr: tuple[tuple[BrokerId, BrokerEpoch], ...]
    done: IsrAnswered


class WaitingProposals:
    """What has been proposed and not been answered."""

    def __init__(self) -> None:
        self._waiting: list[IsrProposal] = []
        self._under_way: list[IsrProposal] = []

    def add(self, proposal: IsrProposal) -> None:
        """Have the proposal go with one of the next requests."""
        self._waiting.append(proposal)

    def clear(self) -> None:
        """Forget everything: nobody is left to act on it."""
        self._waiting.clear()
        self._under_way.clear()

    def next_request(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> Any:
        """Return an AlterPartition request with the oldest proposal of each partition; None if none waits.

        A younger one of the same partition would only fail beside it.
        """
        assert not self._under_way, "one request at a time"
        taken: dict[TopicIdPartition, IsrProposal] = {}
        left: list[IsrProposal] = []
        for proposal in self._waiting:
            key = TopicIdPartition(proposal.topic_id, proposal.partition)
            if taken.setdefault(key, proposal) is not proposal:
                left.append(proposal)
        self._waiting, self._under_way = left, list(taken.values())
        return _request(broker_id, broker_epoch, self._under_way) if taken else None

    def answered(self, response: Any) -> None:
        """Tell every proposal of the last request what became of it; `response` is None if that was lost."""
        proposals, self._under_way = self._under_way, []
        if response is None or response.error_code is not ErrorCode.none:
            error_code = ErrorCode.network_exception if response is None else response.error_code
            logger.warning("%d ISR proposals were not decided: %s", len(proposals), error_code.name)
            for proposal in proposals:
                proposal.done(error_code, (), 0, 0)
            return
        answers = {
            TopicIdPartition(topic.topic_id, partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        for proposal in proposals:
            answer = answers.get(TopicIdPartition(proposal.topic_id, proposal.partition))
            if answer is None:
                proposal.done(ErrorCode.unknown_server_error, (), 0, 0)
            else:
                proposal.done(answer.error_code, answer.isr, answer.leader_epoch, answer.partition_epoch)


def _request(broker_id: BrokerId, broker_epoch: BrokerEpoch, proposals: list[IsrProposal]) -> Any:
    by_topic: dict[UUID, list[Any]] = {}
    for proposal in proposals:
        by_topic.setdefault(proposal.topic_id, []).append(
            PartitionData(
                partition_index=proposal.partition,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=tuple(
                    BrokerState(broker_id=member, broker_epoch=epoch) for member, epoch in proposal.new_isr
                ),
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=tuple(
            TopicData(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic.items()
        ),
    )

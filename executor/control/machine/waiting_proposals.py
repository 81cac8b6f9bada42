"""The ISR proposals of one broker's leaders on their way to the controller, many in one AlterPartition.

Pure. At most one request is in flight; later proposals go into the next one. Each proposal is answered
exactly once. Retries are up to the partition leader: only it knows whether the proposal stands.

Order for the caller: `add` at any time; `next_topics`, and while it returns some, send them, report the
result to `answered`, and ask again.

Source: Kafka's AlterPartitionManager; KIP-497, KIP-903 (broker epochs).
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.alter_partition.v3.request import BrokerState, PartitionData, TopicData

from sparklog.executor.partitions.isr_proposer import IsrAnswered
from sparklog.executor.partitions.machine.events import IsrProposalAnswered, ProposeIsr
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TopicIdPartition, or_minus_one

logger = logging.getLogger(__name__)


class _WaitingProposal(NamedTuple):
    partition: TopicIdPartition
    proposal: ProposeIsr
    answered: IsrAnswered


class WaitingProposals:
    def __init__(self) -> None:
        self._waiting: list[_WaitingProposal] = []
        self._under_way: list[_WaitingProposal] = []

    def add(self, partition: TopicIdPartition, proposal: ProposeIsr, answered: IsrAnswered) -> None:
        self._waiting.append(_WaitingProposal(partition, proposal, answered))

    def next_topics(self) -> Sequence[TopicData]:
        """Return an AlterPartition request's topics, with the oldest proposal of each partition.

        A younger one of the same partition in the same request would only fail.
        """
        assert not self._under_way, "one request at a time"
        taken: dict[TopicIdPartition, _WaitingProposal] = {}
        left: list[_WaitingProposal] = []
        for waiting in self._waiting:
            if taken.setdefault(waiting.partition, waiting) is not waiting:
                left.append(waiting)
        self._waiting, self._under_way = left, list(taken.values())
        return _topics(self._under_way)

    def answered(self, response: Any, now_ms: int) -> None:
        """Answer every proposal of the last request; `response` is None if it was lost."""
        under_way, self._under_way = self._under_way, []
        if response is None or response.error_code is not ErrorCode.none:
            error_code = ErrorCode.network_exception if response is None else response.error_code
            logger.warning("%d ISR proposals were not decided: %s", len(under_way), error_code.name)
            for waiting in under_way:
                waiting.answered(_undecided(waiting.proposal, error_code, now_ms))
            return
        answers = {
            TopicIdPartition(topic.topic_id, partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        for waiting in under_way:
            answer = answers.get(waiting.partition)
            if answer is None:
                waiting.answered(_undecided(waiting.proposal, ErrorCode.unknown_server_error, now_ms))
            else:
                waiting.answered(
                    IsrProposalAnswered(
                        waiting.proposal,
                        answer.error_code,
                        frozenset(answer.isr),
                        answer.leader_epoch,
                        answer.partition_epoch,
                        now_ms,
                    )
                )


def _undecided(proposal: ProposeIsr, error_code: ErrorCode, now_ms: int) -> IsrProposalAnswered:
    return IsrProposalAnswered(proposal, error_code, frozenset(), 0, 0, now_ms)


def _topics(proposals: list[_WaitingProposal]) -> Sequence[TopicData]:
    by_topic: dict[UUID, list[PartitionData]] = {}
    for partition, proposal, _ in proposals:
        by_topic.setdefault(partition.topic_id, []).append(
            PartitionData(
                partition_index=partition.partition,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=tuple(
                    BrokerState(broker_id=member, broker_epoch=or_minus_one(epoch))
                    for member, epoch in proposal.new_isr
                ),
                partition_epoch=proposal.partition_epoch,
            )
        )
    return tuple(
        TopicData(topic_id=topic_id, partitions=tuple(partitions))
        for topic_id, partitions in by_topic.items()
    )

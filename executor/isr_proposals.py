"""Sends partition leaders' ISR proposals to the controller, many in one AlterPartition.

At most one request is under way; what is proposed meanwhile goes into the next. Each proposal is answered
exactly once. Retrying is the partition leader's business: only it knows whether the proposal still stands.

Source: Kafka's AlterPartitionManager; KIP-497, KIP-903 (broker epochs).
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.alter_partition.v3 import AlterPartitionRequest
from kio.schema.alter_partition.v3.request import BrokerState, PartitionData, TopicData

from executor.controller_link import ControllerLink
from executor.replication.isr_proposer import IsrAnswered
from executor.sending import Sending
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicIdPartition

__all__ = ["IsrProposals"]

logger = logging.getLogger(__name__)


class _Proposal(NamedTuple):
    topic_id: UUID
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    new_isr: tuple[tuple[BrokerId, BrokerEpoch], ...]
    done: IsrAnswered


class IsrProposals:
    """The `IsrProposer` of one broker; belongs to its event loop."""

    def __init__(
        self, link: ControllerLink, broker_id: BrokerId, broker_epoch: Callable[[], BrokerEpoch]
    ) -> None:
        self._link = link
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._waiting: list[_Proposal] = []
        self._sending = Sending(self._send_waiting)

    def propose(
        self,
        topic_id: UUID,
        partition: int,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        new_isr: tuple[tuple[BrokerId, BrokerEpoch], ...],
        done: IsrAnswered,
    ) -> None:
        """Queue the proposal; `done` is called once, never before this returns."""
        self._waiting.append(_Proposal(topic_id, partition, leader_epoch, partition_epoch, new_isr, done))
        self._sending.begin()

    async def close(self) -> None:
        """Stop sending; proposals that were not answered stay so, since nobody is left to act on them."""
        self._waiting.clear()
        await self._sending.close()

    async def _send_waiting(self) -> None:
        while self._waiting:
            proposals = self._take_one_a_partition()
            try:
                response = await self._link.request(self._request(proposals))
            except KafkaError as error:
                logger.warning("%d ISR proposals were not answered: %s", len(proposals), error)
                _answer_all(proposals, ErrorCode.network_exception)
            else:
                _answer_each(proposals, response)

    def _take_one_a_partition(self) -> list[_Proposal]:
        """Take the oldest proposal of each partition; a younger one would only fail beside it."""
        taken: dict[TopicIdPartition, _Proposal] = {}
        left: list[_Proposal] = []
        for proposal in self._waiting:
            key = TopicIdPartition(proposal.topic_id, proposal.partition)
            if taken.setdefault(key, proposal) is not proposal:
                left.append(proposal)
        self._waiting = left
        return list(taken.values())

    def _request(self, proposals: list[_Proposal]) -> Any:
        by_topic: dict[UUID, list[Any]] = {}
        for proposal in proposals:
            by_topic.setdefault(proposal.topic_id, []).append(
                PartitionData(
                    partition_index=proposal.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=tuple(
                        BrokerState(broker_id=broker_id, broker_epoch=broker_epoch)
                        for broker_id, broker_epoch in proposal.new_isr
                    ),
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=tuple(
                TopicData(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in by_topic.items()
            ),
        )


def _answer_all(proposals: list[_Proposal], error_code: ErrorCode) -> None:
    for proposal in proposals:
        proposal.done(error_code, (), 0, 0)


def _answer_each(proposals: list[_Proposal], response: Any) -> None:
    if response.error_code is not ErrorCode.none:
        logger.warning(
            "the controller refused %d ISR proposals: %s", len(proposals), response.error_code.name
        )
        _answer_all(proposals, response.error_code)
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

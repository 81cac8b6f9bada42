"""ISR proposals on their way to the controller: batched, and each answered once."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.alter_partition.v3.response import AlterPartitionResponse, PartitionData, TopicData

from sparklog.executor.control.senders import AlterPartitionSender, BrokerRequests
from sparklog.executor.partitions.machine.events import IsrProposalAnswered, ProposeIsr
from sparklog.node.serving.requests import Deferred, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, LeaderEpoch, PartitionEpoch, TopicIdPartition
from tests.unit.executor.controller_script import linked_controller

TOPIC = UUID(int=77)
NO_TIME = timedelta(0)
Answer = tuple[ErrorCode, tuple[BrokerId, ...], LeaderEpoch, PartitionEpoch]


class Answers:
    """Collects what proposals are answered with."""

    def __init__(self) -> None:
        self.received: dict[int, Answer] = {}
        self.count = 0

    def for_partition(self, partition: int) -> Any:
        """Return the callback for a partition's proposal."""

        def done(answer: IsrProposalAnswered) -> None:
            isr = tuple(sorted(answer.isr))
            self.received[partition] = (answer.error_code, isr, answer.leader_epoch, answer.partition_epoch)
            self.count += 1

        return done

    async def wait_for(self, count: int) -> None:
        """Return when that many answers have come."""
        async with asyncio.timeout(10):
            while self.count < count:  # noqa: ASYNC110 - the callbacks are plain functions
                await asyncio.sleep(0.001)


def accepted(request: Any) -> AlterPartitionResponse:
    """Return the answer that commits everything proposed, but refuses partition 9."""
    return AlterPartitionResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        topics=tuple(
            TopicData(
                topic_id=topic.topic_id,
                partitions=tuple(
                    PartitionData(
                        partition_index=partition.partition_index,
                        error_code=(
                            ErrorCode.fenced_leader_epoch
                            if partition.partition_index == 9
                            else ErrorCode.none
                        ),
                        leader_id=1,
                        leader_epoch=partition.leader_epoch,
                        isr=tuple(member.broker_id for member in partition.new_isr_with_epochs),
                        partition_epoch=partition.partition_epoch + 1,
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def test_isr_proposals_of_many_partitions_share_requests_and_get_their_own_answers() -> None:
    """A broker's death changes the ISR of a thousand partitions at once."""

    async def scenario() -> None:
        bodies: list[Any] = []
        first = Deferred()

        def alter_partition(request: Request) -> Any:
            bodies.append(request.body)
            return first if len(bodies) == 1 else accepted(request.body)

        async with linked_controller({ApiKey.ALTER_PARTITION: alter_partition}) as (_, link):
            proposals = AlterPartitionSender(BrokerRequests(link, 1, lambda: 42))
            answers = Answers()
            proposals.propose(
                TopicIdPartition(TOPIC, 0), ProposeIsr(5, 7, ((1, 42), (2, 43))), answers.for_partition(0)
            )
            async with asyncio.timeout(10):
                while not bodies:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            for partition in (1, 2, 9):
                proposals.propose(
                    TopicIdPartition(TOPIC, partition),
                    ProposeIsr(5, 7, ((1, 42),)),
                    answers.for_partition(partition),
                )
            proposals.propose(
                TopicIdPartition(TOPIC, 1), ProposeIsr(6, 9, ((1, 42),)), answers.for_partition(100)
            )
            first.complete(accepted(bodies[0]))
            await answers.wait_for(5)
            await proposals.close()
        assert [sum(len(topic.partitions) for topic in body.topics) for body in bodies] == [1, 3, 1]
        assert (bodies[0].broker_id, bodies[0].broker_epoch) == (1, 42)
        assert answers.received == {
            0: (ErrorCode.none, (1, 2), 5, 8),
            1: (ErrorCode.none, (1,), 5, 8),
            2: (ErrorCode.none, (1,), 5, 8),
            9: (ErrorCode.fenced_leader_epoch, (1,), 5, 8),
            100: (ErrorCode.none, (1,), 6, 10),
        }

    asyncio.run(scenario())


def test_isr_proposal_whose_answer_is_lost_is_reported_as_such() -> None:
    """The proposal may have been committed: the leader must know that it does not know."""

    async def scenario() -> None:
        def lose(request: Request) -> Any:
            request.connection.close()  # type: ignore[attr-defined]
            return Deferred()

        async with linked_controller({ApiKey.ALTER_PARTITION: lose}) as (_, link):
            proposals = AlterPartitionSender(BrokerRequests(link, 1, lambda: 42))
            answers = Answers()
            proposals.propose(
                TopicIdPartition(TOPIC, 0), ProposeIsr(5, 7, ((1, 42),)), answers.for_partition(0)
            )
            await answers.wait_for(1)
            await proposals.close()
        assert answers.received[0][0] is ErrorCode.network_exception

    asyncio.run(scenario())


def test_isr_proposals_refused_as_a_whole_all_get_the_error() -> None:
    """A stale broker epoch is told once for the request, and concerns every proposal in it."""

    async def scenario() -> None:
        def refuse(request: Request) -> Any:
            return AlterPartitionResponse(
                throttle_time=NO_TIME, error_code=ErrorCode.stale_broker_epoch, topics=()
            )

        async with linked_controller({ApiKey.ALTER_PARTITION: refuse}) as (_, link):
            proposals = AlterPartitionSender(BrokerRequests(link, 1, lambda: 42))
            answers = Answers()
            for partition in range(3):
                proposals.propose(
                    TopicIdPartition(TOPIC, partition),
                    ProposeIsr(5, 7, ((1, 42),)),
                    answers.for_partition(partition),
                )
            await answers.wait_for(3)
            await proposals.close()
        assert {answer[0] for answer in answers.received.values()} == {ErrorCode.stale_broker_epoch}

    asyncio.run(scenario())

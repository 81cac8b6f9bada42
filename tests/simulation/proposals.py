"""A broker's ISR proposals on their way to the controller; mirrors `executor.isr_proposals`.

One request is under way at a time, with one proposal a partition.
"""

from typing import TYPE_CHECKING, Any

from kio.schema.alter_partition.v3 import AlterPartitionRequest
from kio.schema.alter_partition.v3.request import BrokerState as IsrMember
from kio.schema.alter_partition.v3.request import PartitionData, TopicData

from executor.replication.leader_events import ProposeIsr
from executor.replication.replica import Replica
from sparklog.errors import ErrorCode
from sparklog.types import TopicIdPartition
from tests.simulation.network import Link

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess


class Proposals:
    """The proposals of one broker."""

    def __init__(self, broker: "BrokerProcess", link: Link) -> None:
        self._broker = broker
        self._link = link
        self._waiting: list[tuple[Replica, ProposeIsr]] = []
        self._is_sending = False

    def propose(self, replica: Replica, proposal: ProposeIsr) -> None:
        """Queue a proposal; the replica is told the answer."""
        self._waiting.append((replica, proposal))
        if not self._is_sending:
            self._is_sending = True
            self._broker.after(0, self._send)

    def _send(self) -> None:
        taken: dict[TopicIdPartition, tuple[Replica, ProposeIsr]] = {}
        left = []
        for entry in self._waiting:
            if taken.setdefault(_key(entry[0]), entry) is not entry:
                left.append(entry)
        self._waiting = left
        self._is_sending = bool(taken)
        if not taken:
            return
        topics = tuple(
            TopicData(topic_id=key.topic_id, partitions=(_partition_data(key.partition, proposal),))
            for key, (_, proposal) in taken.items()
        )
        for key, (_, proposal) in taken.items():
            self._broker.world.tell(key, f"{self._broker.name} proposes {proposal}")
        request = AlterPartitionRequest(
            broker_id=self._broker.broker_id, broker_epoch=self._broker.broker_epoch, topics=topics
        )
        timeout_ms = self._broker.world.config.controller_quorum_request_timeout_ms
        self._link.request(request, timeout_ms, lambda response: self._answered(taken, response))

    def _answered(self, taken: dict[TopicIdPartition, tuple[Replica, ProposeIsr]], response: Any) -> None:
        answers: dict[TopicIdPartition, Any] = {}
        failure = ErrorCode.network_exception
        if response is not None:
            failure = response.error_code
            for topic in response.topics:
                for partition in topic.partitions:
                    answers[TopicIdPartition(topic.topic_id, partition.partition_index)] = partition
        for key, (replica, proposal) in taken.items():
            if key in answers:
                answer = answers[key]
                outcome = (answer.error_code, answer.isr, answer.leader_epoch, answer.partition_epoch)
            else:
                outcome = (failure, (), 0, 0)
            self._broker.world.tell(
                key, f"{self._broker.name}'s proposal is answered {outcome[0].name} {outcome[1]}"
            )
            replica.isr_proposal_answered(proposal, *outcome, self._broker.now_ms)
            if replica.leader is not None and replica.leader.wants_tick:
                self._broker.wants_tick[replica] = None
        self._send()


def _key(replica: Replica) -> TopicIdPartition:
    return TopicIdPartition(replica.topic_id, replica.topic_partition.partition)


def _partition_data(partition: int, proposal: ProposeIsr) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        leader_epoch=proposal.leader_epoch,
        new_isr_with_epochs=tuple(
            IsrMember(broker_id=broker_id, broker_epoch=-1 if broker_epoch is None else broker_epoch)
            for broker_id, broker_epoch in proposal.new_isr
        ),
        partition_epoch=proposal.partition_epoch,
    )

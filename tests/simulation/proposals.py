"""A broker's ISR proposals on their way to the controller, as `WaitingProposals` puts them into requests."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from executor.control.machine.waiting_proposals import IsrProposal, WaitingProposals
from executor.partitions.machine.events import ProposeIsr
from executor.partitions.replica import Replica
from sparklog.errors import ErrorCode
from sparklog.types import BrokerId, LeaderEpoch, PartitionEpoch, TopicIdPartition
from tests.simulation.network import Link

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess


class Proposals:
    """The proposals of one broker."""

    def __init__(self, broker: "BrokerProcess", link: Link) -> None:
        self._broker = broker
        self._link = link
        self._waiting = WaitingProposals()
        self._is_sending = False

    def propose(self, replica: Replica, proposal: ProposeIsr) -> None:
        """Queue a proposal; the replica is told the answer."""
        broker, world = self._broker, self._broker.world
        key = TopicIdPartition(replica.topic_id, replica.topic_partition.partition)

        def answered(
            error_code: ErrorCode,
            isr: Sequence[BrokerId],
            leader_epoch: LeaderEpoch,
            partition_epoch: PartitionEpoch,
        ) -> None:
            world.tell(key, f"{broker.name}'s proposal is answered {error_code.name} {tuple(isr)}")
            replica.isr_proposal_answered(
                proposal, error_code, isr, leader_epoch, partition_epoch, broker.now_ms
            )
            if replica.leader is not None and replica.leader.wants_tick:
                broker.wants_tick[replica] = None

        new_isr = tuple((member, -1 if epoch is None else epoch) for member, epoch in proposal.new_isr)
        world.tell(key, f"{broker.name} proposes {proposal}")
        self._waiting.add(
            IsrProposal(*key, proposal.leader_epoch, proposal.partition_epoch, new_isr, answered)
        )
        if not self._is_sending:
            self._is_sending = True
            broker.after(0, self._send)

    def _send(self) -> None:
        request = self._waiting.next_request(self._broker.broker_id, self._broker.broker_epoch)
        self._is_sending = request is not None
        if self._is_sending:
            timeout_ms = self._broker.world.config.controller_quorum_request_timeout_ms
            self._link.request(request, timeout_ms, self._answered)

    def _answered(self, response: Any) -> None:
        self._waiting.answered(response)
        self._send()

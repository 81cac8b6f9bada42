"""A broker's ISR proposals on their way to the controller, as `WaitingProposals` puts them into requests."""

from typing import TYPE_CHECKING, Any

from kio.schema.alter_partition.v3 import AlterPartitionRequest

from sparklog.executor.control.machine.waiting_proposals import WaitingProposals
from sparklog.executor.partitions.isr_proposer import IsrAnswered
from sparklog.executor.partitions.machine.events import IsrProposalAnswered, ProposeIsr
from sparklog.protocol.types import TopicIdPartition
from tests.simulation.network import Link

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess


class Proposals:
    """The `IsrProposer` of one broker."""

    def __init__(self, broker: "BrokerProcess", link: Link) -> None:
        self._broker = broker
        self._link = link
        self._waiting = WaitingProposals()
        self._is_sending = False

    def propose(self, partition: TopicIdPartition, proposal: ProposeIsr, answered: IsrAnswered) -> None:
        """Queue a proposal."""
        broker, world = self._broker, self._broker.world

        def told(answer: IsrProposalAnswered) -> None:
            outcome = f"{answer.error_code.name} {tuple(sorted(answer.isr))}"
            world.tell(partition, f"{broker.name}'s proposal is answered {outcome}")
            answered(answer)

        world.tell(partition, f"{broker.name} proposes {proposal}")
        self._waiting.add(partition, proposal, told)
        if not self._is_sending:
            self._is_sending = True
            broker.after(0, self._send)

    def _send(self) -> None:
        topics = self._waiting.next_topics()
        self._is_sending = bool(topics)
        if self._is_sending:
            broker_id, broker_epoch = self._broker.broker_id, self._broker.broker_epoch
            assert broker_epoch is not None, "only a registered broker leads"
            request = AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=topics)
            timeout_ms = self._broker.world.config.controller_quorum_request_timeout_ms
            self._link.request(request, timeout_ms, self._answered)

    def _answered(self, response: Any) -> None:
        self._waiting.answered(response, self._broker.now_ms)
        self._send()

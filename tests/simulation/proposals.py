"""A broker's ISR proposals on their way to the controller, as `WaitingProposals` puts them into requests."""

from typing import TYPE_CHECKING, Any

from executor.control.machine.waiting_proposals import WaitingProposals
from executor.partitions.machine.events import IsrProposalAnswered, ProposeIsr
from executor.partitions.replica import Replica
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

        def answered(answer: IsrProposalAnswered) -> None:
            outcome = f"{answer.error_code.name} {tuple(sorted(answer.isr))}"
            world.tell(replica.key, f"{broker.name}'s proposal is answered {outcome}")
            replica.isr_proposal_answered(answer)
            if replica.leader is not None and replica.leader.wants_tick:
                broker.wants_tick[replica] = None

        world.tell(replica.key, f"{broker.name} proposes {proposal}")
        self._waiting.add(replica.key, proposal, answered)
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
        self._waiting.answered(response, self._broker.now_ms)
        self._send()

"""The seam through which a partition leader asks the controller for another ISR.

The leader may not act on a proposal before it is committed (KIP-497); the proposer batches proposals of
many partitions into one AlterPartition request and reports each answer once.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from sparklog.executor.partitions.machine.events import IsrProposalAnswered, ProposeIsr
from sparklog.protocol.types import TopicIdPartition

IsrAnswered: TypeAlias = Callable[[IsrProposalAnswered], None]
"""Called once, on the loop thread.

A request that could not be sent at all, or whose answer was lost, is reported as
`ErrorCode.network_exception` (the proposal may have been committed).
"""


class IsrProposer(Protocol):
    def propose(self, partition: TopicIdPartition, proposal: ProposeIsr, answered: IsrAnswered) -> None:
        """Send the proposal; must not block, nor call `answered` before it returns."""
        ...

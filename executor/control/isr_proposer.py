"""The seam through which a partition leader asks the controller for another ISR.

The leader may not act on a proposal before it is committed (KIP-497); the proposer batches proposals of
many partitions into one AlterPartition request and reports each answer once.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias
from uuid import UUID

from sparklog.errors import ErrorCode
from sparklog.types import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch

IsrAnswered: TypeAlias = Callable[[ErrorCode, Sequence[BrokerId], LeaderEpoch, PartitionEpoch], None]
"""Called once on the loop thread: (error, isr, leader_epoch, partition_epoch).

With an error the other three are meaningless. A request that could not be sent at all, or whose answer
was lost, is reported as `ErrorCode.network_exception` (the proposal may have been committed).
"""


class IsrProposer(Protocol):
    """Sends AlterPartition for this broker."""

    def propose(
        self,
        topic_id: UUID,
        partition: int,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        new_isr: tuple[tuple[BrokerId, BrokerEpoch], ...],
        done: IsrAnswered,
    ) -> None:
        """Ask for `new_isr`, given as (broker id, broker epoch) pairs (KIP-903); must not block."""
        ...

"""Where the tiers of this broker's partitions end: below, the local log may drop records, or compact them.

A leader knows the manifest. A follower asks its leader, so that it drops nothing that is not in the tier yet
(KIP-405 has a topic of metadata for that).
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol, TypeVar

from sparklog.executor.fetching.leader_offsets import LeaderOffsets, LedPartition
from sparklog.executor.partitions.partition_tier_view import PartitionTierView
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, TopicPartition

logger = logging.getLogger(__name__)


class TieredReplica(Protocol):
    """A replica as far as its tier's end is concerned."""

    topic_partition: TopicPartition
    leader_id: BrokerId | None
    leader_epoch: LeaderEpoch | None
    tier: PartitionTierView | None

    @property
    def leadership(self) -> object | None:
        """The machine of the partition's leader; None on a follower."""


_Replica = TypeVar("_Replica", bound=TieredReplica)


class TieredEnds:
    def __init__(self, offsets: LeaderOffsets) -> None:
        self._offsets = offsets

    async def of(self, replicas: Iterable[_Replica]) -> dict[_Replica, Offset]:
        """Return the ends of those replicas whose tiers are known."""
        ends: dict[_Replica, Offset] = {}
        followed: dict[BrokerId, dict[TopicPartition, _Replica]] = {}
        for replica in replicas:
            if replica.leadership is not None:
                end = None if replica.tier is None else replica.tier.tiered_end_offset
                if end is not None:
                    ends[replica] = end
            elif replica.leader_id is not None:
                followed.setdefault(replica.leader_id, {})[replica.topic_partition] = replica
        for found in await asyncio.gather(*(self._ask(*each) for each in followed.items())):
            ends.update(found)
        return ends

    async def _ask(
        self, leader_id: BrokerId, followed: dict[TopicPartition, _Replica]
    ) -> dict[_Replica, Offset]:
        epochs = {partition: replica.leader_epoch for partition, replica in followed.items()}
        led = [LedPartition(partition, epoch) for partition, epoch in epochs.items() if epoch is not None]
        try:
            ends = await self._offsets.tiered_ends(leader_id, led)
        except KafkaError as error:
            logger.info("The tiers' ends of %d partitions are not known: %s", len(led), error)
            return {}
        return {
            followed[partition]: end
            for partition, end in ends.items()
            # Another leader may have another tier.
            if followed[partition].leader_epoch == epochs[partition]
        }

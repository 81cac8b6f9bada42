"""Where the tiers of this broker's partitions end: below, the local log may drop records, or compact them.

A leader knows the manifest. A follower asks its leader, so that it drops nothing that is not in the tier yet
(KIP-405 has a topic of metadata for that).
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from sparklog.executor.fetching.leader_offsets import LedPartition
from sparklog.executor.partitions.partition_tier_view import PartitionTierView
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, TopicPartition

logger = logging.getLogger(__name__)


class LeadersOfTiers(Protocol):
    """The questions to leaders: `LeaderOffsets`."""

    async def tiered_ends(
        self, leader_id: BrokerId, led: Sequence[LedPartition]
    ) -> dict[TopicPartition, Offset]: ...


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
    def __init__(self, offsets: LeadersOfTiers) -> None:
        self._offsets = offsets

    async def of(self, replicas: Iterable[_Replica]) -> dict[_Replica, Offset]:
        """Return the ends of those replicas whose tiers are known, in their present leader epochs.

        After an unclean election the tier may end before, and the log have other records from there on.
        """
        epochs = {replica: replica.leader_epoch for replica in replicas}
        followed: dict[BrokerId, dict[TopicPartition, _Replica]] = {}
        for replica in epochs:
            if replica.leadership is None and replica.leader_id is not None:
                followed.setdefault(replica.leader_id, {})[replica.topic_partition] = replica
        ends: dict[_Replica, Offset | None] = {}
        for found in await asyncio.gather(*(self._ask(*each) for each in followed.items())):
            ends.update(found)
        for replica in epochs:
            if replica.leadership is not None:
                ends[replica] = None if replica.tier is None else replica.tier.tiered_end_offset
        return {
            replica: end
            for replica, end in ends.items()
            if end is not None and replica.leader_epoch == epochs[replica]
        }

    async def _ask(
        self, leader_id: BrokerId, followed: dict[TopicPartition, _Replica]
    ) -> dict[_Replica, Offset]:
        led = [
            LedPartition(partition, replica.leader_epoch)
            for partition, replica in followed.items()
            if replica.leader_epoch is not None
        ]
        try:
            ends = await self._offsets.tiered_ends(leader_id, led)
        except KafkaError as error:
            logger.info("The tiers' ends of %d partitions are not known: %s", len(led), error)
            return {}
        return {followed[partition]: end for partition, end in ends.items()}

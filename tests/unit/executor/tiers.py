"""Tiers of brokers in one process: manifests made of a leader's log, as if its records were in a store."""

from dataclasses import dataclass, field
from uuid import UUID

from sparklog.executor.fetching.tier_building import TierState
from sparklog.executor.partitions.replica import Replica
from sparklog.node.remote_log.machine.manifest import EpochStart, Manifest
from sparklog.node.remote_log.object_store import ObjectStore, StoreError
from sparklog.node.storage.producers.producer_snapshots import encode_snapshot
from sparklog.protocol.types import Offset


@dataclass
class Tier:
    """The tier of a partition; set as `Replica.tier`, and read by followers (`read`)."""

    manifest: Manifest
    producers: bytes
    tiered_end_offset: Offset | None
    failures: list[StoreError] = field(default_factory=list)
    """The results of the next reads, before one that succeeds."""
    reads: int = 0

    @classmethod
    def of(cls, replica: Replica) -> "Tier":
        """Return the tier that has the whole log of a leader by now."""
        log, producers = replica.log, encode_snapshot(replica.log.producers.capture())
        manifest = Manifest(
            topic=replica.topic_partition.topic,
            topic_id=replica.topic_id,
            partition=replica.topic_partition.partition,
            owner_epoch=1,
            leader_epoch=replica.leader_epoch or 0,
            log_start_offset=log.log_start_offset,
            end_offset=log.log_end_offset,
            segments=(),
            leader_epochs=tuple(EpochStart(*entry) for entry in log.epochs.entries),
            producers="producers",
            unreferenced=(),
            written_ms=0,
        )
        return cls(manifest, producers, log.log_end_offset)

    @property
    def store(self) -> ObjectStore:
        raise AssertionError("nothing here reads records")

    async def read(self, topic_id: UUID, partition: int) -> TierState:
        """Return what a follower needs of it."""
        assert (topic_id, partition) == (self.manifest.topic_id, self.manifest.partition)
        self.reads += 1
        if self.failures:
            raise self.failures.pop(0)
        return TierState(self.manifest, self.producers)

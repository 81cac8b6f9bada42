"""What must hold in every step; each check names its invariant when it fails."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from sparklog.executor.tiering.machine.partition_tier import PartitionTier
from sparklog.executor.tiering.machine.plans import next_merge, next_rewrite
from sparklog.node.remote_log.machine.lineage import Lineage, compare
from sparklog.node.remote_log.machine.manifest import Manifest, RemoteSegment
from sparklog.node.remote_log.machine.manifest_changes import named_objects
from sparklog.node.remote_log.machine.periods import period_of
from sparklog.node.storage.machine.leader_epochs import EpochEntry, LeaderEpochs
from sparklog.protocol.types import Offset
from tests.simulation.tiering.local_log import Record

if TYPE_CHECKING:
    from tests.simulation.tiering.broker import Broker
    from tests.simulation.tiering.world import World

LAG_SLACK_MS: Final = 12_000
"""Of requests to a store that works, and of ticks."""


class Violation(Exception):  # noqa: N818  (what it is, not an error of the simulator)
    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(invariant, message)
        self.invariant = invariant
        self.message = message

    def __str__(self) -> str:
        return f"{self.invariant}: {self.message}"


class Check:
    def __init__(self, world: "World") -> None:
        self._world: Final = world
        self._newest_writer = (0, 0)

    def fail(self, invariant: str, message: str) -> None:
        raise Violation(invariant, message)

    def is_superseded(self, offset: Offset, record: Record, end_offset: Offset) -> bool:
        """Return whether compaction may have removed a record: its key has a later one below `end_offset`."""
        return self._world.config.compacts and self._world.truth.has_later(record.key, offset, end_offset)

    # --- local logs -----------------------------------------------------------------------------

    def dropped(self, broker: "Broker", offsets: Iterable[Offset]) -> None:
        """LocalDropsAreNamed: a manifest that is in the store names each record that a log drops."""
        world, truth = self._world, self._world.truth
        stored = world.store.objects.get(world.manifest_name)
        if not truth.counts(broker):
            return
        segments = () if stored is None else stored.content.segments
        tier = world.records_of(segments)
        if tier is None:
            self.fail("NamedIsNeverDeleted", "the manifest names a missing object")
            return
        end_offset = 0 if stored is None else stored.content.end_offset
        for offset in offsets:
            record = truth.visible(offset, offset + 1).get(offset)
            if record is None or tier.get(offset) == record:
                continue
            if not self.is_superseded(offset, record, end_offset):
                self.fail("LocalDropsAreNamed", f"{broker} has dropped {offset}, which no named object has")

    def stepped(self, broker: "Broker") -> None:
        """OffsetsInOrder: log start <= tier's end, and local records or the tier at every offset."""
        tier, log = broker.tier, broker.log
        if tier is None or tier.manifest is None or tier.ended is not None or not tier.may_serve:
            return
        manifest = tier.manifest
        if not manifest.log_start_offset <= manifest.end_offset:
            self.fail("OffsetsInOrder", f"{broker}: log start {manifest.log_start_offset}")
        if tier.tiered_end_offset is not None and tier.tiered_end_offset > log.high_watermark:
            high_watermark = max(log.high_watermark, self._world.truth.end_offset)
            if tier.tiered_end_offset > high_watermark:
                self.fail("OffsetsInOrder", f"{broker}: the tier ends above the high watermark")

    def leads_as_whole(self, broker: "Broker") -> None:
        """WholeHasAll: a log with evidence that it lacks nothing is not merely a part of its tier."""
        world, log = self._world, broker.log
        stored = world.store.objects.get(world.manifest_name)
        application = broker.application
        is_current = application is world.application and broker.leader_epoch == application.leader_epoch
        if stored is None or not is_current:
            return
        manifest: Manifest = stored.content
        if compare(manifest, log.facts().leader_epochs, log.end_offset).lineage is Lineage.ADOPTED:
            self.fail(
                "WholeHasAll",
                f"{broker} would serve up to {log.end_offset} without its tier, up to {manifest.end_offset}",
            )

    # --- the store ------------------------------------------------------------------------------

    def swapped(
        self, broker: "Broker", tier: PartitionTier, before: Manifest | None, after: Manifest
    ) -> None:
        """A manifest has come into the store."""
        writer = (after.owner_epoch, after.leader_epoch)
        if writer != (tier.owner_epoch, tier.leader_epoch):
            self.fail("DeposedChangesNothing", f"{broker} writes a manifest of another's epochs {writer}")
        if writer < self._newest_writer:
            self.fail(
                "DeposedChangesNothing", f"{broker} replaces a manifest of {self._newest_writer} as {writer}"
            )
        self._newest_writer = writer
        self._objects_are_there(after)
        if writer >= self._world.truth.since and self._world.truth.is_known_to(writer[0]):
            self._tier_is_whole(before, after)
            if before is not None:
                self._start_is_allowed(before, after)
        self._world.truth.log_start_offset = max(
            self._world.truth.log_start_offset,
            after.log_start_offset if writer >= self._world.truth.since else 0,
        )

    def _objects_are_there(self, manifest: Manifest) -> None:
        for name in named_objects(manifest):
            if name not in self._world.store.objects:
                self.fail("NamedIsNeverDeleted", f"a manifest names {name}, which is not there")

    def _tier_is_whole(self, before: Manifest | None, manifest: Manifest) -> None:
        """TierIsWhole: committed records in exactly one segment each, with their offset and epoch."""
        world = self._world
        end_offset = manifest.log_start_offset
        for segment in manifest.segments:
            if segment.end_offset <= segment.base_offset or segment.end_offset <= manifest.log_start_offset:
                self.fail("TierIsWhole", f"{segment.name} has nothing that counts")
            if end_offset > segment.base_offset > manifest.log_start_offset:
                self.fail("TierIsWhole", f"{segment.name} begins below {end_offset}")
            end_offset = segment.end_offset
        if end_offset > manifest.end_offset:
            self.fail("TierIsWhole", f"a segment reaches above the end {manifest.end_offset}")
        tier = world.records_of(manifest.segments)
        assert tier is not None
        self._pieces_have_one_period(manifest.segments)
        epochs = LeaderEpochs(EpochEntry(*entry) for entry in manifest.leader_epochs)
        committed = world.truth.visible(manifest.log_start_offset, manifest.end_offset)
        for offset, record in committed.items():
            if epochs.epoch_at(offset) != record.leader_epoch:
                self.fail("TierIsWhole", f"offset {offset} has another leader epoch in the manifest")
            if tier.get(offset) != record and not self.is_superseded(offset, record, manifest.end_offset):
                self.fail("TierIsWhole", f"the tier lacks the record at {offset}")
        # What a leader has only claimed it may still have to adopt.
        known = set() if before is None else {segment.name for segment in before.segments}
        written = world.records_of([each for each in manifest.segments if each.name not in known])
        for offset, record in (written or {}).items():
            if offset >= max(manifest.log_start_offset, world.truth.log_start_offset) and (
                committed.get(offset) != record
            ):
                self.fail("TierIsWhole", f"the tier has {record} at {offset}, not {committed.get(offset)}")

    def _pieces_have_one_period(self, segments: Iterable[RemoteSegment]) -> None:
        """PiecesHaveOnePeriod: of records whose times rise no segment has two periods of a table."""
        period_ms = self._world.config.period_ms
        for segment in segments:
            if period_ms is not None and period_of(segment, period_ms) is None:
                self.fail("PiecesHaveOnePeriod", f"{segment.name} is of several")

    def _start_is_allowed(self, before: Manifest, after: Manifest) -> None:
        """RetentionKeepsEnough: the log start rises by requests, and by the retention configured."""
        world, config = self._world, self._world.config
        raised_to = after.log_start_offset
        if raised_to < before.log_start_offset and after.segments:
            self.fail("LogStartHolds", f"the log start falls to {raised_to}")
        allowed = max(before.log_start_offset, world.truth.highest_request)
        gone = world.truth.visible(allowed, raised_to)
        if not gone:
            return
        oldest_ms = max(record.timestamp_ms for record in gone.values())
        if config.retention_ms is not None and world.now_ms - oldest_ms > config.retention_ms - 20_000:
            return
        left = sum(
            record.size_bytes for record in world.truth.visible(raised_to, world.truth.end_offset).values()
        )
        if config.retention_bytes is None or left < config.retention_bytes - 200:
            self.fail(
                "RetentionKeepsEnough", f"the log start rises to {raised_to}, and {left} bytes are left"
            )

    def deleting(self, broker: "Broker", name: str) -> None:
        """NamedIsNeverDeleted."""
        stored = self._world.store.objects.get(self._world.manifest_name)
        if stored is not None and name in named_objects(stored.content):
            self.fail("NamedIsNeverDeleted", f"{broker} deletes {name}")

    # --- calm -----------------------------------------------------------------------------------

    def lag(self) -> None:
        """LagIsBounded: while nothing fails no committed record waits longer than the lag allows."""
        world = self._world
        stored = world.store.objects.get(world.manifest_name)
        end_offset = stored.content.end_offset if stored is not None else 0
        for offset in world.truth.visible(end_offset, world.truth.end_offset):
            waited_ms = world.now_ms - world.truth.committed_ms[offset]
            if waited_ms > world.config.max_lag_ms + LAG_SLACK_MS:
                self.fail("LagIsBounded", f"the record at {offset} waits for {waited_ms} ms")

    def settled(self) -> None:
        """Everything is in the tier, and nothing else is in the store."""
        world = self._world
        leader = world.application.leader
        stored = world.store.objects.get(world.manifest_name)
        if leader is None or leader.tier is None or not leader.tier.may_serve:
            self.fail("Liveness", "no leader serves")
            return
        if leader.tier.ended is not None:
            self.fail("Liveness", f"the leader's tier has ended: {leader.tier.ended.reason.name}")
        if stored is None or not leader.tier.is_copied(leader.log.facts()):
            self.fail("Liveness", f"{leader} has not copied up to {leader.log.end_offset}")
            return
        manifest: Manifest = stored.content
        if leader.log.local_start_offset > manifest.end_offset:
            self.fail("OffsetsInOrder", "records are neither in the log nor in the tier")
        if manifest.log_start_offset < world.truth.requested_start:
            self.fail("LogStartHolds", "deleted records are there again")
        if leader.log.log_start_offset != manifest.log_start_offset:
            self.fail("OffsetsInOrder", "the log starts elsewhere than its tier")
        orphans = set(world.store.objects) - named_objects(manifest) - {world.manifest_name}
        if orphans:
            self.fail("OrphansAreCollected", f"left: {sorted(orphans)[:3]}")
        config = world.config
        if next_merge(manifest.segments, config.segment_bytes, config.period_ms) is not None:
            self.fail("SmallSegmentsAreMerged", f"{len(manifest.segments)} segments")
        if world.config.compacts and self._is_wasteful(manifest, leader):
            self.fail("CompactionReachesTier", "the tier has twice as much as the cleaned log")

    def _is_wasteful(self, manifest: Manifest, leader: "Broker") -> bool:
        return next_rewrite(manifest, leader.log.facts(), self._world.config.segment_bytes) is not None


def records_in(segment: RemoteSegment, content: dict[Offset, Record]) -> dict[Offset, Record]:
    """Return the records of an object that count for the manifest's segment."""
    return {
        offset: record
        for offset, record in content.items()
        if segment.base_offset <= offset < segment.end_offset
    }

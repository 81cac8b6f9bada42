"""A broker with a replica: a follower, or a leader that carries out what its `PartitionTier` decides.

A leader that has been replaced is one, in its own eyes, until it hears of it. Its requests to the store go
on, whatever becomes of it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sparklog.executor.tiering.machine.events import (
    AdoptionFailed,
    AdoptTier,
    AdvanceLogStart,
    ConfigChanged,
    CopySegment,
    DeleteObjects,
    EndTier,
    ListObjects,
    ManifestMissing,
    ManifestRead,
    MergeSegments,
    ObjectsDeleted,
    ObjectsListed,
    ReadManifest,
    RewriteSegments,
    SegmentWritten,
    StopCopying,
    StoreEffect,
    StoreFailed,
    SwapManifest,
    Swapped,
    SwapStale,
    Ticked,
    TierAdopted,
    TierEffect,
    TierEvent,
    WriteSegment,
)
from sparklog.executor.tiering.machine.first_role import FirstRole
from sparklog.executor.tiering.machine.partition_tier import PartitionTier
from sparklog.executor.tiering.machine.piece_cut import PieceCut
from sparklog.node.remote_log.machine.manifest import RemoteSegment
from sparklog.protocol.types import Offset
from tests.simulation.tiering.local_log import LocalLog, Record, common_end, visible
from tests.simulation.tiering.object_store import Failed, Stale

if TYPE_CHECKING:
    from tests.simulation.tiering.world import Application, World

LONG_RUN_BYTES: Final = 40
KEPT_RECORDS: Final = 8
"""local.retention, in records."""


class Broker:
    def __init__(self, world: "World", application: "Application", number: int) -> None:
        self.world: Final = world
        self.application: Final = application
        self.number: Final = number
        self.log = LocalLog()
        self.incarnation = 0
        self.is_alive = True
        self.frozen_until_ms = 0
        self.leader_epoch = -1
        """The newest that it has heard of."""
        self.leader: Broker | None = None
        self.first_role: FirstRole | None = None
        """Since it was started, or since an unclean election."""
        self.last_role_epoch = -1
        """Before the role of `leader_epoch`."""
        self.complete_epoch: int | None = None
        self.tier: PartitionTier | None = None
        """Of a leader, in its own eyes."""
        self.isr: set[Broker] = set()
        """As this broker has heard last."""
        self.progress: dict[Broker, Offset] = {}
        self.known_tiered_end: Offset | None = None
        """By the leader's answer."""
        self.was_serving = False
        self.was_ended = False

    def __repr__(self) -> str:
        return f"broker {self.application.owner_epoch}/{self.number}"

    @property
    def is_running(self) -> bool:
        return self.is_alive and self.world.now_ms >= self.frozen_until_ms

    # --- roles ----------------------------------------------------------------------------------

    def learn(self, leader_epoch: int, leader: "Broker", isr: set["Broker"]) -> None:
        """Hear of a leadership, or of a change of its ISR."""
        if not self.is_alive or leader_epoch < self.leader_epoch:
            return
        if self.world.now_ms < self.frozen_until_ms:
            self.world.after(
                self.frozen_until_ms - self.world.now_ms, self.learn, leader_epoch, leader, set(isr)
            )
            return
        is_new = leader_epoch > self.leader_epoch
        if is_new:
            self.last_role_epoch = self.leader_epoch
        self.leader_epoch, self.leader, self.isr = leader_epoch, leader, isr
        if not is_new:
            return
        self.tier, self.progress, self.known_tiered_end = None, {}, None
        self.was_serving = self.was_ended = False
        if self.first_role is None or leader_epoch in self.application.recovering:
            self.first_role = FirstRole(leader_epoch, self.log.end_offset)
        if leader is self:
            self.world.note(f"{self} leads in leader epoch {leader_epoch} from {self.log.end_offset}")
            self.tier = self.world.new_tier(self)
            self.tier_event(Ticked())

    @property
    def is_whole(self) -> bool:
        """Whether a new leader's log evidently has everything that the tier has."""
        assert self.first_role is not None
        log = self.log
        is_outgrown = self.first_role.is_outgrown(
            log.epochs.latest, log.end_offset, self.last_role_epoch, self.complete_epoch
        )
        return is_outgrown and self.leader_epoch not in self.application.recovering

    def reconfigure(self) -> None:
        """Hear of the topic's configuration, after a freeze if there is one."""
        if self.world.now_ms < self.frozen_until_ms:
            self.world.after(self.frozen_until_ms - self.world.now_ms, self.reconfigure)
        elif self.tier is not None:
            self.tier_event(ConfigChanged(self.world.config))

    def stop(self, *, loses_power: bool) -> None:
        self.is_alive = False
        self.incarnation += 1
        self.tier = self.leader = self.first_role = self.complete_epoch = None
        self.leader_epoch = -1
        if loses_power:
            self.log.lose_power(self.world.chance)

    def start(self, *, with_empty_disk: bool) -> None:
        self.is_alive = True
        self.frozen_until_ms = 0
        if with_empty_disk:
            self.log = LocalLog()

    # --- replication ----------------------------------------------------------------------------

    def fetch(self) -> None:
        """Fetch from the leader, and learn how far it has committed and tiered."""
        leader = self.leader
        if leader is None or leader is self or leader.tier is None or not leader.is_running:
            return
        if leader.leader_epoch != self.leader_epoch or not leader.tier.may_serve:
            return
        log, theirs = self.log, leader.log
        common = common_end(log, theirs)
        is_apart = log.end_offset > common and common < log.bases[0]
        if log.end_offset > common and not is_apart:
            log.truncate(common)
        base = theirs.local_start_offset
        if is_apart or log.end_offset < base:
            # OFFSET_MOVED_TO_TIERED_STORAGE, or nothing in common.
            log.begin_again(theirs.log_start_offset, base, theirs.epochs.entries, base)
            self.world.note(f"{self} begins again at {base}")
        log.copy_from(theirs, self.world.chance.randint(1, 40))
        leader.fetched(self)
        log.high_watermark = max(log.high_watermark, min(theirs.high_watermark, log.end_offset))
        log.advance_start(theirs.log_start_offset)
        self.known_tiered_end = leader.tier.tiered_end_offset

    def fetched(self, follower: "Broker") -> None:
        self.progress[follower] = follower.log.end_offset
        self.advance_high_watermark()
        if follower not in self.isr and follower.log.end_offset == self.log.end_offset:
            self.application.join_isr(self, follower)

    def advance_high_watermark(self) -> None:
        if self.tier is None or not self.tier.may_serve:
            return
        ends = [self.progress.get(member, 0) for member in self.isr if member is not self]
        end_offset = min([self.log.end_offset, *ends])
        if end_offset > self.log.high_watermark:
            self.log.high_watermark = end_offset
            self.world.truth.committed(self)

    # --- the tier -------------------------------------------------------------------------------

    def tick(self) -> None:
        if not self.is_running:
            return
        if self.tier is not None:
            self.tier_event(Ticked())
            self.advance_high_watermark()
        self._let_go()
        if self.world.chance.random() < 0.05:
            self.log.checkpointed_start = self.log.log_start_offset

    def _let_go(self) -> None:
        """Drop or clean what the tier has."""
        if self.tier is not None:
            tiered_end = self.tier.tiered_end_offset
        elif self.leader is not None and self.leader is not self:
            tiered_end = self.known_tiered_end
        else:
            return
        if tiered_end is None:
            return
        if not self.world.config.compacts:
            first, end = self.log.drop_local(tiered_end, KEPT_RECORDS)
            if first < end:
                self.world.check.dropped(self, range(first, end))
        elif self.world.chance.random() < 0.03:
            gone = self.log.clean(min(tiered_end, self.log.last_stable_offset))
            self.world.check.dropped(self, gone)

    def tier_event(self, event: TierEvent) -> None:
        tier = self.tier
        assert tier is not None
        aligned_before = tier.manifest
        effects = tier.handle(event, self.log.facts(), now_ms=self.world.now_ms, wall_ms=self.world.now_ms)
        if not isinstance(event, Ticked):
            self.world.note(f"{self}: {type(event).__name__} -> {[type(each).__name__ for each in effects]}")
        was_read = isinstance(event, ManifestRead | TierAdopted | ManifestMissing)
        if tier.may_serve and (not self.was_serving or was_read or aligned_before is None):
            self.world.truth.serving(self)
        self.was_serving = tier.may_serve
        if tier.may_serve and tier.tiered_end_offset is not None:
            self.complete_epoch = tier.leader_epoch
        for effect in effects:
            self._carry_out(tier, effect)
        self.world.check.stepped(self)

    def _carry_out(self, tier: PartitionTier, effect: TierEffect) -> None:
        world = self.world
        match effect:
            case AdvanceLogStart():
                self.log.advance_start(effect.log_start_offset)
            case StopCopying():
                pass
            case EndTier():
                self.was_ended = True
                world.note(f"{self} ends its tier: {effect.reason.name}")
            case ReadManifest():
                self._request(tier, effect, self._read, self._was_read)
            case SwapManifest():
                self._request(
                    tier,
                    effect,
                    lambda: world.swap(self, tier, effect),
                    lambda result: self._was_swapped(effect, result),
                )
            case CopySegment():
                piece = self._piece(effect)
                self._write(tier, piece, visible(self.log.records, piece.base_offset, piece.end_offset))
            case RewriteSegments():
                self._write(tier, effect, visible(self.log.records, effect.base_offset, effect.end_offset))
            case MergeSegments():
                world.merging()
                self._request(
                    tier,
                    effect,
                    lambda: world.records_of(effect.segments),
                    lambda records: self._write(tier, effect, records),
                )
            case DeleteObjects():
                self._delete(tier, effect, list(effect.names))
            case ListObjects():
                self._request(
                    tier,
                    effect,
                    lambda: world.store.list(effect.prefixes),
                    lambda names: ObjectsListed(effect, names),
                )
            case AdoptTier():
                self._adopt(tier, effect)

    def _request(
        self,
        tier: PartitionTier,
        effect: StoreEffect,
        apply: Callable[[], Any],
        answer: Callable[[Any], TierEvent | None],
    ) -> None:
        """Ask the store; `answer` turns the result into an event, or goes on by itself."""

        def answered(result: Any) -> None:
            if self.tier is not tier:
                return
            if self.world.now_ms < self.frozen_until_ms:
                self.world.after(self.frozen_until_ms - self.world.now_ms, answered, result)
                return
            event = StoreFailed(effect, "no answer") if isinstance(result, Failed) else answer(result)
            if event is not None:
                self.tier_event(event)

        self.world.store.request(apply, answered)

    def _read(self) -> Any:
        return self.world.store.objects.get(self.world.manifest_name)

    @staticmethod
    def _was_read(found: Any) -> TierEvent:
        return ManifestMissing() if found is None else ManifestRead(found.content, found.version)

    @staticmethod
    def _was_swapped(effect: SwapManifest, result: Any) -> TierEvent:
        return SwapStale(effect) if isinstance(result, Stale) else Swapped(effect, result)

    def _write(self, tier: PartitionTier, effect: WriteSegment, records: Any) -> None:
        if records is None:
            # An object that was to be merged is gone.
            self.tier_event(StoreFailed(effect, "missing"))
            return
        store = self.world.store
        segment = _remote_segment(effect, records) if records else None

        def producers_written(_: Any) -> TierEvent:
            assert isinstance(effect, CopySegment)
            return SegmentWritten(effect, segment, effect.producers_name)

        def segment_written(_: Any) -> TierEvent | None:
            if not isinstance(effect, CopySegment):
                return SegmentWritten(effect, segment)
            at = effect.end_offset
            self._request(tier, effect, lambda: store.put(effect.producers_name, at), producers_written)
            return None

        if segment is None:
            event = segment_written(None)
            if event is not None:
                self.tier_event(event)
            return
        name, content = segment.name, dict(records)
        self._request(tier, effect, lambda: store.put(name, content), segment_written)

    def _piece(self, effect: CopySegment) -> CopySegment:
        """Return an effect with the end of its piece; each record is a batch."""
        if effect.period_ms is None:
            return effect
        piece = PieceCut(long_run_bytes=LONG_RUN_BYTES)
        records = visible(self.log.records, effect.base_offset, effect.end_offset)
        for offset, record in sorted(records.items()):
            piece.add(offset, record.timestamp_ms // effect.period_ms, record.size_bytes)
        return replace(effect, end_offset=piece.finish(effect.end_offset))

    def _delete(self, tier: PartitionTier, effect: DeleteObjects, names: list[str]) -> None:
        name = names.pop()

        def deleted(_: Any) -> TierEvent | None:
            if not names:
                return ObjectsDeleted(effect)
            self._delete(tier, effect, names)
            return None

        self._request(tier, effect, lambda: self.world.delete(self, name), deleted)

    def _adopt(self, tier: PartitionTier, effect: AdoptTier) -> None:
        manifest = effect.manifest

        def adopted(result: Any) -> None:
            if self.tier is not tier:
                return
            if isinstance(result, Failed) or result is None:
                self.tier_event(AdoptionFailed(effect, "no answer"))
                return
            brought_back = (
                {offset: each for offset, each in result.items() if offset >= manifest.log_start_offset}
                if effect.bring_back
                else None
            )
            self.log.adopt(manifest, brought_back)
            self.world.note(f"{self} adopts the tier up to {manifest.end_offset}")
            self.tier_event(TierAdopted(effect))

        segments = manifest.segments if effect.bring_back else ()
        self.world.store.request(lambda: self.world.records_of(segments), adopted)


def _remote_segment(effect: WriteSegment, records: dict[Offset, Record]) -> RemoteSegment:
    copied = isinstance(effect, CopySegment)
    base_offset = effect.base_offset if copied else effect.segments[0].base_offset
    end_offset = effect.end_offset if copied else effect.segments[-1].end_offset
    size_bytes = sum(record.size_bytes for record in records.values())
    times = [record.timestamp_ms for record in records.values()]
    return RemoteSegment(
        effect.segment_name,
        base_offset,
        end_offset,
        len(records),
        size_bytes,
        size_bytes,
        min(times),
        max(times),
        0,
    )

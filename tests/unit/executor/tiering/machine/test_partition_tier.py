"""The tier of one led partition; its rules are in the module that is tested."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.executor.tiering.machine.events import (
    AdoptTier,
    AdvanceLogStart,
    ConfigChanged,
    CopySegment,
    DeleteObjects,
    EndReason,
    EndTier,
    ListObjects,
    LocalSegment,
    LogFacts,
    ManifestMissing,
    ManifestRead,
    MergeSegments,
    ObjectsDeleted,
    ObjectsListed,
    PartitionIdentity,
    ReadManifest,
    RewriteSegments,
    SegmentWritten,
    StopCopying,
    StopRequested,
    StopRevoked,
    StoreFailed,
    SwapManifest,
    Swapped,
    SwapStale,
    Ticked,
    TierAdopted,
    TierConfig,
    TierEffect,
    TierEvent,
    WriteSegment,
)
from sparklog.executor.tiering.machine.partition_tier import FIRST_LISTING_MS, OUTAGE_MS, PartitionTier
from sparklog.node.remote_log.machine.manifest import EpochStart, Manifest, RemoteSegment
from sparklog.node.remote_log.machine.manifest_changes import empty_manifest
from sparklog.node.storage.machine.leader_epochs import EpochEntry

IDENTITY = PartitionIdentity("orders", UUID(int=7), 0)
CONFIG = TierConfig(segment_bytes=1_000, retention_ms=None, retention_bytes=None, max_lag_ms=60_000)
ROLLED = LogFacts(
    log_start_offset=0,
    local_log_start_offset=0,
    log_end_offset=25,
    high_watermark=25,
    last_stable_offset=25,
    segments=(LocalSegment(0, 20, 900), LocalSegment(20, 25, 100)),
    leader_epochs=(EpochEntry(0, 0),),
)
EMPTY = replace(ROLLED, log_end_offset=0, high_watermark=0, last_stable_offset=0, leader_epochs=())


class Driven:
    """A machine, a clock, and the facts of its log."""

    def __init__(
        self,
        leader_epoch: int = 0,
        owner_epoch: int = 1,
        config: TierConfig = CONFIG,
        *,
        is_whole: bool = False,
    ) -> None:
        self.tier = PartitionTier(IDENTITY, leader_epoch, owner_epoch, config, "abcd0123", is_whole=is_whole)
        self.log = ROLLED
        self.now_ms = 0

    def handle(self, event: TierEvent) -> list[TierEffect]:
        return self.tier.handle(event, self.log, now_ms=self.now_ms, wall_ms=1_000_000 + self.now_ms)

    def tick(self, after_ms: int = 1_000) -> list[TierEffect]:
        self.now_ms += after_ms
        return self.handle(Ticked())

    def copy(self) -> Manifest:
        """Copy what is due, and return the manifest that is in the store then."""
        (copy,) = self.tick()
        assert isinstance(copy, CopySegment)
        (swap,) = self.handle(written(copy))
        assert isinstance(swap, SwapManifest)
        self.handle(Swapped(swap, f"v{swap.manifest.end_offset}"))
        return swap.manifest


def written(effect: WriteSegment, record_count: int = 10) -> SegmentWritten:
    """Return the answer to an effect that has written an object with this many records."""
    first = effect.segments[0] if not isinstance(effect, CopySegment) else effect
    last = effect.segments[-1] if not isinstance(effect, CopySegment) else effect
    segment = remote_segment(effect.segment_name, first.base_offset, last.end_offset)
    producers = effect.producers_name if isinstance(effect, CopySegment) else None
    return SegmentWritten(effect, segment if record_count else None, producers)


def remote_segment(name: str, base_offset: int, end_offset: int, raw_bytes: int = 900) -> RemoteSegment:
    return RemoteSegment(name, base_offset, end_offset, 10, 100, raw_bytes, 0, 999_000, 0)


def manifest_of(leader_epoch: int, *ends: int, owner_epoch: int = 1, raw_bytes: int = 900) -> Manifest:
    """Return a manifest of leader epoch 0 with segments that end there."""
    bases = (0, *ends)
    segments = tuple(
        remote_segment(f"segment-{base}", base, end, raw_bytes)
        for base, end in zip(bases, ends, strict=False)
    )
    empty = empty_manifest(*IDENTITY, start_offset=0, owner_epoch=owner_epoch, leader_epoch=leader_epoch)
    return replace(empty, end_offset=bases[-1], segments=segments, leader_epochs=(EpochStart(0, 0),))


def test_new_partition_copies_a_rolled_segment_and_then_lets_the_log_drop_it() -> None:
    """Leader epoch 0 is of a new partition: no look-up, and the first swap is a create."""
    driven = Driven()
    assert driven.tier.may_serve
    (copy,) = driven.tick()
    assert isinstance(copy, CopySegment)
    assert (copy.base_offset, copy.end_offset) == (0, 20)
    assert copy.segment_name == (
        f"segments/orders-{UUID(int=7)}/0/00000000000000000000-0000000000-abcd0123-2.parquet"
    )
    (swap,) = driven.handle(written(copy))
    assert isinstance(swap, SwapManifest)
    assert swap.version is None
    assert (swap.manifest.end_offset, swap.manifest.leader_epochs) == (20, (EpochStart(0, 0),))
    assert driven.tier.tiered_end_offset is None
    assert driven.handle(Swapped(swap, "v1")) == []
    assert driven.tier.tiered_end_offset == 20
    assert driven.tier.manifest == swap.manifest


def test_active_segment_is_copied_when_its_oldest_record_has_waited_for_the_lag() -> None:
    """What is lost with all disks is bounded by sparklog.remote.max.lag.ms."""
    driven = Driven()
    driven.copy()
    waited = [effect for _ in range(60) for effect in driven.tick()]
    (copy,) = [effect for effect in waited if isinstance(effect, CopySegment)]
    assert isinstance(copy, CopySegment)
    assert (copy.base_offset, copy.end_offset) == (20, 25)


def test_records_above_the_last_stable_offset_are_not_copied() -> None:
    """An open transaction may be aborted yet; a segment's end above it waits."""
    driven = Driven()
    driven.log = replace(ROLLED, last_stable_offset=15)
    assert driven.tick() == []
    (copy,) = driven.tick(60_000)
    assert isinstance(copy, CopySegment)
    assert (copy.base_offset, copy.end_offset) == (0, 15)


def test_swap_without_an_answer_is_not_counted_until_it_was_read() -> None:
    """The local log drops nothing that only a manifest names which may not be in the store."""
    driven = Driven()
    (copy,) = driven.tick()
    assert isinstance(copy, CopySegment)
    (swap,) = driven.handle(written(copy))
    assert isinstance(swap, SwapManifest)
    assert driven.handle(StoreFailed(swap, "timed out")) == []
    assert driven.tier.tiered_end_offset is None
    assert driven.tier.failure == "timed out"
    assert driven.tick() == [ReadManifest()]
    assert driven.handle(ManifestRead(swap.manifest, "v1")) == []
    assert driven.tier.tiered_end_offset == 20


def test_swap_that_did_not_happen_is_made_again() -> None:
    """The object that it names is kept meanwhile."""
    driven = Driven()
    (copy,) = driven.tick()
    assert isinstance(copy, CopySegment)
    (swap,) = driven.handle(written(copy))
    assert isinstance(swap, SwapManifest)
    driven.handle(StoreFailed(swap, "timed out"))
    assert driven.tick() == [ReadManifest()]
    assert driven.handle(ManifestMissing()) == [replace_time(swap, driven)]


def replace_time(swap: SwapManifest, driven: Driven) -> SwapManifest:
    return replace(swap, manifest=replace(swap.manifest, written_ms=1_000_000 + driven.now_ms))


def test_new_leader_claims_the_manifest_before_the_log_may_drop_anything() -> None:
    """A leader before it might still cut what it has not claimed; serving does not wait for that."""
    driven = Driven(leader_epoch=3)
    assert driven.tick() == [ReadManifest()]
    assert not driven.tier.may_serve
    (swap,) = driven.handle(ManifestRead(manifest_of(2, 20), "v2"))
    assert isinstance(swap, SwapManifest)
    assert (swap.manifest.leader_epoch, swap.version) == (3, "v2")
    assert driven.tier.may_serve
    assert driven.tier.tiered_end_offset is None
    driven.handle(Swapped(swap, "v3"))
    assert driven.tier.tiered_end_offset == 20


def test_claim_that_was_stale_is_made_of_what_was_read_again() -> None:
    """The leader before it was faster: its segments stay."""
    driven = Driven(leader_epoch=3)
    driven.tick()
    (claim,) = driven.handle(ManifestRead(manifest_of(2, 10), "v2"))
    assert isinstance(claim, SwapManifest)
    assert driven.handle(SwapStale(claim)) == [ReadManifest()]
    (again,) = driven.handle(ManifestRead(manifest_of(2, 10, 20), "v2b"))
    assert isinstance(again, SwapManifest)
    assert (again.manifest.end_offset, again.version) == (20, "v2b")


@pytest.mark.parametrize(
    ("owner_epoch", "leader_epoch", "reason"),
    [
        (2, 0, EndReason.OWNER_REPLACED),
        (1, 4, EndReason.LEADER_REPLACED),
        (0, 3, EndReason.LEADER_EPOCH_BEHIND),
    ],
)
def test_higher_epoch_in_the_manifest_ends_the_machine_for_good(
    owner_epoch: int, leader_epoch: int, reason: EndReason
) -> None:
    """An application or a leader that was deposed changes nothing any more."""
    driven = Driven(leader_epoch=3)
    driven.tick()
    found = manifest_of(leader_epoch, 20, owner_epoch=owner_epoch)
    assert driven.handle(ManifestRead(found, "v9")) == [EndTier(reason, owner_epoch, leader_epoch)]
    assert driven.tick(600_000) == []
    assert driven.tier.tiered_end_offset is None


def test_leader_that_reads_of_its_successor_serves_no_longer() -> None:
    """The successor may have accepted and dropped records since; a lease may last until then."""
    driven = Driven(leader_epoch=3, is_whole=True)
    driven.tick()
    assert driven.tier.may_serve
    driven.handle(ManifestRead(manifest_of(4, 20), "v9"))
    assert not driven.tier.may_serve
    driven.tick(600_000)
    assert not driven.tier.may_serve


@pytest.mark.parametrize("has_records", [True, False])
def test_leader_of_a_deposed_application_serves_what_it_has(has_records: bool) -> None:
    """Its clients can read until it is stopped; an empty log does not know where it begins."""
    driven = Driven(leader_epoch=3)
    driven.log = ROLLED if has_records else EMPTY
    driven.tick()
    (end,) = driven.handle(ManifestRead(manifest_of(0, 20, owner_epoch=2), "v9"))
    assert isinstance(end, EndTier)
    assert driven.tier.may_serve == has_records
    assert driven.tick() == []


def test_empty_log_adopts_the_tier_before_it_serves() -> None:
    """After the loss of all disks the log goes on where the tier ends."""
    driven = Driven(leader_epoch=5)
    driven.log = replace(
        ROLLED,
        log_end_offset=0,
        high_watermark=0,
        last_stable_offset=0,
        segments=(LocalSegment(0, 0, 0),),
        leader_epochs=(),
    )
    driven.tick()
    (claim,) = driven.handle(ManifestRead(manifest_of(2, 20), "v2"))
    assert isinstance(claim, SwapManifest)
    assert not driven.tier.may_serve
    (adopt,) = driven.handle(Swapped(claim, "v3"))
    assert adopt == AdoptTier(claim.manifest, bring_back=False)
    driven.log = replace(
        ROLLED,
        local_log_start_offset=20,
        log_end_offset=20,
        high_watermark=20,
        last_stable_offset=20,
        segments=(LocalSegment(20, 20, 0),),
    )
    assert driven.handle(TierAdopted(adopt)) == []
    assert driven.tier.may_serve
    assert driven.tier.tiered_end_offset == 20


@pytest.mark.parametrize(
    ("log", "serves"),
    [(ROLLED, True), (EMPTY, False), (replace(ROLLED, is_brought_back_in_part=True), False)],
)
def test_log_serves_without_its_manifest_in_an_outage_if_it_knows_where_it_begins(
    log: LogFacts, serves: bool
) -> None:
    """A single request that fails must not let a shorter log lead, to which the tier would be cut."""
    driven = Driven(leader_epoch=5)
    driven.log = log
    driven.tick()
    driven.handle(StoreFailed(ReadManifest(), "503"))
    assert not driven.tier.may_serve
    while driven.now_ms < OUTAGE_MS:
        for effect in driven.tick():
            assert effect == ReadManifest()
            assert driven.handle(StoreFailed(ReadManifest(), "503")) == []
    assert not driven.tier.may_serve
    driven.tick()
    assert driven.tier.may_serve == serves


def test_log_that_evidently_has_all_of_its_tier_serves_while_its_manifest_is_read() -> None:
    """A change of leaders must not be a silence for clients because a store does not answer."""
    driven = Driven(leader_epoch=5, is_whole=True)
    assert driven.tick() == [ReadManifest()]
    assert driven.tier.may_serve
    driven.handle(StoreFailed(ReadManifest(), "503"))
    assert driven.tier.may_serve
    assert driven.tier.tiered_end_offset is None
    assert driven.tick() == [ReadManifest()], "nothing is copied without the manifest"


def test_log_that_was_brought_back_in_part_serves_nothing_whatever_the_evidence() -> None:
    """Its marker is on the disk because it lacks records of the tier."""
    driven = Driven(leader_epoch=5, is_whole=True)
    driven.log = replace(ROLLED, is_brought_back_in_part=True)
    driven.tick()
    assert not driven.tier.may_serve


def test_log_that_was_brought_back_in_part_begins_again_where_its_tier_ends() -> None:
    """Its last batches may name no producer, and it may have no leader epoch of its own records."""
    driven = Driven(leader_epoch=5)
    driven.log = replace(ROLLED, is_brought_back_in_part=True)
    driven.tick()
    (claim,) = driven.handle(ManifestRead(manifest_of(2, 25), "v2"))
    assert isinstance(claim, SwapManifest)
    assert not driven.tier.may_serve
    assert driven.handle(Swapped(claim, "v3")) == [AdoptTier(claim.manifest, bring_back=False)]


def test_newer_history_of_the_log_cuts_the_manifest() -> None:
    """An unclean leader has written without the tier; what it wrote over is not read any more."""
    driven = Driven(leader_epoch=5)
    driven.log = replace(ROLLED, leader_epochs=(EpochEntry(0, 0), EpochEntry(4, 15)))
    driven.tick()
    (swap,) = driven.handle(ManifestRead(manifest_of(2, 10, 20, 30), "v2"))
    assert isinstance(swap, SwapManifest)
    ends = [(segment.name, segment.end_offset) for segment in swap.manifest.segments]
    assert ends == [("segment-0", 10), ("segment-10", 15)]
    assert swap.manifest.unreferenced == ("segment-20",)
    effects = driven.handle(Swapped(swap, "v3"))
    assert effects[1:] == [DeleteObjects(("segment-20",))]
    assert isinstance(effects[0], CopySegment)
    assert (effects[0].base_offset, effects[0].end_offset) == (15, 20)


def test_retention_advances_the_log_start_before_objects_are_deleted() -> None:
    """A reader never finds a log start whose object is gone."""
    driven = Driven(leader_epoch=3, config=replace(CONFIG, retention_bytes=950))
    driven.log = replace(ROLLED, local_log_start_offset=20, segments=(LocalSegment(20, 25, 100),))
    driven.tick()
    (swap,) = driven.handle(ManifestRead(manifest_of(2, 10, 20), "v2"))
    assert isinstance(swap, SwapManifest)
    assert (swap.manifest.log_start_offset, swap.manifest.unreferenced) == (10, ("segment-0",))
    assert driven.handle(Swapped(swap, "v3")) == [AdvanceLogStart(10), DeleteObjects(("segment-0",))]


def test_deleted_objects_leave_the_manifest_with_its_next_change() -> None:
    """A list of names that are gone does not grow."""
    driven = Driven(leader_epoch=3)
    driven.tick()
    found = replace(manifest_of(3, 10), unreferenced=("old",))
    claim, delete = driven.handle(ManifestRead(found, "v2"))
    assert isinstance(claim, SwapManifest)
    assert delete == DeleteObjects(("old",))
    driven.handle(ObjectsDeleted(delete))
    (copy,) = driven.handle(Swapped(claim, "v3"))
    assert isinstance(copy, CopySegment)
    (swap,) = driven.handle(written(copy))
    assert isinstance(swap, SwapManifest)
    assert swap.manifest.unreferenced == ()


def test_advanced_log_start_alone_waits_for_the_lag_unless_it_frees_a_segment() -> None:
    """DeleteRecords reaches the tier in bounded time, and not with a write each."""
    driven = Driven(leader_epoch=3)
    driven.tick()
    (claim,) = driven.handle(ManifestRead(manifest_of(2, 25), "v2"))
    assert isinstance(claim, SwapManifest)
    driven.handle(Swapped(claim, "v3"))
    driven.log = replace(driven.log, log_start_offset=5)
    assert driven.tick() == []
    (swap,) = [effect for effect in driven.tick(60_000) if isinstance(effect, SwapManifest)]
    assert swap.manifest.log_start_offset == 5


def test_orphans_are_collected_unless_a_later_leader_wrote_them() -> None:
    """A deposed leader that collects late must not delete what its successor's manifest names."""
    driven = Driven()
    manifest = driven.copy()
    effects = [effect for _ in range(70) for effect in driven.tick() if isinstance(effect, ListObjects)]
    (listing,) = effects
    directory = f"segments/orders-{UUID(int=7)}/0"
    orphan = f"{directory}/00000000000000000000-0000000000-ffff-1.parquet"
    later = f"{directory}/00000000000000000020-0000000001-ffff-1.parquet"
    named = [manifest.segments[0].name, manifest.producers or ""]
    effects = driven.handle(ObjectsListed(listing, (orphan, later, *named, f"{directory}/else")))
    assert DeleteObjects((orphan,)) in effects
    assert driven.now_ms >= FIRST_LISTING_MS


def test_small_neighbours_are_merged_in_one_swap() -> None:
    """Pieces that are written for the lag's sake do not stay as many objects."""
    driven = Driven(leader_epoch=3)
    driven.log = replace(ROLLED, segments=(LocalSegment(0, 20, 900), LocalSegment(20, 24, 100)))
    driven.tick()
    found = manifest_of(2, *range(3, 25, 3), 25, raw_bytes=30)
    (claim,) = driven.handle(ManifestRead(found, "v2"))
    assert isinstance(claim, SwapManifest)
    (merge,) = driven.handle(Swapped(claim, "v3"))
    assert isinstance(merge, MergeSegments)
    assert merge.segments == found.segments
    (swap,) = driven.handle(written(merge))
    assert isinstance(swap, SwapManifest)
    assert [segment.name for segment in swap.manifest.segments] == [merge.segment_name]
    assert set(swap.manifest.unreferenced) == {segment.name for segment in found.segments}


def test_compacted_range_is_rewritten_when_the_tier_has_twice_as_much() -> None:
    """The tier of a compacted topic grows no further than its log, but for a factor."""
    driven = Driven(leader_epoch=3, config=replace(CONFIG, compacts=True, deletes=False))
    driven.log = replace(
        ROLLED, cleaned_offset=20, segments=(LocalSegment(0, 20, 200), LocalSegment(20, 25, 100))
    )
    driven.tick()
    (claim,) = driven.handle(ManifestRead(manifest_of(2, 10, 25), "v2"))
    assert isinstance(claim, SwapManifest)
    (rewrite,) = driven.handle(Swapped(claim, "v3"))
    assert isinstance(rewrite, RewriteSegments)
    assert (rewrite.base_offset, rewrite.end_offset) == (0, 10)
    (swap,) = driven.handle(written(rewrite))
    assert isinstance(swap, SwapManifest)
    assert driven.handle(Swapped(swap, "v4"))[1:] == []


COMPACTED = replace(CONFIG, compacts=True, deletes=False)


def compacted_log(first_bytes: int, second_bytes: int) -> LogFacts:
    """Return a log that is cleaned up to offset 20, with these bytes in each half of that."""
    segments = (LocalSegment(0, 10, first_bytes), LocalSegment(10, 20, second_bytes))
    return replace(ROLLED, cleaned_offset=20, segments=(*segments, LocalSegment(20, 25, 100)))


def led(driven: Driven, found: Manifest) -> list[TierEffect]:
    """Let a later leader claim a manifest; return its effects then."""
    driven.tick()
    (claim,) = driven.handle(ManifestRead(found, "v2"))
    assert isinstance(claim, SwapManifest)
    return driven.handle(Swapped(claim, "v3"))


def test_range_is_not_rewritten_for_the_codec_of_the_local_log() -> None:
    """Records are compressed there and counted before compression in the tier: each cleaning would do it."""
    driven = Driven(leader_epoch=3, config=COMPACTED)
    driven.log = replace(compacted_log(300, 300), cleaned_offset=None)
    (copy,) = led(driven, manifest_of(2, 10))
    assert isinstance(copy, CopySegment)
    (swap,) = driven.handle(written(copy))
    assert isinstance(swap, SwapManifest)
    driven.log = compacted_log(300, 300)
    assert driven.handle(Swapped(swap, "v4")) == []


def test_compacted_range_is_not_rewritten_while_older_ones_are_in_the_tier_alone() -> None:
    """A topic that was not always compacted: its older records stay, and so must later tombstones."""
    driven = Driven(leader_epoch=3, config=COMPACTED)
    driven.log = replace(compacted_log(0, 100), local_log_start_offset=10)
    driven.log = replace(driven.log, segments=driven.log.segments[1:])
    assert led(driven, manifest_of(2, 10, 20)) == []


def test_compacted_range_is_rewritten_after_all_older_ones() -> None:
    """The cleaned log has lost tombstones: older values of their keys would be in the tier alone."""
    driven = Driven(leader_epoch=3, config=COMPACTED)
    driven.log = replace(compacted_log(800, 300), log_end_offset=20, high_watermark=20, last_stable_offset=20)
    (older,) = led(driven, manifest_of(2, 10, 20))
    assert isinstance(older, RewriteSegments)
    assert (older.base_offset, older.end_offset) == (0, 10)
    driven.handle(StoreFailed(older, "no route"))
    (older,) = driven.tick()
    assert isinstance(older, RewriteSegments)
    assert (older.base_offset, older.end_offset) == (0, 10)
    (swap,) = [each for each in driven.handle(written(older)) if isinstance(each, SwapManifest)]
    (newer,) = [each for each in driven.handle(Swapped(swap, "v4")) if isinstance(each, RewriteSegments)]
    assert (newer.base_offset, newer.end_offset) == (10, 20)


def test_stop_copies_up_to_the_log_end_at_once() -> None:
    """Everything is in the bucket before the cluster's stop returns."""
    driven = Driven()
    driven.copy()
    assert not driven.tier.is_copied(driven.log)
    (copy,) = driven.handle(StopRequested())
    assert isinstance(copy, CopySegment)
    assert (copy.base_offset, copy.end_offset) == (20, 25)
    (swap,) = driven.handle(written(copy))
    assert isinstance(swap, SwapManifest)
    driven.handle(Swapped(swap, "v2"))
    assert driven.tier.is_copied(driven.log)


def test_stop_ends_a_merge_under_way_and_one_that_is_taken_back_begins_it_again() -> None:
    """A merge may take minutes for which a supervisor does not wait."""
    driven = Driven(leader_epoch=3)
    (merge,) = led(driven, manifest_of(2, *range(3, 25, 3), 25, raw_bytes=30))
    assert isinstance(merge, MergeSegments)
    assert driven.handle(StopRequested()) == [StopCopying()]
    driven.handle(StoreFailed(merge, "stopped on request"))
    assert not any(isinstance(effect, MergeSegments) for effect in driven.tick(60_000))
    (again,) = driven.handle(StopRevoked())
    assert isinstance(again, MergeSegments)


def test_stop_that_is_taken_back_leaves_open_segments_to_the_lag() -> None:
    """Each tick would copy a few records else, for as long as the cluster goes on."""
    driven = Driven()
    driven.copy()
    (copy,) = driven.handle(StopRequested())
    assert isinstance(copy, CopySegment)
    (swap,) = driven.handle(written(copy))
    assert isinstance(swap, SwapManifest)
    driven.handle(Swapped(swap, "v25"))
    driven.handle(StopRevoked())
    segments = LocalSegment(0, 20, 900), LocalSegment(20, 30, 200)
    driven.log = replace(
        driven.log, log_end_offset=30, high_watermark=30, last_stable_offset=30, segments=segments
    )
    assert driven.tick() == []


def test_disabled_copying_stops_the_copy_under_way() -> None:
    """remote.log.copy.disable: what is in the tier stays and is served; nothing new goes there."""
    driven = Driven()
    driven.tick()
    assert driven.handle(ConfigChanged(replace(CONFIG, copy_disabled=True))) == [StopCopying()]


def test_disabled_tier_with_deletion_leaves_the_local_log_alone() -> None:
    """remote.log.delete.on.disable: the log begins at its first local segment, and the objects go."""
    driven = Driven()
    manifest = driven.copy()
    driven.log = replace(ROLLED, local_log_start_offset=20, segments=(LocalSegment(20, 25, 100),))
    (swap,) = driven.handle(ConfigChanged(replace(CONFIG, enabled=False, delete_on_disable=True)))
    assert isinstance(swap, SwapManifest)
    assert (swap.manifest.log_start_offset, swap.manifest.segments) == (20, ())
    names = (manifest.segments[0].name, manifest.producers)
    assert driven.handle(Swapped(swap, "v2")) == [AdvanceLogStart(20), DeleteObjects(names)]


def test_range_without_records_moves_the_tiers_end_without_an_object() -> None:
    """Aborted records and markers alone leave nothing to write."""
    driven = Driven()
    (copy,) = driven.tick()
    assert isinstance(copy, CopySegment)
    (swap,) = driven.handle(written(copy, record_count=0))
    assert isinstance(swap, SwapManifest)
    assert (swap.manifest.end_offset, swap.manifest.segments) == (20, ())


def test_records_that_neither_log_nor_tier_has_are_left_below_the_log_start() -> None:
    """A crash has lost the log start of a request to delete records; readers would find nothing there."""
    driven = Driven(leader_epoch=3)
    driven.log = replace(ROLLED, local_log_start_offset=20, segments=(LocalSegment(20, 25, 100),))
    driven.tick()
    (swap,) = driven.handle(ManifestRead(manifest_of(2, 10), "v2"))
    assert isinstance(swap, SwapManifest)
    assert (swap.manifest.log_start_offset, swap.manifest.end_offset) == (20, 20)
    effects = driven.handle(Swapped(swap, "v3"))
    assert effects == [AdvanceLogStart(20), DeleteObjects(("segment-0",))]


def test_part_of_an_object_that_is_being_written_is_no_orphan() -> None:
    """A directory shows it under its name with a suffix; of a writer that is dead it is one."""
    driven = Driven(leader_epoch=3)
    driven.log = replace(ROLLED, last_stable_offset=0)
    driven.tick()
    (claim,) = driven.handle(ManifestRead(manifest_of(2), "v2"))
    assert isinstance(claim, SwapManifest)
    driven.handle(Swapped(claim, "v3"))
    (listing,) = [effect for effect in driven.tick(FIRST_LISTING_MS) if isinstance(effect, ListObjects)]
    driven.log = ROLLED
    (copy,) = driven.tick()
    assert isinstance(copy, CopySegment)
    part = f"{copy.segment_name}.partial-1"
    dead = part.replace("abcd0123", "ffff0123")
    assert driven.handle(ObjectsListed(listing, (part, dead))) == [DeleteObjects((dead,))]


def test_stale_swap_lets_the_log_drop_nothing_until_the_manifest_was_read() -> None:
    """What was known to be in the store certainly is not."""
    driven = Driven()
    driven.copy()
    driven.log = replace(ROLLED, log_start_offset=21)
    (swap,) = driven.tick()
    assert isinstance(swap, SwapManifest)
    assert driven.handle(SwapStale(swap)) == [ReadManifest()]
    assert driven.tier.tiered_end_offset is None


def test_failed_effects_are_tried_again_after_pauses_that_grow() -> None:
    """A store that is down for a minute is not asked without a pause, and found when it is back."""
    driven = Driven(leader_epoch=3)
    assert driven.tick() == [ReadManifest()]
    pauses = []
    for _ in range(10):
        failed_ms = driven.now_ms
        assert driven.handle(StoreFailed(ReadManifest(), "down")) == []
        while driven.tick(100) == []:
            pass
        pauses.append(driven.now_ms - failed_ms)
    assert pauses == [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000, 10_000]


def test_merge_and_rewrite_wait_for_what_has_to_be_copied() -> None:
    """What is not in the tier may be lost; what is badly packed only costs."""
    driven = Driven(leader_epoch=3)
    driven.log = replace(ROLLED, log_end_offset=60, high_watermark=60, last_stable_offset=60)
    driven.log = replace(driven.log, segments=(LocalSegment(0, 50, 900), LocalSegment(50, 60, 100)))
    driven.tick()
    (claim,) = driven.handle(ManifestRead(manifest_of(2, *range(3, 28, 3), raw_bytes=30), "v2"))
    assert isinstance(claim, SwapManifest)
    (copy,) = driven.handle(Swapped(claim, "v3"))
    assert isinstance(copy, CopySegment)
    (swap,) = driven.handle(written(copy))
    assert isinstance(swap, SwapManifest)
    effects = driven.handle(Swapped(swap, "v4"))
    assert isinstance(effects[0], MergeSegments)


def test_later_leader_without_a_manifest_creates_one_before_it_copies() -> None:
    """A leader before it, perhaps of another application, could make one later."""
    driven = Driven(leader_epoch=3)
    driven.tick()
    (claim,) = driven.handle(ManifestMissing())
    assert isinstance(claim, SwapManifest)
    assert (claim.version, claim.manifest.end_offset, claim.manifest.leader_epoch) == (None, 0, 3)
    assert driven.tier.may_serve
    (copy,) = driven.handle(Swapped(claim, "v1"))
    assert isinstance(copy, CopySegment)


def test_log_start_that_has_moved_during_a_copy_comes_with_its_swap() -> None:
    """The log has no leader epochs below its start, so that the manifest could not have them either."""
    driven = Driven()
    (copy,) = driven.tick()
    assert isinstance(copy, CopySegment)
    driven.log = replace(ROLLED, log_start_offset=5, leader_epochs=(EpochEntry(0, 5),))
    (swap,) = driven.handle(written(copy))
    assert isinstance(swap, SwapManifest)
    assert (swap.manifest.log_start_offset, swap.manifest.leader_epochs) == (5, (EpochStart(0, 5),))


def test_log_start_that_recovery_has_guessed_deletes_nothing_in_the_tier() -> None:
    """After a power cut files that were not fsynced may say that the log begins with its first segment."""
    driven = Driven(leader_epoch=3)
    driven.log = replace(
        ROLLED, log_start_offset=20, local_log_start_offset=20, segments=(LocalSegment(20, 25, 100),)
    )
    driven.log = replace(driven.log, log_start_is_guessed=True)
    driven.tick()
    (claim,) = driven.handle(ManifestRead(manifest_of(2, 10, 20), "v2"))
    assert isinstance(claim, SwapManifest)
    assert (claim.manifest.log_start_offset, len(claim.manifest.segments)) == (0, 2)

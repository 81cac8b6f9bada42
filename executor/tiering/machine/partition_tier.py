"""The tier of one partition, while this broker leads it in one leader epoch: load, copy, merge, delete.

Pure: events in, effects out, no store and no clock. A `PartitionTier` lives as long as its leader epoch.

Rules it keeps
- The local log may drop only what is below `tiered_end_offset`: what segments hold that a manifest names
  which *is* in the store. After a swap whose outcome is unknown the new manifest is not counted until it was
  read; after one that was stale nothing is, until the manifest was read again.
- An owner epoch or a leader epoch above its own, in a manifest, ends this machine for good: no more effects.
- A leader claims the manifest by its first swap, and creates one where there is none; in leader epoch 0
  there was no leader before. From then on no earlier leader's swap succeeds, of whichever application: either
  it came before, and the claim was stale, read again and keeps its segments; or it fails. Nothing is copied,
  dropped or collected before the claim.
- The log and the manifest have one history before the leader serves (`lineage`): it adopts the tier's where
  that is longer, and cuts the manifest where the log's is newer. A log of which it is evident that it has all
  that the tier has (`first_role`) serves at once; only copying waits for the manifest.
- An object is deleted when the manifest in the store does not name it and no swap that does can succeed any
  more: a swap replaces a version, and that version has been replaced. Objects of later epochs stay.

Order for the caller: pass each event with the facts of the log as they are then; carry effects out in order.
At most three effects on the store are under way: one on the manifest, one that writes a segment, one that
deletes or lists. A new machine is given `Ticked` first, and about once a second from then on.
"""

from dataclasses import replace
from typing import Final

from sparklog.executor.tiering.machine.deletions import Deletions
from sparklog.executor.tiering.machine.events import (
    AdoptionFailed,
    AdoptTier,
    AdvanceLogStart,
    ConfigChanged,
    CopySegment,
    DeleteObjects,
    EndReason,
    EndTier,
    ListObjects,
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
    TierAdopted,
    TierConfig,
    TierEffect,
    TierEvent,
    WriteSegment,
)
from sparklog.executor.tiering.machine.next_manifest import LogStarts, reason_to_end, reconciled
from sparklog.executor.tiering.machine.retries import Retries
from sparklog.executor.tiering.machine.segment_writes import SegmentWrites
from sparklog.executor.tiering.machine.uncopied_records import UncopiedRecords
from sparklog.node.remote_log.machine.lineage import Lineage, compare
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_changes import emptied, empty_manifest, with_deleted
from sparklog.node.remote_log.machine.names import producers_prefix, segments_prefix
from sparklog.node.remote_log.object_store import Version
from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs

FIRST_LISTING_MS: Final = 60_000
"""After a leadership began: orphans of the one before are looked for when failovers are over."""
LISTING_INTERVAL_MS: Final = 6 * 60 * 60 * 1000
OUTAGE_MS: Final = 30_000
"""So long no request may have succeeded before a leader serves without the manifest.

Its log may lack what the tier has, and the tier is cut to it then: no single request may decide that.
"""


class PartitionTier:
    def __init__(
        self,
        identity: PartitionIdentity,
        leader_epoch: LeaderEpoch,
        owner_epoch: int,
        config: TierConfig,
        unique: str,
        *,
        is_whole: bool = False,
        outage_ms: int = OUTAGE_MS,
    ) -> None:
        """`unique` makes names that no other machine makes; `is_whole`: the log evidently lacks nothing."""
        self.identity: Final = identity
        self.leader_epoch: Final = leader_epoch
        self.owner_epoch: Final = owner_epoch
        self.config = config
        self._is_whole: Final = is_whole
        self._outage_ms: Final = outage_ms
        self.ended: EndTier | None = None
        """The reason for which this machine does nothing any more."""
        self.may_serve = leader_epoch == 0
        """Whether the leader may answer clients: the log has all that the tier has, as far as is known.

        Without evidence of that the manifest is read first. In an outage (`OUTAGE_MS`) a log with records
        serves these; an empty one, and one that was brought back in part, do not know where they begin.
        """
        self._log: LogFacts
        self._now_ms = 0
        self._wall_ms: TimestampMs = 0
        self._manifest: Manifest | None = None
        """The newest manifest that is known to be in the store."""
        self._version: Version | None = None
        self._must_read = leader_epoch > 0
        """Whether `_manifest` may be another one than that in the store."""
        self._is_stale = False
        """Whether it certainly is."""
        self._is_claimed = leader_epoch == 0
        """Whether no earlier leader can write the manifest: this one has, or is the first."""
        self._lineage: Lineage | None = Lineage.CONTINUED if leader_epoch == 0 else None
        """Of manifest and log; None while the manifest is not known."""
        self._swapping: Manifest | None = None
        """The last one that a swap has carried since the version in the store was seen first."""
        self._manifest_effect: ReadManifest | SwapManifest | AdoptTier | None = None
        self._writes: Final = SegmentWrites(identity, leader_epoch, unique)
        self._deletions: Final = Deletions(leader_epoch)
        self._deletions.keeps_segments = config.table_keeps_segments
        self.uncopied: Final = UncopiedRecords()
        self._manifest_retries: Final = Retries()
        self._deletion_retries: Final = Retries()
        self._next_listing_ms: int | None = None
        self._log_starts: Final = LogStarts()
        self._is_stopping = False

    # --- what is so -----------------------------------------------------------------------------

    @property
    def manifest(self) -> Manifest | None:
        """Return the newest manifest known to be in the store, if it is of the log's history."""
        return self._manifest if self._lineage is Lineage.CONTINUED else None

    @property
    def awaits_manifest(self) -> bool:
        """Return whether it is not known yet what the tier has, or the log has not adopted it."""
        return self.ended is None and self._lineage is not Lineage.CONTINUED

    @property
    def tiered_end_offset(self) -> Offset | None:
        """Return the offset below which the local log may drop records, or clean them; None for no offset."""
        if self.manifest is None or not self._is_claimed or self._is_stale or self.ended is not None:
            return None
        return self.manifest.end_offset if self.config.enabled else None

    @property
    def copied_to(self) -> Offset | None:
        """Return the end of what is in the tier; None for nothing, or while that is not known."""
        return None if self._must_read or self._manifest is None else self._manifest.end_offset

    @property
    def failure(self) -> str | None:
        """Return the last error of the store that was not followed by a success."""
        return self._manifest_retries.error or self._writes.retries.error or self._deletion_retries.error

    def is_copied(self, log: LogFacts) -> bool:
        """Return whether everything in the log is in the tier."""
        return not self._must_read and (self.copied_to or 0) >= log.log_end_offset

    # --- events ---------------------------------------------------------------------------------

    def handle(
        self, event: TierEvent, log: LogFacts, *, now_ms: int, wall_ms: TimestampMs
    ) -> list[TierEffect]:
        """Handle an event; return its effects, in order.

        `now_ms` is of a clock that never goes back, `wall_ms` of the one by which retention counts.
        """
        if self.ended is not None:
            return []
        self._log, self._now_ms, self._wall_ms = log, now_ms, wall_ms
        effects = self._handle(event)
        return effects if self.ended is not None else effects + self._next_effects()

    def _handle(self, event: TierEvent) -> list[TierEffect]:
        match event:
            case ManifestRead():
                return self._manifest_read(event.manifest, event.version)
            case ManifestMissing():
                self._manifest_missing()
            case SegmentWritten():
                self._writes.ended(event, self._log)
            case Swapped():
                self._manifest_effect = None
                self._is_claimed = True
                self._confirm(event.effect.manifest, event.version)
                self._manifest_retries.succeeded()
            case SwapStale():
                self._manifest_effect = None
                self._must_read = self._is_stale = True
            case ObjectsDeleted():
                self._deletions.done(event.effect.names)
                self._deletion_retries.succeeded()
            case ObjectsListed():
                self._objects_listed(event)
            case StoreFailed() | AdoptionFailed():
                self._store_failed(event)
            case TierAdopted():
                self._tier_adopted()
            case ConfigChanged():
                self.config = event.config
                self._deletions.keeps_segments = event.config.table_keeps_segments
                stops = self._writes.effect is not None and not self._may_copy
                return [StopCopying()] if stops else []
            case StopRequested():
                self._is_stopping = True
                for retries in (self._manifest_retries, self._writes.retries, self._deletion_retries):
                    retries.at_once()
                is_replacing = isinstance(self._writes.effect, MergeSegments | RewriteSegments)
                return [StopCopying()] if is_replacing else []
            case StopRevoked():
                self._is_stopping = False
        return []

    def _manifest_read(self, manifest: Manifest, version: Version) -> list[TierEffect]:
        self._manifest_effect = None
        reason = reason_to_end(manifest, self.owner_epoch, self.leader_epoch)
        if reason is not None:
            self.ended = EndTier(reason, manifest.owner_epoch, manifest.leader_epoch)
            self.may_serve = self.may_serve and reason is not EndReason.LEADER_REPLACED
            if reason is EndReason.OWNER_REPLACED and self._log.stands_alone:
                # Clients of this application read what it has on its disks until it is stopped.
                self.may_serve = True
            return [StopCopying(), self.ended] if self._writes.effect is not None else [self.ended]
        if version != self._version:
            # A swap of this machine without an answer, or another writer's.
            is_own = (manifest.owner_epoch, manifest.leader_epoch) == (self.owner_epoch, self.leader_epoch)
            self._is_claimed = is_own and self._swapping is not None
            self._lineage = None
            self._confirm(manifest, version)
        self._must_read = self._is_stale = False
        if self._swapping is not None:
            self._manifest_retries.at_once()
        else:
            self._manifest_retries.succeeded()
        return []

    def _manifest_missing(self) -> None:
        self._manifest_effect = None
        if self._manifest is not None:
            self._manifest_retries.failed(
                f"the manifest of {self.identity.topic}-{self.identity.partition} is gone from the object "
                "store, and what it named is served no more: restore it from a version of the object",
                self._now_ms,
            )
            return
        self._lineage = Lineage.CONTINUED
        self._must_read = self._is_stale = False
        self._manifest_retries.at_once()

    def _confirm(self, manifest: Manifest, version: Version) -> None:
        """Take over a manifest that is in the store."""
        self._manifest, self._version = manifest, version
        self._swapping = None
        self._must_read = self._is_stale = False
        self._log_starts.check_retention()
        self._deletions.confirmed(manifest)
        self.uncopied.copied(manifest.end_offset)
        self._writes.confirmed(manifest)

    def _store_failed(self, failed: StoreFailed | AdoptionFailed) -> None:
        match failed.effect:
            case ReadManifest() | AdoptTier():
                self._manifest_effect = None
                self._manifest_retries.failed(failed.error, self._now_ms)
            case SwapManifest():
                self._manifest_effect = None
                self._must_read = True
                self._manifest_retries.failed(failed.error, self._now_ms)
            case CopySegment() | MergeSegments() | RewriteSegments():
                self._deletions.give_up(self._writes.failed(failed.error, self._now_ms))
            case DeleteObjects() | ListObjects():
                self._deletions.effect = None
                self._deletion_retries.failed(failed.error, self._now_ms)

    def _tier_adopted(self) -> None:
        self._manifest_effect = None
        self._align()
        if self._lineage is Lineage.CONTINUED:
            self._manifest_retries.succeeded()
        else:
            self._manifest_retries.failed(
                f"the log ends at {self._log.log_end_offset} after it has adopted the tier", self._now_ms
            )

    def _objects_listed(self, event: ObjectsListed) -> None:
        self._deletions.effect = None
        self._deletion_retries.succeeded()
        if self._must_read or not self._is_claimed or self._manifest is None:
            self._next_listing_ms = self._now_ms + FIRST_LISTING_MS
            return
        self._deletions.listed(event.names, self._manifest, self._writes.names_in_use)
        self._next_listing_ms = self._now_ms + LISTING_INTERVAL_MS

    # --- what comes next ------------------------------------------------------------------------

    def _next_effects(self) -> list[TierEffect]:
        self._note_uncopied()
        effects: list[TierEffect] = []
        if self._manifest_effect is None:
            effects += self._next_manifest_effects()
        self._decide_serving()
        return [*effects, *self._next_write(), *self._next_deletion()]

    def _note_uncopied(self) -> None:
        copied_to = self._log.log_start_offset if self._manifest is None else self._manifest.end_offset
        if self._log.copyable_end_offset <= copied_to:
            return
        max_lag_ms = self.config.max_lag_ms
        seen_ms = self._now_ms
        if self._manifest is not None and not self.uncopied.is_known:
            # The leader before has seen them since its last swap, perhaps.
            seen_ms -= max(min(self._wall_ms - self._manifest.written_ms, max_lag_ms), 0)
        self.uncopied.note(self._log.copyable_end_offset, seen_ms, max_lag_ms)

    def _next_manifest_effects(self) -> list[TierEffect]:
        if not self._manifest_retries.may_try(self._now_ms):
            return []
        if self._must_read:
            return [self._begin(ReadManifest())]
        if self._lineage is not Lineage.CONTINUED:
            self._align()
        if self._lineage is Lineage.ADOPTED and self._is_claimed:
            assert self._manifest is not None
            return [self._begin(AdoptTier(self._manifest, bring_back=self.config.compacts))]
        effects: list[TierEffect] = []
        if self.manifest is not None and self.manifest.log_start_offset > self._log.log_start_offset:
            effects.append(AdvanceLogStart(self.manifest.log_start_offset))
        new = self._next_manifest()
        if new is None:
            return effects
        self._swapping = new
        self._deletions.attempted(new)
        return [*effects, self._begin(SwapManifest(new, self._version))]

    def _align(self) -> None:
        if self._manifest is None:
            self._lineage = Lineage.CONTINUED
        else:
            log = self._log
            known = ((), 0) if log.is_brought_back_in_part else (log.leader_epochs, log.log_end_offset)
            self._lineage = compare(self._manifest, *known).lineage

    def _next_manifest(self) -> Manifest | None:
        """Return the manifest to replace that in the store, or None while that one will do."""
        log = self._log
        base = self._manifest or self._empty_manifest()
        new = base
        if self._lineage is Lineage.ADOPTED:
            pass  # The claim comes first.
        elif self.config.enabled or not self.config.delete_on_disable:
            new = reconciled(base, log) if self._lineage is Lineage.DIVERGED else base
            new = self._with_written(new)
            at_once = new is not base or self._is_stopping
            new = self._log_starts.advanced(
                new, log, self.config, now_ms=self._now_ms, wall_ms=self._wall_ms, at_once=at_once
            )
        elif base.segments or base.producers is not None:
            new = emptied(base, max(log.local_log_start_offset, log.log_start_offset))
        if new is base and self._is_claimed:
            return None
        return replace(
            with_deleted(new, self._deletions.deleted),
            owner_epoch=self.owner_epoch,
            leader_epoch=self.leader_epoch,
            written_ms=self._wall_ms,
        )

    def _empty_manifest(self) -> Manifest:
        start_offset = self._writes.copied_from
        if start_offset is None:
            start_offset = max(self._log.log_start_offset, self._log.local_log_start_offset)
        return empty_manifest(
            *self.identity,
            start_offset=start_offset,
            owner_epoch=self.owner_epoch,
            leader_epoch=self.leader_epoch,
        )

    def _with_written(self, manifest: Manifest) -> Manifest:
        new = self._writes.added_to(manifest, self._log)
        if new is None:
            self._deletions.give_up(self._writes.give_up())
            return manifest
        return new

    @property
    def _may_copy(self) -> bool:
        return self.config.enabled and not self.config.copy_disabled

    def _next_write(self) -> list[TierEffect]:
        writes = self._writes
        if writes.effect is not None or writes.written is not None or not self._may_copy:
            return []
        is_ready = self._lineage is Lineage.CONTINUED and self._is_claimed and not self._must_read
        if not is_ready or isinstance(self._manifest_effect, SwapManifest | AdoptTier):
            return []
        if not writes.retries.may_try(self._now_ms):
            return []
        manifest = self._manifest or self._empty_manifest()
        is_due = self._is_stopping or self.uncopied.is_due(self._now_ms, self.config.max_lag_ms)
        effect: WriteSegment | None = writes.next_copy(manifest, self._log, self.config, is_due=is_due)
        if effect is None and not self._is_stopping:
            effect = writes.next_replacement(manifest, self._log, self.config)
        return [] if effect is None else [effect]

    def _next_deletion(self) -> list[TierEffect]:
        if not self._deletion_retries.may_try(self._now_ms):
            return []
        if self._next_listing_ms is None:
            self._next_listing_ms = self._now_ms + FIRST_LISTING_MS
        effect: DeleteObjects | ListObjects | None = self._deletions.next()
        if effect is not None:
            return [effect]
        if self._deletions.effect is not None or self._is_stopping or self._must_read:
            return []
        if self._manifest is None or not self._is_claimed or self._now_ms < self._next_listing_ms:
            return []
        prefixes = segments_prefix(*self.identity), producers_prefix(*self.identity[1:])
        effect = self._deletions.effect = ListObjects(prefixes)
        return [effect]

    def _begin(self, effect: ReadManifest | SwapManifest | AdoptTier) -> TierEffect:
        self._manifest_effect = effect
        return effect

    def _decide_serving(self) -> None:
        manifest = self._manifest
        if self._lineage is Lineage.CONTINUED:
            if self._is_claimed or manifest is None or manifest.owner_epoch == self.owner_epoch:
                self.may_serve = True
        elif self._lineage is Lineage.ADOPTED:
            self.may_serve = False
        elif self._is_whole:
            self.may_serve = self.may_serve or not self._log.is_brought_back_in_part
        elif self._log.stands_alone:
            failing_since_ms = self._manifest_retries.failing_since_ms
            if failing_since_ms is not None and self._now_ms - failing_since_ms >= self._outage_ms:
                self.may_serve = True

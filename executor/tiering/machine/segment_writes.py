"""The remote segments that a leader writes: one at a time, and in a manifest before the next."""

from typing import Final

from sparklog.executor.tiering.machine.events import (
    CopySegment,
    LogFacts,
    MergeSegments,
    PartitionIdentity,
    RewriteSegments,
    SegmentWritten,
    TierConfig,
    WriteSegment,
)
from sparklog.executor.tiering.machine.plans import local_bytes, next_copy_end, next_merge, next_rewrite
from sparklog.executor.tiering.machine.retries import Retries
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_changes import appended, named_objects, replaced
from sparklog.node.remote_log.machine.names import (
    producers_file_name,
    producers_prefix,
    segment_file_name,
    segments_prefix,
)
from sparklog.protocol.types import LeaderEpoch, Offset


class SegmentWrites:
    def __init__(self, identity: PartitionIdentity, leader_epoch: LeaderEpoch, unique: str) -> None:
        """`unique` makes names of objects that no other machine makes."""
        self.effect: WriteSegment | None = None
        """The one under way."""
        self.written: SegmentWritten | None = None
        """An object that no manifest in the store is known to name."""
        self.retries: Final = Retries()
        self._identity: Final = identity
        self._leader_epoch: Final = leader_epoch
        self._unique: Final = unique
        self._names_made = 0
        self._nothing_to_merge: Manifest | None = None
        """A manifest that was looked through."""
        self._nothing_to_rewrite: tuple[Manifest, Offset | None] | None = None
        """A manifest that was looked through, and how far the log was cleaned then."""
        self._rewritten: tuple[Offset | None, Offset] = (None, 0)
        """How far segments were rewritten, from the oldest on, at a cleaned offset."""
        self._raw_bytes = self._local_bytes = 0
        """Of all that was copied and rewritten, in the tier and in the local log."""

    # --- what was written -----------------------------------------------------------------------

    @property
    def names_in_use(self) -> list[str]:
        """Return the names of objects that may come into a manifest."""
        return [*([] if self.effect is None else names_of(self.effect)), *self._written_names]

    @property
    def _written_names(self) -> list[str]:
        if self.written is None:
            return []
        segment, producers = self.written.segment, self.written.producers
        names = [None if segment is None else segment.name, producers]
        return [name for name in names if name is not None]

    @property
    def copied_from(self) -> Offset | None:
        """Return where the copy begins that is under way, or in no manifest yet; None for none."""
        effect = self.effect or (self.written and self.written.effect)
        return effect.base_offset if isinstance(effect, CopySegment) else None

    def ended(self, written: SegmentWritten, log: LogFacts) -> None:
        self.effect = None
        self.written = written
        self.retries.succeeded()
        effect, segment = written.effect, written.segment
        if segment is not None and not isinstance(effect, MergeSegments):
            self._raw_bytes += segment.raw_bytes
            self._local_bytes += local_bytes(log, effect.base_offset, effect.end_offset)

    def failed(self, error: str, now_ms: int) -> list[str]:
        """Return the names of objects that may be there all the same."""
        assert self.effect is not None
        names, self.effect = names_of(self.effect), None
        self.retries.failed(error, now_ms)
        return names

    def confirmed(self, manifest: Manifest) -> None:
        effect = None if self.written is None else self.written.effect
        if isinstance(effect, RewriteSegments) and not set(effect.segments).intersection(manifest.segments):
            self._rewritten = (self._rewritten[0], effect.end_offset)
        if named_objects(manifest).intersection(self._written_names):
            self.written = None

    def give_up(self) -> list[str]:
        """Forget what was written; return the names of its objects."""
        names, self.written = self._written_names, None
        return names

    def added_to(self, manifest: Manifest, log: LogFacts) -> Manifest | None:
        """Return the manifest with what was written; None if it does not fit any more."""
        if self.written is None:
            return manifest
        effect, segment = self.written.effect, self.written.segment
        if not isinstance(effect, CopySegment):
            return replaced(manifest, effect.segments, segment)
        if manifest.end_offset != effect.base_offset:
            return None
        return appended(manifest, effect.end_offset, segment, self.written.producers, log.leader_epochs)

    # --- what is written next -------------------------------------------------------------------

    def next_copy(
        self, manifest: Manifest, log: LogFacts, config: TierConfig, *, is_due: bool
    ) -> CopySegment | None:
        """Return the next copy and let it be under way; with `is_due` also of a part of a segment."""
        base_offset = manifest.end_offset
        end_offset = next_copy_end(base_offset, log, config.segment_bytes, partial=is_due)
        if end_offset is None:
            return None
        producers_name = producers_prefix(
            self._identity.topic_id, self._identity.partition
        ) + producers_file_name(end_offset, self._leader_epoch, self._unique_name())
        segment_name = self._segment_name(base_offset)
        copy = CopySegment(base_offset, end_offset, segment_name, producers_name, config.period_ms)
        self.effect = copy
        return copy

    def next_replacement(
        self, manifest: Manifest, log: LogFacts, config: TierConfig
    ) -> MergeSegments | RewriteSegments | None:
        """Return the next merge, or rewrite of what compaction has made smaller, and let it be under way."""
        effect = self._next_merge(manifest, config)
        self.effect = effect or (self._next_rewrite(manifest, log, config) if config.compacts else None)
        return self.effect

    def _next_merge(self, manifest: Manifest, config: TierConfig) -> MergeSegments | None:
        if manifest is self._nothing_to_merge:
            return None
        segments = next_merge(manifest.segments, config.segment_bytes, config.period_ms)
        if segments is None:
            self._nothing_to_merge = manifest
            return None
        return MergeSegments(segments, self._segment_name(segments[0].base_offset))

    def _next_rewrite(self, manifest: Manifest, log: LogFacts, config: TierConfig) -> RewriteSegments | None:
        if self._nothing_to_rewrite == (manifest, log.cleaned_offset):
            return None
        if self._rewritten[0] != log.cleaned_offset:
            self._rewritten = (log.cleaned_offset, 0)
        raw_per_local_byte = max(1.0, self._raw_bytes / self._local_bytes) if self._local_bytes else 1.0
        segments = next_rewrite(manifest, log, config.segment_bytes, self._rewritten[1], raw_per_local_byte)
        if segments is None:
            self._nothing_to_rewrite = (manifest, log.cleaned_offset)
            return None
        return RewriteSegments(segments, self._segment_name(segments[0].base_offset))

    def _segment_name(self, base_offset: Offset) -> str:
        file_name = segment_file_name(base_offset, self._leader_epoch, self._unique_name())
        return segments_prefix(*self._identity) + file_name

    def _unique_name(self) -> str:
        self._names_made += 1
        return f"{self._unique}-{self._names_made}"


def names_of(effect: WriteSegment) -> list[str]:
    if isinstance(effect, CopySegment):
        return [effect.segment_name, effect.producers_name]
    return [effect.segment_name]

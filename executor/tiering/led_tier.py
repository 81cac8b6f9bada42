"""The tier of one partition while this broker leads it, in one leader epoch: a machine and its effects.

Each effect runs as a task of its own and comes back to the machine as one event, with the log's state of that
moment. Nothing is decided here. An effect that ends after the leadership is dropped: what it wrote is an
orphan, or a swap that the next leader finds.

While the machine must not serve, the replica is suspended (`Suspension.TIER`).
"""

import asyncio
import logging
import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sparklog.executor.partitions.replica import Replica, Suspension
from sparklog.executor.tiering.adoption import TierAdoption
from sparklog.executor.tiering.bring_back_marker import BringBackMarker, read_marker
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
    LocalSegment,
    LogFacts,
    ManifestMissing,
    ManifestRead,
    MergeSegments,
    ObjectsDeleted,
    ObjectsListed,
    ReadManifest,
    RewriteSegments,
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
)
from sparklog.executor.tiering.machine.partition_tier import PartitionTier
from sparklog.executor.tiering.segment_copies import CopyStoppedError, SegmentCopies
from sparklog.executor.tiering.store_turns import StoreTurns
from sparklog.executor.tiering.tier_counts import TierCounts, TierError, TierLag
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.metrics.remote_log import TierErrorKind
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_encoding import ManifestFormatError, encode_manifest
from sparklog.node.remote_log.machine.names import manifest_name
from sparklog.node.remote_log.machine.ownership import OWNER_NAME
from sparklog.node.remote_log.object_store import (
    ObjectExistsError,
    ObjectMissingError,
    ObjectStore,
    StaleObjectError,
    StoreError,
    StoreRefusedError,
)
from sparklog.node.remote_log.stored_manifest import read_manifest
from sparklog.node.storage.segments.segment import Segment
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.batch import CorruptBatchError
from sparklog.protocol.types import Offset

logger = logging.getLogger(__name__)


class FactsOfLog:
    """The facts of one replica's log, gathered every second: closed segments when there are others."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._segments: tuple[Segment, ...] = ()
        """The segments of the log that were looked through; the log replaces the tuple as a whole."""
        self._closed: tuple[LocalSegment, ...] = ()
        """Those of `_segments` but for the active one."""

    def now(self, marker: BringBackMarker | None) -> LogFacts:
        """Return the state of the log as it is now; `marker` is that in its directory."""
        replica = self._replica
        log = replica.log
        return LogFacts(
            log_start_offset=log.log_start_offset,
            local_log_start_offset=log.local_log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            segments=self._local_segments(log.segments.all, log.log_end_offset),
            leader_epochs=log.epochs.entries,
            log_start_is_guessed=log.log_start_is_guessed,
            cleaned_offset=log.cleaned_offset,
            is_brought_back_in_part=marker is not None and marker.applies_to(log),
        )

    def _local_segments(
        self, segments: tuple[Segment, ...], log_end_offset: Offset
    ) -> tuple[LocalSegment, ...]:
        if segments is not self._segments:
            self._segments = segments
            self._closed = tuple(
                LocalSegment(segment.base_offset, following.base_offset, segment.size_bytes)
                for segment, following in pairwise(segments)
            )
        active = segments[-1]
        return (*self._closed, LocalSegment(active.base_offset, log_end_offset, active.size_bytes))


LISTED_AT_MOST: Final = 10_000
"""Objects of a partition that one listing takes in; the rest is for the next one."""
DELETED_TOGETHER: Final = 8


@dataclass(frozen=True, slots=True)
class TierServices:
    """The parts of a broker that the tiers of its led partitions share."""

    store: ObjectStore
    copies: SegmentCopies
    adoption: TierAdoption
    requests: StoreTurns
    """One for each request to the store under way, copies not counted."""
    adoptions: StoreTurns


class LedTier:
    """A `PartitionTierView`: `manifest` may be used from the time on at which `Replica.tier` is set."""

    def __init__(
        self, replica: Replica, machine: PartitionTier, services: TierServices, counts: TierCounts
    ) -> None:
        self.replica: Final = replica
        self._machine = machine
        self._services = services
        self._counts = counts
        self._name = manifest_name(replica.topic_id, replica.topic_partition.partition)
        self._tasks: set[asyncio.Task[None]] = set()
        self._copy_stopped = threading.Event()
        self._is_ended = False
        self._has_seen_owner = False
        """Whether the manifest was found missing just now, in a store with an owner."""
        self._facts = FactsOfLog(replica)
        self._marker = read_marker(replica.log.directory)
        self.error: TierError | None = None
        """The error by which this tier stands still; None while it goes on."""
        self._summed: tuple[Manifest | None, int] = (None, 0)
        """The manifest whose objects were last summed up, and their bytes."""

    @property
    def manifest(self) -> Manifest:
        manifest = self._machine.manifest
        assert manifest is not None, "`Replica.tier` is set once there is one"
        return manifest

    @property
    def tiered_end_offset(self) -> Offset | None:
        return self._machine.tiered_end_offset

    @property
    def store(self) -> ObjectStore:
        return self._services.store

    @property
    def awaits_manifest(self) -> bool:
        """Whether it is not known yet what the tier has; the replica may serve before."""
        return not self._is_ended and self._machine.awaits_manifest

    def state(self, now_ms: int) -> TierLag:
        """Return the figures of now; asked every second, so that long lists are looked through but once."""
        replica, manifest = self.replica, self._machine.manifest
        log = replica.log
        copied_to = log.local_log_start_offset if manifest is None else manifest.end_offset
        lag_bytes = lag_segments = 0
        end_offset = log.log_end_offset
        for segment in reversed(log.segments.all):
            if end_offset <= copied_to:
                break
            lag_bytes += segment.size_bytes
            lag_segments += end_offset < log.log_end_offset
            end_offset = segment.base_offset
        if manifest is not self._summed[0]:
            segments = () if manifest is None else manifest.segments
            self._summed = manifest, sum(segment.size_bytes for segment in segments)
        return TierLag(
            copy_lag_bytes=lag_bytes,
            copy_lag_segments=lag_segments,
            delete_lag_segments=0 if manifest is None else len(manifest.unreferenced),
            remote_bytes=self._summed[1],
            remote_segments=0 if manifest is None else len(manifest.segments),
            local_bytes=log.size_bytes,
            copy_lag_records=max(0, min(replica.high_watermark, replica.last_stable_offset) - copied_to),
            copy_lag_ms=self._machine.uncopied.age_ms(now_ms),
        )

    # --- events ---------------------------------------------------------------------------------

    def tick(self) -> None:
        self._handle(Ticked())

    def reconfigure(self, config: TierConfig) -> None:
        self._handle(ConfigChanged(config))

    def copy_all(self) -> None:
        """Copy up to the log's end at once, and go on doing so."""
        self._handle(StopRequested())

    def go_on(self) -> None:
        """Copy as usual again: the stop was taken back."""
        self._handle(StopRevoked())

    def end(self) -> None:
        """End with the leadership; the replica may serve, and has no tier, as far as it is up to this."""
        self._is_ended = True
        self._copy_stopped.set()
        for task in self._tasks:
            task.cancel()
        if self.replica.tier is self:
            self.replica.tier = None
        self.replica.awaits_tier = False
        self.replica.resume(Suspension.TIER)

    async def ended(self) -> None:
        """Return when no task of this tier runs any more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _handle(self, event: TierEvent) -> None:
        if self._is_ended or self.replica.offline:
            return
        if isinstance(event, TierAdopted | AdoptionFailed):
            self._marker = read_marker(self.replica.log.directory)
        facts = self._facts.now(self._marker)
        effects = self._machine.handle(event, facts, now_ms=monotonic_ms(), wall_ms=wall_clock_ms())
        # None again while the log and a manifest that was just read have different histories.
        self.replica.tier = self if self._machine.manifest is not None else None
        self.replica.awaits_tier = self.awaits_manifest
        for effect in effects:
            self._carry_out(effect)
        if self._machine.tiered_end_offset is not None and self._machine.may_serve:
            self.replica.complete_epoch = self._machine.leader_epoch
        # Last, since an adopted log begins elsewhere: coordinators load it when the replica resumes.
        if self._machine.may_serve:
            self.replica.resume(Suspension.TIER)
        else:
            self.replica.suspend(Suspension.TIER)

    # --- effects --------------------------------------------------------------------------------

    def _carry_out(self, effect: TierEffect) -> None:
        match effect:
            case AdvanceLogStart():
                self._advance_log_start(effect)
            case StopCopying():
                self._copy_stopped.set()
            case EndTier():
                self._ended_by(effect)
            case _:
                task = asyncio.get_running_loop().create_task(self._run(effect))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _advance_log_start(self, effect: AdvanceLogStart) -> None:
        replica = self.replica
        try:
            if replica.log.advance_log_start_offset(effect.log_start_offset):
                replica.log_start_offset_moved()
        except (OSError, KafkaError) as error:
            replica.fail_if_storage(error)

    def _ended_by(self, effect: EndTier) -> None:
        message = (
            f"{effect.reason.value} (owner epoch {effect.owner_epoch}, leader epoch {effect.leader_epoch}): "
            "nothing more is copied from here"
        )
        logger.error("%s: %s", self.replica, message)
        is_behind = effect.reason is EndReason.LEADER_EPOCH_BEHIND
        self._note_error(message, TierErrorKind.OTHER if is_behind else TierErrorKind.REPLACED)

    async def _run(self, effect: TierEffect) -> None:
        event, kind = await self._event_of(effect)
        if isinstance(event, StoreFailed | AdoptionFailed):
            if kind is not None:
                self._failed(event, kind)
        elif not isinstance(event, ManifestMissing | ManifestRead):
            self.error = None
        self._handle(event)

    async def _event_of(self, effect: TierEffect) -> tuple[TierEvent, TierErrorKind | None]:
        """Do what an effect wants; return the event that answers it, and the kind of its error.

        A copy that was stopped on request has none.
        """
        kind: TierErrorKind | None = TierErrorKind.OTHER
        try:
            return await self._perform(effect), kind
        except StoreRefusedError as error:
            kind, message = TierErrorKind.REFUSED, str(error)
        except StoreError as error:
            kind, message = TierErrorKind.UNAVAILABLE, str(error)
        except ManifestFormatError as error:
            message = str(error)
        except CopyStoppedError:
            kind, message = None, "stopped on request"
        except (OSError, KafkaError, CorruptBatchError) as error:
            kind, message = TierErrorKind.LOCAL, str(error)
            # A copy only reads the log, and its file may lack space just because nothing could be copied: the
            # log's own readers and writers say whether its disk has failed.
            if isinstance(effect, AdoptTier) and not self._is_ended:
                self.replica.fail_if_storage(error)
        except Exception as error:
            # A mistake in one partition's data must not end what keeps the others.
            logger.exception("%s: %s failed", self.replica, type(effect).__name__)
            message = repr(error)
        if isinstance(effect, AdoptTier):
            return AdoptionFailed(effect, message), kind
        assert not isinstance(effect, AdvanceLogStart | StopCopying | EndTier)
        return StoreFailed(effect, message), kind

    async def _perform(self, effect: TierEffect) -> TierEvent:
        services, store = self._services, self._services.store
        match effect:
            case CopySegment() | MergeSegments() | RewriteSegments():
                self._copy_stopped.clear()
                self._counts.copies += 1
                written = await services.copies.write(self.replica, effect, self._copy_stopped, self._counts)
                self._counts.copied_bytes += 0 if written.segment is None else written.segment.size_bytes
                return written
            case AdoptTier():
                async with services.adoptions.turn(self.replica):
                    await services.adoption.adopt(self.replica, effect)
                return TierAdopted(effect)
            case ReadManifest():
                return await self._read_manifest()
            case SwapManifest(manifest, version):
                # Off the loop, as is decoding: one of 10,000 segments takes hundreds of milliseconds.
                data = await asyncio.to_thread(encode_manifest, manifest)
                async with services.requests.turn(self.replica):
                    return await self._swap(effect, data, version)
            case DeleteObjects(names):
                for first in range(0, len(names), DELETED_TOGETHER):
                    self._counts.deletes += len(names[first : first + DELETED_TOGETHER])
                    async with services.requests.turn(self.replica):
                        await asyncio.gather(*map(store.delete, names[first : first + DELETED_TOGETHER]))
                return ObjectsDeleted(effect)
            case ListObjects(prefixes):
                return ObjectsListed(effect, await self._list(prefixes))
        raise AssertionError(effect)

    async def _read_manifest(self) -> ManifestRead | ManifestMissing:
        _, partition = self.replica.topic_partition
        async with self._services.requests.turn(self.replica):
            try:
                return ManifestRead(*await read_manifest(self.store, self.replica.topic_id, partition))
            except ObjectMissingError:
                await self._check_owner()
                self._has_seen_owner = True
                return ManifestMissing()

    async def _swap(self, effect: SwapManifest, data: bytes, version: str | None) -> Swapped | SwapStale:
        store = self._services.store
        try:
            if version is None:
                seen, self._has_seen_owner = self._has_seen_owner, False
                if not seen:
                    await self._check_owner()
                return Swapped(effect, await store.create(self._name, data))
            return Swapped(effect, await store.replace(self._name, data, version))
        except (ObjectExistsError, StaleObjectError):
            return SwapStale(effect)

    async def _check_owner(self) -> None:
        """Check that the store is a prefix in use, and not, say, the empty mount point of a directory.

        There the manifest would be missed, and what is written would be missed later.

        Raises:
            StoreError: it has no owner, or cannot be read.
        """
        try:
            await self.store.get(OWNER_NAME)
        except ObjectMissingError:
            raise StoreRefusedError(
                f"{self.store.uri} is not the store in which this cluster began: the object {OWNER_NAME!r} "
                "is missing; if it is a directory, is it mounted?"
            ) from None

    async def _list(self, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        names: list[str] = []
        async with self._services.requests.turn(self.replica):
            for prefix in prefixes:
                async for found in self._services.store.list(prefix):
                    names.append(found.name)
                    if len(names) == LISTED_AT_MOST:
                        return tuple(names)
        return tuple(names)

    # --- errors ---------------------------------------------------------------------------------

    def _failed(self, event: StoreFailed | AdoptionFailed, kind: TierErrorKind) -> None:
        effect = event.effect
        if isinstance(effect, CopySegment | MergeSegments | RewriteSegments):
            self._counts.copy_errors += 1
        elif isinstance(effect, DeleteObjects):
            self._counts.delete_errors += 1
        if self.error is None or self.error.message != event.error:
            logger.warning("%s: %s failed, and is tried again: %s", self.replica, _words(effect), event.error)
        self._note_error(event.error, kind)

    def _note_error(self, message: str, kind: TierErrorKind) -> None:
        topic, partition = self.replica.topic_partition
        since_ms = monotonic_ms() if self.error is None else self.error.since_ms
        self.error = TierError(topic, partition, message, kind, since_ms)


_WORDS: Final = {
    ReadManifest: "reading the manifest of its tier",
    CopySegment: "copying to its tier",
    MergeSegments: "merging segments of its tier",
    RewriteSegments: "rewriting segments of its tier",
    SwapManifest: "replacing the manifest of its tier",
    DeleteObjects: "deleting objects of its tier",
    ListObjects: "listing objects of its tier",
    AdoptTier: "beginning its log at the end of its tier",
}


def _words(effect: TierEffect) -> str:
    return _WORDS[type(effect)]

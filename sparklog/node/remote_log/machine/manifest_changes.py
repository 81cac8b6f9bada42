"""The changes of a manifest: each takes one and returns another, which keeps the invariants of `manifest`.

Objects that a change leaves unnamed go to `unreferenced`, so that they are deleted also by a later leader;
`with_deleted` takes them out again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from sparklog.node.remote_log.machine.manifest import EpochStart, Manifest, RemoteSegment
from sparklog.node.storage.machine.leader_epochs import EpochEntry, LeaderEpochs
from sparklog.protocol.types import LeaderEpoch, Offset


def empty_manifest(
    topic: str,
    topic_id: UUID,
    partition: int,
    *,
    start_offset: Offset,
    owner_epoch: int,
    leader_epoch: LeaderEpoch,
) -> Manifest:
    """Return the manifest of a partition of which nothing is in the tier."""
    return Manifest(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        owner_epoch=owner_epoch,
        leader_epoch=leader_epoch,
        log_start_offset=start_offset,
        end_offset=start_offset,
        segments=(),
        leader_epochs=(),
        producers=None,
        unreferenced=(),
        written_ms=0,
    )


def appended(
    manifest: Manifest,
    end_offset: Offset,
    segment: RemoteSegment | None,
    producers: str | None,
    log_epochs: Sequence[EpochEntry],
) -> Manifest:
    """Return the manifest with the records up to `end_offset`; `segment` is None if there are none.

    `log_epochs` are those of the log that the records were copied from.
    """
    assert end_offset >= manifest.end_offset
    assert segment is None or manifest.end_offset <= segment.base_offset < segment.end_offset <= end_offset
    return replace(
        manifest,
        end_offset=end_offset,
        segments=manifest.segments if segment is None else (*manifest.segments, segment),
        leader_epochs=_with_epochs(manifest, log_epochs, end_offset),
        producers=producers,
        unreferenced=_with_names(manifest.unreferenced, [manifest.producers], named=producers),
    )


def _with_epochs(
    manifest: Manifest, log_epochs: Sequence[EpochEntry], end_offset: Offset
) -> tuple[EpochStart, ...]:
    known = LeaderEpochs(log_epochs)
    known.truncate_from_end(end_offset)
    known.truncate_from_start(manifest.end_offset)
    last = manifest.leader_epochs[-1].leader_epoch if manifest.leader_epochs else -1
    new = (EpochStart(*entry) for entry in known.entries if entry.leader_epoch > last)
    return (*manifest.leader_epochs, *new)


def replaced(
    manifest: Manifest, segments: Sequence[RemoteSegment], segment: RemoteSegment | None
) -> Manifest | None:
    """Return the manifest with one segment, or none, instead of neighbouring ones.

    None if it does not name them all any more, or in other windows.
    """
    old = manifest.segments
    first = next((place for place, each in enumerate(old) if each == segments[0]), None)
    if first is None or old[first : first + len(segments)] != tuple(segments):
        return None
    assert segment is None or (
        segments[0].base_offset <= segment.base_offset < segment.end_offset <= segments[-1].end_offset
    )
    new = () if segment is None else (segment,)
    return replace(
        manifest,
        segments=(*old[:first], *new, *old[first + len(segments) :]),
        unreferenced=_with_names(manifest.unreferenced, [each.name for each in segments]),
    )


def started_at(manifest: Manifest, log_start_offset: Offset) -> Manifest:
    """Return the manifest of the log whose records below `log_start_offset` are deleted.

    A log start above everything in the tier moves its end, too, and leaves no producers' state.
    """
    if log_start_offset <= manifest.log_start_offset:
        return manifest
    kept = tuple(segment for segment in manifest.segments if segment.end_offset > log_start_offset)
    gone = manifest.segments[: len(manifest.segments) - len(kept)]
    beyond = log_start_offset > manifest.end_offset
    producers = None if beyond else manifest.producers
    return replace(
        manifest,
        log_start_offset=log_start_offset,
        end_offset=max(manifest.end_offset, log_start_offset),
        segments=kept,
        leader_epochs=_epochs_from(manifest.leader_epochs, log_start_offset, at_end=beyond),
        producers=producers,
        unreferenced=_with_names(
            manifest.unreferenced, [*(each.name for each in gone), manifest.producers], named=producers
        ),
    )


def _epochs_from(
    entries: tuple[EpochStart, ...], start_offset: Offset, *, at_end: bool
) -> tuple[EpochStart, ...]:
    if at_end:
        # Of which epoch the records between are is not known here; the next append says it.
        return ()
    epochs = LeaderEpochs(EpochEntry(*entry) for entry in entries)
    epochs.truncate_from_start(start_offset)
    return tuple(EpochStart(*entry) for entry in epochs.entries)


def cut(manifest: Manifest, end_offset: Offset) -> Manifest:
    """Return the manifest with nothing at or above `end_offset`, where the log has another history.

    A segment that reaches above keeps its object and gets a smaller window; its counts and times stay what
    the object has.
    """
    if end_offset >= manifest.end_offset:
        return manifest
    end_offset = max(end_offset, manifest.log_start_offset)
    kept = [
        segment if segment.end_offset <= end_offset else replace(segment, end_offset=end_offset)
        for segment in manifest.segments
        if segment.base_offset < end_offset
    ]
    gone = [segment.name for segment in manifest.segments[len(kept) :]]
    epochs = tuple(entry for entry in manifest.leader_epochs if entry.start_offset < end_offset)
    return replace(
        manifest,
        end_offset=end_offset,
        segments=tuple(kept),
        leader_epochs=epochs,
        producers=None,
        unreferenced=_with_names(manifest.unreferenced, [*gone, manifest.producers]),
    )


def emptied(manifest: Manifest, start_offset: Offset) -> Manifest:
    """Return the manifest without a segment, of a log that begins at `start_offset`."""
    return replace(
        manifest,
        log_start_offset=start_offset,
        end_offset=start_offset,
        segments=(),
        leader_epochs=(),
        producers=None,
        unreferenced=_with_names(
            manifest.unreferenced, [*(each.name for each in manifest.segments), manifest.producers]
        ),
    )


def with_deleted(manifest: Manifest, names: Iterable[str]) -> Manifest:
    """Return the manifest without unreferenced objects that are no longer in the store."""
    deleted = set(names)
    kept = tuple(name for name in manifest.unreferenced if name not in deleted)
    return manifest if len(kept) == len(manifest.unreferenced) else replace(manifest, unreferenced=kept)


def named_objects(manifest: Manifest) -> frozenset[str]:
    """Return the names of the objects that hold the partition's records and producers."""
    names = {segment.name for segment in manifest.segments}
    if manifest.producers is not None:
        names.add(manifest.producers)
    return frozenset(names)


def _with_names(
    unreferenced: tuple[str, ...], names: Iterable[str | None], named: str | None = None
) -> tuple[str, ...]:
    return (*unreferenced, *(name for name in names if name is not None and name != named))

"""The losses of a cluster that begins again from its object store, by partition, for the log.

A killed cluster loses what was acknowledged after the last copy of a partition: within
sparklog.remote.max.lag.ms, if the store kept up. Consumers notice by the leader epochs (KIP-320).
Partitions of topics without a tier begin empty.

The manifests are read beside the start, which waits for nothing here.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.node.metadata.image import MetadataImage
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_encoding import ManifestFormatError
from sparklog.node.remote_log.object_store import ObjectMissingError, ObjectStore, StoreError
from sparklog.node.remote_log.stored_manifest import read_manifest

AT_ONCE: Final = 32
"""Manifests that are read at once."""
IN_A_LINE: Final = 20
"""Partitions that a log line names."""

logger = logging.getLogger(__name__)


class _Found(NamedTuple):
    topic: str
    number: int
    manifest: Manifest | None
    failure: str | None = None


async def report_losses(
    store: ObjectStore, image: MetadataImage, owner_epoch: int, *, lost_nothing: bool
) -> None:
    """Log where each partition of a restored image goes on, and the topics that begin empty.

    `lost_nothing`: the cluster stopped in order with everything in the store, apart from topics without tier.
    """
    topics = image.topics.by_name
    wanted = [(name, topic.topic_id, number) for name, topic in topics.items() for number in topic.partitions]
    found = await _read(store, wanted)
    empty = sorted(
        name
        for name, partitions in found.items()
        if not any(each.manifest is not None or each.failure for each in partitions)
    )
    if empty:
        logger.warning("Nothing of these topics is in %s, they begin empty: %s", store.uri, ", ".join(empty))
    if lost_nothing:
        return
    for name, partitions in sorted(found.items()):
        if name not in empty:
            _say(image, name, partitions, owner_epoch)


async def _read(
    store: ObjectStore, wanted: Collection[tuple[str, UUID, int]]
) -> Mapping[str, Sequence[_Found]]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def read(topic: str, topic_id: UUID, number: int) -> _Found:
        async with limit:
            try:
                manifest, _ = await read_manifest(store, topic_id, number)
                return _Found(topic, number, manifest)
            except ObjectMissingError:
                return _Found(topic, number, None)
            except (StoreError, ManifestFormatError) as error:
                return _Found(topic, number, None, str(error))

    by_topic: defaultdict[str, list[_Found]] = defaultdict(list)
    for found in await asyncio.gather(*(read(*each) for each in wanted)):
        by_topic[found.topic].append(found)
    return by_topic


def _say(image: MetadataImage, name: str, partitions: Sequence[_Found], owner_epoch: int) -> None:
    registrations = image.topics.by_name[name].partitions
    places = []
    for each in sorted(partitions):
        leader_epoch = registrations[each.number].leader_epoch
        if each.failure is not None:
            places.append(f"{each.number} unknown ({each.failure})")
        elif each.manifest is not None:
            # A leader that has taken the manifest over already has written it since.
            known = each.manifest.owner_epoch < owner_epoch
            since = f", copied {_time(each.manifest.written_ms)}" if known else ""
            places.append(
                f"{each.number} at offset {each.manifest.end_offset} in leader epoch {leader_epoch}{since}"
            )
    if empty := [
        str(each.number) for each in sorted(partitions) if each.manifest is None and not each.failure
    ]:
        places.append(f"{', '.join(empty)} empty")
    for line in _lines(places):
        logger.warning(
            "The cluster ended without a complete copy: partitions of %s go on as follows, and records that "
            "were acknowledged after the copy are lost: %s",
            name,
            line,
        )


def _lines(places: Sequence[str]) -> Iterable[str]:
    for first in range(0, len(places), IN_A_LINE):
        yield "; ".join(places[first : first + IN_A_LINE])


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).isoformat(timespec="milliseconds")

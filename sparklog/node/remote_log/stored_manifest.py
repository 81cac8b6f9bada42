"""Reading the manifest of a partition from the object store."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import UUID

from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_encoding import decode_manifest
from sparklog.node.remote_log.machine.names import manifest_name
from sparklog.node.remote_log.object_store import ObjectStore, Version


class StoredManifest(NamedTuple):
    manifest: Manifest
    version: Version


async def read_manifest(
    store: ObjectStore,
    topic_id: UUID,
    partition: int,
    known: StoredManifest | None = None,
    in_thread: Callable[
        [Callable[[str, bytes], Manifest], str, bytes], Awaitable[Manifest]
    ] = asyncio.to_thread,
) -> StoredManifest:
    """Return the newest manifest of a partition: `known` itself if that is the newest.

    `in_thread` calls a function off the loop.

    Raises:
        ManifestFormatError: the object is damaged, or of an unknown format.
        ObjectMissingError, StoreRefusedError, StoreUnavailableError: as the store raises them.
    """
    name = manifest_name(topic_id, partition)
    found = await store.get(name)
    if known is not None and found.version == known.version:
        return known
    # Off the loop: one of 10,000 segments takes hundreds of milliseconds.
    return StoredManifest(await in_thread(decode_manifest, name, found.data), found.version)

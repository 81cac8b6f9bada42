"""The snapshots of the cluster's metadata in the object store: claiming, reading and replacing the newest.

Order for callers: `claim`, then `snapshot` if there is one, then `save`, one at a time. A snapshot is
written before `metadata/latest` names it, and the one before it is deleted afterwards, so at any moment the
named one is whole. Another application that claims the prefix replaces `metadata/latest` first: from then
on `save` fails.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from sparklog.node.clocks import wall_clock_ms
from sparklog.node.metadata_log.machine.snapshot_batches import (
    MetadataSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from sparklog.node.remote_log.machine.stored_metadata import (
    LATEST_NAME,
    METADATA_PREFIX,
    StoredMetadata,
    decode_stored_metadata,
    encode_stored_metadata,
    snapshot_name,
)
from sparklog.node.remote_log.object_store import (
    ObjectExistsError,
    ObjectMissingError,
    ObjectStore,
    StaleObjectError,
    StoreError,
    StoreUnavailableError,
    Version,
)
from sparklog.protocol.records.batch import HEADER_BYTES, read_header

_ATTEMPTS: Final = 3
"""Reads of `metadata/latest` in one `save`, which another writer or a lost reply may make necessary."""

logger = logging.getLogger(__name__)


class PrefixLostError(Exception):
    """Another application owns the prefix."""


class MetadataStore:
    def __init__(self, store: ObjectStore, owner_epoch: int) -> None:
        self.uri = store.uri
        self._store = store
        self._owner_epoch = owner_epoch
        self._latest: StoredMetadata | None = None
        self._version: Version | None = None
        self._found: StoredMetadata | None = None
        """The metadata of another owner as `claim` found it."""
        self._is_known = False
        """Whether `_latest` is what the store has: not after a write with an unknown outcome."""
        self._deletable: set[str] = set()
        """Names of snapshots that `metadata/latest` names no more."""

    async def claim(self) -> StoredMetadata | None:
        """Return the newest snapshot's description, which from now on bears the own owner epoch.

        In the store it is not the last of an orderly stop any more: the cluster goes on from here. `starts`
        are those before this one.

        Raises:
            PrefixLostError.
            StoredMetadataFormatError.
            StoreError: it may be called again.
        """
        await self._read()
        if self._latest is not None and self._latest.owner_epoch < self._owner_epoch:
            self._found = self._latest
            await self._swap(
                replace(
                    self._found,
                    owner_epoch=self._owner_epoch,
                    is_final=False,
                    is_copied=False,
                    starts=self._found.starts + 1,
                )
            )
        return self._found or self._latest

    async def snapshot(self, stored: StoredMetadata) -> MetadataSnapshot:
        """Return a snapshot's contents.

        Raises:
            DamagedSnapshotError.
            StoreError.
        """
        found = await self._store.get(stored.name)
        return await asyncio.to_thread(decode_snapshot, stored.snapshot_id, _batches(found.data))

    async def save(
        self,
        cluster_id: str,
        snapshot: MetadataSnapshot,
        *,
        is_final: bool = False,
        is_copied: bool = False,
    ) -> None:
        """Write a snapshot of committed metadata, and name it the newest.

        Raises:
            PrefixLostError.
            StoreError: it may be called again, with this snapshot or a later one.
        """
        if not self._is_known:
            await self._read()
        name = snapshot_name(snapshot.snapshot_id)
        if self._latest is None or self._latest.name != name:
            data = await asyncio.to_thread(lambda: b"".join(encode_snapshot(snapshot)))
            size_bytes = len(data)
            await self._create(name, data)
            self._deletable.discard(name)
        else:
            size_bytes = self._latest.size_bytes
        former = self._latest
        await self._swap(
            StoredMetadata(
                cluster_id=cluster_id,
                owner_epoch=self._owner_epoch,
                end_offset=snapshot.snapshot_id.end_offset,
                leader_epoch=snapshot.snapshot_id.leader_epoch,
                size_bytes=size_bytes,
                written_ms=wall_clock_ms(),
                is_final=is_final,
                is_copied=is_copied,
            )
        )
        if former is not None and former.name != name:
            self._deletable.add(former.name)
        await self._delete_former()

    async def forget_leftovers(self) -> None:
        """Delete the snapshots that a killed application left behind.

        `metadata/latest` is read after the listing: a successor claims it before it writes a snapshot, so
        nothing of a successor has been listed if it is still this application's.

        Raises:
            PrefixLostError.
            StoreError.
        """
        names = [found.name async for found in self._store.list(METADATA_PREFIX)]
        await self._read()
        if self._latest is not None:
            self._deletable.update({*names} - {LATEST_NAME, self._latest.name})
            await self._delete_former()

    async def _create(self, name: str, data: bytes) -> None:
        try:
            await self._store.create(name, data)
        except ObjectExistsError:
            # A lost reply, or a leftover of an application that has ended before it could name the snapshot.
            await self._store.delete(name)
            await self._store.create(name, data)

    async def _swap(self, wanted: StoredMetadata) -> None:
        """Replace `metadata/latest`; a write with a lost reply is recognised."""
        data = encode_stored_metadata(wanted)
        self._is_known = False
        for _ in range(_ATTEMPTS):
            try:
                if self._version is None:
                    self._version = await self._store.create(LATEST_NAME, data)
                else:
                    self._version = await self._store.replace(LATEST_NAME, data, self._version)
            except (ObjectExistsError, StaleObjectError):
                await self._read()
                if self._latest == wanted:
                    return
            else:
                self._latest, self._is_known = wanted, True
                return
        raise StoreUnavailableError(f"{LATEST_NAME} in {self._store.uri} changes with every look at it")

    async def _read(self) -> None:
        """Read `metadata/latest` as it is now.

        Raises:
            PrefixLostError.
        """
        try:
            found = await self._store.get(LATEST_NAME)
        except ObjectMissingError:
            self._latest = self._version = None
            self._is_known = True
            return
        latest = decode_stored_metadata(found.data)
        if latest.owner_epoch > self._owner_epoch:
            raise PrefixLostError(
                f"{self._store.uri} has metadata of owner epoch {latest.owner_epoch}, this application's is "
                f"{self._owner_epoch}: another application has taken the prefix"
            )
        self._latest, self._version, self._is_known = latest, found.version, True

    async def _delete_former(self) -> None:
        for name in sorted(self._deletable):
            try:
                await self._store.delete(name)
            except StoreError as error:
                logger.info("%s is deleted later: %s", name, error)
                return
            self._deletable.discard(name)


def _batches(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        size_bytes = len(data) - position
        if size_bytes >= HEADER_BYTES:
            size_bytes = max(read_header(data[position : position + HEADER_BYTES]).size_bytes, HEADER_BYTES)
        yield data[position : position + size_bytes]
        position += size_bytes

"""The tier as the controller has it: takes the prefix, begins from its metadata, and keeps that up to date.

Order for the caller: `open` on the loop, `take` before an election may form a cluster, `begin_log` if it
begins at the metadata found, `leads` once an election is won, `committed` for each state of the metadata,
`close`. Nothing here holds up a controller that leads: a store that is slow or away is retried in the
background.
"""

import asyncio
import logging
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, Self

from sparklog.driver.controller.machine.placement import UsableBroker
from sparklog.driver.controller.machine.restoration import restored_image
from sparklog.driver.controller.metadata_log import MetadataLog
from sparklog.driver.controller.quorum.machine.candidate import StoredLog
from sparklog.driver.controller.remote.loss_report import report_losses
from sparklog.driver.controller.remote.metadata_store import MetadataStore, PrefixLostError
from sparklog.driver.controller.remote.metadata_upload import MetadataUpload
from sparklog.driver.controller.remote.owner_lease import OwnerLease, host_identity
from sparklog.driver.controller.remote.topic_deletions import TopicDeletions
from sparklog.hosting import StartError
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.snapshot_batches import DamagedSnapshotError, MetadataSnapshot
from sparklog.node.remote_log.machine.ownership import Ownership
from sparklog.node.remote_log.machine.stored_metadata import StoredMetadata, StoredMetadataFormatError
from sparklog.node.remote_log.object_store import (
    ObjectMissingError,
    ObjectStore,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from sparklog.node.remote_log.opened_store import open_store
from sparklog.node.remote_log.uri import RemoteUriError

if TYPE_CHECKING:
    from sparklog.driver.controller.tables.topic_tables import TopicTables

RETRY_S: Final = 1.0
STOP_S: Final = 5.0
"""How long the end of a controller waits for the store to note it."""

logger = logging.getLogger(__name__)


class ControllerTier:
    """The tier of one controller; belongs to its loop."""

    def __init__(
        self,
        store: ObjectStore,
        application: str,
        address: str,
        metadata_lag_ms: int,
        config: BrokerConfig | None = None,
    ) -> None:
        """`application` is unique to a start of a cluster; `address` is where it can be reached.

        Without a `config` topics have no tables.
        """
        self.store = store
        self._config = config
        self._metadata_lag_ms = metadata_lag_ms
        host = host_identity()
        self._lease = OwnerLease(store, Ownership(application, address, host), host, self._lose)
        self._metadata: MetadataStore | None = None
        self._upload: MetadataUpload | None = None
        self._newest: MetadataSnapshot | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._report: asyncio.Task[None] | None = None
        self._deletions: TopicDeletions | None = None
        self._deleting: asyncio.Task[None] | None = None
        self.tables: TopicTables | None = None
        """None until the prefix is taken, and in a cluster without a catalogue."""
        self._known_until_ms: int | None = None
        """When the metadata was written at which this cluster began; None if directories had it."""
        self.stored: StoredMetadata | None = None
        """The newest metadata when the prefix was taken."""
        self.former_stopped = False
        """Whether the application before this one has ended in order."""
        self._former_epoch: int | None = None
        self.lost: str | None = None
        """Why nothing is copied any more; None while this application owns the prefix."""

    @classmethod
    def open(cls, config: BrokerConfig, application: str, address: str) -> Self | None:
        """Open the configured store, and begin to take its prefix; None without a tier.

        Raises:
            StartError: the URI or an option is not usable.
        """
        if config.remote_uri is None:
            return None
        try:
            store = open_store(config.remote_uri, config.remote_options)
        except RemoteUriError as error:
            raise StartError(str(error)) from error
        return cls(store, application, address, config.sparklog_remote_metadata_lag_ms, config)

    @property
    def owner_epoch(self) -> int | None:
        """None until the prefix is taken and its metadata is read."""
        return None if self._metadata is None else self._lease.owner_epoch

    @property
    def missing(self) -> str | None:
        """The reason why `take` waits, as a sentence; None once it is done."""
        return None if self._metadata is not None else self._lease.missing

    @property
    def failure(self) -> str | None:
        """The store's last error, or the loss of the prefix; None while all is well."""
        upload = None if self._upload is None else self._upload.failure
        return self.lost or upload or self._lease.failure

    async def take(self) -> StoredLog | None:
        """Take the prefix; return the metadata that lies there, None if there is none.

        Raises:
            StartError: another application lives there, or the store cannot be used.
        """
        taken = await self._lease.taken()
        self.former_stopped = taken.former is not None and taken.former.is_stopped
        self._former_epoch = None if taken.former is None else taken.former.epoch
        metadata = MetadataStore(self.store, taken.owner_epoch)
        while True:
            try:
                self.stored = await metadata.claim()
                break
            except (StoreRefusedError, StoredMetadataFormatError, PrefixLostError) as error:
                raise StartError(f"sparklog.remote.uri: {error}") from error
            except StoreError as error:
                logger.warning("The metadata in %s could not be read; retrying: %s", self.store.uri, error)
                await asyncio.sleep(RETRY_S)
        self._metadata = metadata
        if self.stored is None:
            return None
        snapshot_id = self.stored.snapshot_id
        position = LogPosition(snapshot_id.leader_epoch, snapshot_id.end_offset)
        return StoredLog(self.stored.cluster_id, position, self.store.uri)

    async def begin_log(self, log: MetadataLog, brokers: Sequence[UsableBroker]) -> None:
        """Let the log begin at the metadata that `take` has found, edited for brokers with empty disks.

        Raises:
            StartError: the metadata is damaged or gone.
            KafkaError: KAFKA_STORAGE_ERROR: the log cannot be written.
        """
        assert self.stored is not None, "it has been found"
        found = await self._snapshot()
        self._known_until_ms = await self._written_ms()
        image = await asyncio.to_thread(restored_image, found.image, brokers, self.stored.starts)
        snapshot = MetadataSnapshot(image, None, found.last_timestamp_ms)
        await asyncio.to_thread(log.snapshots.write, snapshot)
        await asyncio.to_thread(log.begin_at, snapshot)
        logger.info(
            "The cluster begins again from %s, where it %s at metadata offset %d: %d topics, %d partitions",
            self.store.uri,
            "was stopped" if self.is_complete else "ended without a stop",
            found.image.end_offset,
            len(image.topics.by_id),
            image.topics.partition_count,
        )

        self._report = asyncio.get_running_loop().create_task(self._report_losses(image))

    async def _report_losses(self, image: MetadataImage) -> None:
        lost_nothing = self.is_complete and self.stored is not None and self.stored.is_copied
        try:
            await report_losses(self.store, image, self._lease.owner_epoch or 0, lost_nothing=lost_nothing)
        except Exception:  # of a report only
            logger.exception("The losses of this start are unknown")

    async def _written_ms(self) -> int:
        """Return when the stored metadata was written, by the store's clock; 0 if it does not say."""
        assert self.stored is not None, "it has been found"
        try:
            async for found in self.store.list(self.stored.name.rpartition("/")[0]):
                if found.name == self.stored.name:
                    return found.modified_ms
        except StoreError as error:
            logger.info("%s: it is not known when it was written: %s", self.stored.name, error)
        return 0

    async def _snapshot(self) -> MetadataSnapshot:
        metadata, stored = self._metadata, self.stored
        assert metadata is not None and stored is not None, "it has been taken, and found"
        while True:
            try:
                return await metadata.snapshot(stored)
            except (DamagedSnapshotError, ObjectMissingError, StoreRefusedError) as error:
                raise StartError(
                    f"the cluster's metadata cannot be read from {self.store.uri}: {error}"
                ) from error
            except StoreError as error:
                logger.warning("%s could not be read; retrying: %s", stored.name, error)
                await asyncio.sleep(RETRY_S)

    @property
    def is_complete(self) -> bool:
        """Whether the stored metadata is the last state of a cluster that stopped in order.

        The same application must have written it and marked itself stopped, which the end of a start that
        failed does as well.
        """
        stored = self.stored
        if stored is None or stored.owner_epoch != self._former_epoch:
            return False
        return stored.is_final and self.former_stopped

    def leads(self, cluster_id: str) -> None:
        """Begin to copy the metadata of this cluster, as soon as the prefix is taken."""
        self._lease.cluster_known(cluster_id)
        self._beginning = asyncio.get_running_loop().create_task(self._begin(cluster_id))

    def committed(self, snapshot: MetadataSnapshot) -> None:
        self._newest = snapshot
        if self._deletions is not None:
            self._deletions.committed(snapshot.image)
        if self.tables is not None:
            self.tables.committed(snapshot.image)
        if self._upload is not None and self.lost is None:
            self._upload.committed(snapshot)

    async def save_last(self, *, is_copied: bool) -> None:
        """Copy the newest metadata as the last state of a cluster that stops in order.

        `is_copied`: all records are in the store.

        Raises:
            PrefixLostError.
            StoreError.
        """
        if self._upload is None:
            raise StoreUnavailableError(f"{self.store.uri} has not been reached since the start")
        await self._upload.save_last(is_copied=is_copied)

    async def close(self) -> None:
        """Mark the owner stopped, so that the next start need not wait; close the store."""
        for task in (self._beginning, self._report, self._deleting):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self.tables is not None:
            await self.tables.close()
        if self._upload is not None:
            await self._upload.close(STOP_S)
        await self._lease.stop(STOP_S)
        await self.store.close()

    async def _begin(self, cluster_id: str) -> None:
        try:
            if self._metadata is None:
                await self.take()
        except StartError as error:
            self._lose(str(error))
            return
        assert self._metadata is not None, "it is taken"
        try:
            await self._metadata.forget_leftovers()
        except PrefixLostError as error:
            self._lose(str(error))
            return
        except StoreError as error:
            logger.info("Leftovers in %s are deleted at the next start: %s", self.store.uri, error)
        self._upload = MetadataUpload(self._metadata, cluster_id, self._metadata_lag_ms, self._lose)
        if self._newest is not None:
            self._upload.committed(self._newest)
        self._deletions = TopicDeletions(self.store, self._lease.is_held, self._known_until_ms)
        if self._newest is not None:
            self._deletions.committed(self._newest.image)
        self._deleting = asyncio.get_running_loop().create_task(self._deletions.run())
        if self._config is not None and self._config.table_catalog:
            await self._begin_tables(self._config, self._deletions)

    async def _begin_tables(self, config: BrokerConfig, deletions: TopicDeletions) -> None:
        # Only a cluster with a catalogue loads Parquet here, and not on the loop.
        module = await asyncio.to_thread(import_module, "sparklog.driver.controller.tables.topic_tables")
        assert self.owner_epoch is not None, "the prefix is taken"
        self.tables = module.TopicTables(
            self.store,
            config,
            self.owner_epoch,
            self._lease.is_held,
            deletions.delete_again,
            self._known_until_ms,
        )
        if self._newest is not None:
            self.tables.committed(self._newest.image)

    def _lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = reason
            logger.error(
                "This application has lost sparklog.remote.uri and copies nothing from now on: %s",
                reason,
            )

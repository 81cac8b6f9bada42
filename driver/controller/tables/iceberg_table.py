"""One table of Iceberg, by pyiceberg: create, read, commit, expire. Every method blocks.

This module and `iceberg_schema` alone import pyiceberg, which takes a second and 100 MB: only a cluster with
tables loads it.

Files are added without a copy, from their figures alone. `Table.add_files` would refuse Parquet with field
ids (they are the table's here), and pyiceberg's own commits try again on top of other snapshots than the one
that the caller has seen, so the snapshot is made by a producer of its own and committed once.
"""

import logging
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update.snapshot import _MergeAppendFiles
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, TimestamptzType

from sparklog.driver.controller.tables.commits import commit_once, commit_snapshot
from sparklog.driver.controller.tables.expiry import SnapshotExpiry
from sparklog.driver.controller.tables.iceberg_schema import has_fields_of, schema_update
from sparklog.driver.controller.tables.known_table import KnownTable
from sparklog.driver.controller.tables.live_files import OFFSET_ID, PARTITION_ID, live_file
from sparklog.driver.controller.tables.machine.events import (
    Commit,
    ExpireSnapshots,
    FindHeld,
    HeldFile,
    PartitionedBy,
    TableIdentity,
    TableSnapshot,
)
from sparklog.driver.controller.tables.machine.next_commit import partition_value
from sparklog.driver.controller.tables.machine.snapshot_refs import TableRef
from sparklog.driver.controller.tables.machine.table_files import LiveFile, TableFile
from sparklog.driver.controller.tables.named_by_table import held_files, metadata_in_use, table_refs
from sparklog.driver.controller.tables.partition_spec import TIMESTAMP_ID, has_partitions, partition_spec
from sparklog.driver.controller.tables.table_errors import StaleTableError, TableRefusedError
from sparklog.node.remote_log.segments.segment_format import US_PER_MS

TOPIC_ID: Final = "sparklog.topic-id"
_TOPIC: Final = "sparklog.topic"
_OWNER_EPOCH: Final = "sparklog.owner-epoch"
_COMMITTER: Final = "sparklog.committer"
_END_OFFSET: Final = "sparklog.end-offset."
_RECORD_IDS: Final = (PARTITION_ID, OFFSET_ID, TIMESTAMP_ID)
_TABLE_PROPERTIES: Final = {
    "comment": "The files are those of a topic; sparklog alone writes here, and stops if others do",
    # No engine may delete the files: they are the topic's.
    "gc.enabled": "false",
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_NONE_BEFORE: Final = KnownTable()

logger = logging.getLogger(__name__)


def open_catalog(properties: Mapping[str, str]) -> Catalog:
    """Open a catalogue by pyiceberg's properties; `name` among them is its own, `sparklog` if missing."""
    options = dict(properties)
    return load_catalog(options.pop("name", "sparklog"), **options)


def _unheeded() -> None:
    """Let a call go on for as long as it likes."""


class IcebergTable:
    def __init__(
        self,
        catalog: Catalog,
        identity: TableIdentity,
        uri: str,
        location: str,
        schema: pa.Schema,
        partitioned_by: PartitionedBy,
    ) -> None:
        """`uri` is that of the store, `location` the path of the table's own objects below it."""
        self._catalog: Final = catalog
        self._identity: Final = identity
        self._uri: Final = uri
        self._location: Final = location
        self._schema: Final = pyarrow_to_schema(schema)
        self._partitioned_by: Final = partitioned_by
        self._table: Table | None = None
        self._expiry: Final = SnapshotExpiry()

    # --- reading --------------------------------------------------------------------------------

    def load(self, known: KnownTable = _NONE_BEFORE, proceed: Callable[[], None] = _unheeded) -> bool:
        """Load the table; create it if there is none. Return whether it was created.

        `proceed`: see `CatalogCall.proceed`, here and below.

        Raises:
            TableGoneError: the topic is deleted, and has no table here.
            TableRefusedError: another table has the name, or other partitions than configured.
        """
        name = self._identity.name
        created = False
        try:
            table = self._catalog.load_table(name)
        except NoSuchTableError:
            known.check_may_create(name)
            table = self._create(proceed)
            created = True
        owner = table.properties.get(TOPIC_ID)
        if owner != str(self._identity.topic_id):
            known.check_needs_table(name)
            raise TableRefusedError(
                f"{name} exists and "
                + (f"belongs to topic id {owner}" if owner else "was not made by sparklog")
                + f": drop or rename it, or give topic {self._identity.topic} another sparklog.table.name,"
                " for which sparklog.table.enable=false has to come first"
            )
        known.check_is(name, table.metadata.table_uuid)
        if not has_fields_of(table.schema(), self._schema):
            raise TableRefusedError(
                f"the record's columns in {name} have not the field ids or types of the files, so readers"
                " would see nulls or other columns: drop the table, or use a catalogue that keeps ids"
            )
        if not has_partitions(table.spec(), self._partitioned_by):
            raise TableRefusedError(
                f"the partitions of {name} are not those of sparklog.table.partition.by="
                f"{self._partitioned_by.value}: put the former value back, for which"
                " sparklog.table.enable=false has to come first, or drop the table"
            )
        self._table = table
        return created

    @property
    def uuid(self) -> UUID:
        return self._loaded.metadata.table_uuid

    def _create(self, proceed: Callable[[], None]) -> Table:
        namespace = self._identity.name.rpartition(".")[0]
        proceed()
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(namespace)
        properties = {
            **_TABLE_PROPERTIES,
            "format-version": "2",
            _TOPIC: self._identity.topic,
            TOPIC_ID: str(self._identity.topic_id),
        }
        location = f"{self._uri}/{self._location.rstrip('/')}"
        spec = partition_spec(self._partitioned_by)
        proceed()
        try:
            table = self._catalog.create_table(
                self._identity.name, self._schema, location, spec, properties=properties
            )
        except TableAlreadyExistsError:
            return self._catalog.load_table(self._identity.name)
        logger.info("Table %s of topic %s is created", self._identity.name, self._identity.topic)
        return table

    def snapshots(self) -> tuple[TableSnapshot, ...]:
        """Return all snapshots, the oldest first."""
        ordered = sorted(self._loaded.snapshots(), key=lambda each: each.sequence_number or 0)
        return tuple(map(_described, ordered))

    def newest(self) -> TableSnapshot | None:
        snapshot = self._loaded.current_snapshot()
        return None if snapshot is None else _described(snapshot)

    def files(self, proceed: Callable[[], None] = _unheeded) -> tuple[LiveFile, ...]:
        """Return the files of the newest snapshot."""
        table = self._loaded
        snapshot = table.current_snapshot()
        found: list[LiveFile] = []
        for manifest in () if snapshot is None else snapshot.manifests(table.io):
            proceed()
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            found += (live_file(entry.data_file, self._uri) for entry in entries)
        return tuple(found)

    def refs(self) -> tuple[TableRef, ...]:
        return table_refs(self._loaded.metadata)

    def held(self, effect: FindHeld, proceed: Callable[[], None] = _unheeded) -> tuple[HeldFile, ...]:
        """See `FindHeld`."""
        return held_files(self._loaded, effect, proceed)

    def metadata_in_use(self, proceed: Callable[[], None] = _unheeded) -> frozenset[str]:
        """Return the last parts of the names of all metadata that the table has by now."""
        self._loaded.refresh()
        return metadata_in_use(self._loaded, proceed)

    @property
    def _loaded(self) -> Table:
        assert self._table is not None, "`load` comes first"
        return self._table

    # --- writing --------------------------------------------------------------------------------

    def commit(
        self, effect: Commit, value_schema: str | None, proceed: Callable[[], None] = _unheeded
    ) -> TableSnapshot:
        """Make a snapshot on top of the one that `load` has found.

        Before it the table gets the columns of `value_schema`, which is as new as the files; `None` leaves it
        as it is.

        Raises:
            StaleTableError: the table has to be read again.
            Exception: the catalogue's or the store's; it is not known whether the snapshot was made.
        """
        table = self._loaded
        current = table.current_snapshot()
        if (None if current is None else current.snapshot_id) != effect.parent_id:
            raise StaleTableError
        if value_schema is not None:
            self._commit_schema(table, value_schema)
        producer = _TopicSnapshot(
            _operation(effect), Transaction(table), table.io, snapshot_properties=self._summary(effect)
        )
        for added in effect.added:
            producer.append_data_file(self._data_file(added))
        if effect.removed and current is not None:
            paths = {f"{self._uri}/{file.name}" for file in effect.removed}
            producer.take_out(paths, current, proceed)
        proceed()
        commit_snapshot(table, producer)
        newest = self.newest()
        assert newest is not None
        return newest

    def _commit_schema(self, table: Table, value_schema: str) -> None:
        updates, requirements = schema_update(table.metadata, value_schema)
        try:
            if updates:
                commit_once(table, updates, requirements)
        except CommitFailedException as error:
            raise StaleTableError from error

    def expire(self, effect: ExpireSnapshots, proceed: Callable[[], None] = _unheeded) -> tuple[int, ...]:
        """See `SnapshotExpiry.expire`."""
        return self._expiry.expire(self._loaded, effect, proceed)

    def _summary(self, effect: Commit) -> dict[str, str]:
        return {
            TOPIC_ID: str(self._identity.topic_id),
            _OWNER_EPOCH: str(effect.owner_epoch),
            _COMMITTER: effect.committer,
            **{f"{_END_OFFSET}{partition}": str(offset) for partition, offset in effect.end_offsets},
        }

    def _data_file(self, file: TableFile) -> DataFile:
        first_us, last_us = (each * US_PER_MS for each in (file.first_timestamp_ms, file.max_timestamp_ms))
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._uri}/{file.name}",
            file_format=FileFormat.PARQUET,
            partition=self._partition_record(file.partition, file.first_timestamp_ms),
            record_count=file.record_count,
            file_size_in_bytes=file.size_bytes,
            value_counts=dict.fromkeys(_RECORD_IDS, file.record_count)
            | {each.field_id: each.value_count for each in file.typed},
            null_value_counts=dict.fromkeys(_RECORD_IDS, 0)
            | {each.field_id: each.null_count for each in file.typed},
            lower_bounds=_bounds(file.partition, file.first_offset, first_us)
            | {each.field_id: each.lower_bound for each in file.typed if each.lower_bound is not None},
            upper_bounds=_bounds(file.partition, file.last_offset, last_us)
            | {each.field_id: each.upper_bound for each in file.typed if each.upper_bound is not None},
            split_offsets=list(file.row_group_starts),
            spec_id=self._loaded.metadata.default_spec_id,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
        )

    def _partition_record(self, partition: int, timestamp_ms: int) -> Record:
        match self._partitioned_by:
            case PartitionedBy.NONE:
                return Record()
            case PartitionedBy.PARTITION:
                return Record(partition)
            case PartitionedBy.DAY | PartitionedBy.HOUR:
                return Record(partition_value(self._partitioned_by, timestamp_ms))
        raise AssertionError(self._partitioned_by)


class _TopicSnapshot(_MergeAppendFiles):
    """A snapshot that adds and removes files by name, and merges small manifests as an append does."""

    _touched: dict[str, list[ManifestEntry]]
    """The entries of manifests that have a removed file, by the manifests' paths."""

    def take_out(self, paths: Set[str], parent: Snapshot, proceed: Callable[[], None]) -> None:
        """Let the snapshot lack these files of its parent.

        Raises:
            ValueError: the parent lacks one.
        """
        self._touched = {}
        for manifest in parent.manifests(self._io):
            proceed()
            entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
            removed = [entry.data_file for entry in entries if entry.data_file.file_path in paths]
            if removed:
                self._touched[manifest.manifest_path] = entries
                self._deleted_data_files.update(removed)
        if missing := paths - {file.file_path for file in self._deleted_data_files}:
            raise ValueError(f"snapshot {parent.snapshot_id} lacks {min(missing)}, which the commit removes")

    def _build_delete_files_partition_predicate(self) -> None:
        """Find files by their paths alone."""

    def _existing_manifests(self) -> list[ManifestFile]:
        touched = getattr(self, "_touched", {})
        found = [each for each in super()._existing_manifests() if each.manifest_path not in touched]
        for path in touched:
            kept = [each for each in touched[path] if each.data_file not in self._deleted_data_files]
            if kept:
                found.append(self._manifest_of(kept))
        return found

    def _manifest_of(self, entries: list[ManifestEntry]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(entries[0].data_file.spec_id)) as writer:
            for entry in entries:
                writer.add_entry(self._with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id))
        return writer.to_manifest_file()

    def _deleted_entries(self) -> list[ManifestEntry]:
        return [
            self._with_status(entry, ManifestEntryStatus.DELETED, self.snapshot_id)
            for entries in getattr(self, "_touched", {}).values()
            for entry in entries
            if entry.data_file in self._deleted_data_files
        ]

    def _with_status(
        self, entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None
    ) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=status,
            snapshot_id=snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _summary(self, snapshot_properties: Mapping[str, str] = {}) -> Summary:
        if self._operation is not Operation.REPLACE:
            return super()._summary(dict(snapshot_properties))
        # pyiceberg adds up the totals of other operations only; they come from the same figures.
        self._operation = Operation.OVERWRITE
        summary = super()._summary(dict(snapshot_properties))
        self._operation = Operation.REPLACE
        return Summary(Operation.REPLACE, **summary.additional_properties)


def _operation(effect: Commit) -> Operation:
    if not effect.removed:
        return Operation.APPEND
    if not effect.added:
        return Operation.DELETE
    return Operation.REPLACE if effect.same_rows else Operation.OVERWRITE


def _bounds(partition: int, offset: int, timestamp_us: int) -> dict[int, bytes]:
    return {
        PARTITION_ID: to_bytes(IntegerType(), partition),
        OFFSET_ID: to_bytes(LongType(), offset),
        TIMESTAMP_ID: to_bytes(TimestamptzType(), timestamp_us),
    }


def _described(snapshot: Snapshot) -> TableSnapshot:
    summary = snapshot.summary
    properties = {} if summary is None else summary.additional_properties
    common = TableSnapshot(
        snapshot.snapshot_id,
        snapshot.sequence_number or 0,
        snapshot.timestamp_ms,
        description="" if summary is None else _origin(summary),
        parent_id=snapshot.parent_snapshot_id,
    )
    topic_id = properties.get(TOPIC_ID)
    if topic_id is None:
        return common
    ends = {
        int(key.removeprefix(_END_OFFSET)): int(value)
        for key, value in properties.items()
        if key.startswith(_END_OFFSET)
    }
    return TableSnapshot(
        common.snapshot_id,
        common.sequence_number,
        common.timestamp_ms,
        UUID(topic_id),
        int(properties.get(_OWNER_EPOCH, -1)),
        properties.get(_COMMITTER, ""),
        ends,
        parent_id=common.parent_id,
    )


def _origin(summary: Summary) -> str:
    engine = summary.additional_properties.get("engine-name", "")
    return " ".join(filter(None, [summary.operation.value, engine and f"by {engine}"]))

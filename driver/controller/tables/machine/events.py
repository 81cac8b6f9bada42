"""The events and effects of the table of one topic.

Events are in the past tense, effects in the imperative. At most one effect is under way; each is answered by
exactly one event, which may be `EffectFailed`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from sparklog.driver.controller.tables.machine.snapshot_refs import TableRef
from sparklog.driver.controller.tables.machine.table_files import LiveFile, TableFile, Window
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.object_store import ListedObject
from sparklog.protocol.types import Offset, TimestampMs


class Retention(Enum):
    """sparklog.table.retention."""

    TOPIC = "topic"
    FOREVER = "forever"


class PartitionedBy(Enum):
    """sparklog.table.partition.by."""

    NONE = "none"
    PARTITION = "partition"
    DAY = "day"
    HOUR = "hour"


class TableIdentity(NamedTuple):
    topic: str
    topic_id: UUID
    name: str
    """The table's, with its namespaces, divided by dots."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    commit_interval_ms: int
    snapshot_retention_ms: int
    retention: Retention = Retention.TOPIC
    partitioned_by: PartitionedBy = PartitionedBy.NONE
    value_schema: str = ""
    """sparklog.table.value.schema."""


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A snapshot of the table; the fields after `timestamp_ms` are of its summary."""

    snapshot_id: int
    sequence_number: int
    timestamp_ms: TimestampMs
    """By the clock of its writer."""
    topic_id: UUID | None = None
    """None for a snapshot of another writer."""
    owner_epoch: int = -1
    committer: str = ""
    end_offsets: Mapping[int, Offset] = field(default_factory=dict)
    description: str = ""
    """Of another writer's snapshot: its operation and engine, for messages."""
    parent_id: int | None = None
    """None for no parent, and for one that has expired."""


class HeldFile(NamedTuple):
    """A file of a snapshot that is looked for by its name."""

    name: str
    snapshot_id: int
    size_bytes: int


# --- effects ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadTable:
    """Effect: load the table, and create it if there is none.

    The answer is `TableRead`, `TableRefused` or `TableGone`.

    The files may be left out if `known_snapshot_id` is still the newest snapshot.
    """

    known_snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class ReadManifests:
    """Effect: read the manifests of these partitions; answer `ManifestsRead`."""

    partitions: int


@dataclass(frozen=True, slots=True)
class ReadFooters:
    """Effect: read the footers of these windows' segments; answer `FootersRead`."""

    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class WritePieces:
    """Effect: write the records of a window to objects of the table; answer `PiecesWritten`.

    One object for each value of the table's partition. An object that exists already is the one wanted.
    """

    window: Window


@dataclass(frozen=True, slots=True)
class Commit:
    """Effect: make a snapshot whose parent is `parent_id`, the newest one; answer `Committed`.

    A table whose newest snapshot is another one refuses it: `CommitStale`.
    """

    parent_id: int | None
    added: tuple[TableFile, ...]
    removed: tuple[LiveFile, ...]
    same_rows: bool
    """Whether the added files have exactly the rows of the removed ones."""
    end_offsets: tuple[tuple[int, Offset], ...]
    owner_epoch: int
    committer: str


@dataclass(frozen=True, slots=True)
class ExpireSnapshots:
    """Effect: take these snapshots and branches or tags out of the table; answer `SnapshotsExpired`.

    A table with other refs than `known_refs`, `main` apart, refuses it: `CommitStale`.
    """

    snapshot_ids: tuple[int, ...]
    ref_names: tuple[str, ...] = ()
    known_refs: tuple[TableRef, ...] = ()


@dataclass(frozen=True, slots=True)
class FindHeld:
    """Effect: find those of these objects that the files of these snapshots are; answer `HeldFound`."""

    names: tuple[str, ...]
    snapshot_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Effect: delete these objects, if this application still owns the store; answer `ObjectsDeleted`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListObjects:
    """Effect: list the topic's segments and the table's own objects; answer `ObjectsListed`."""


TableEffect: TypeAlias = (
    ReadTable
    | ReadManifests
    | ReadFooters
    | WritePieces
    | Commit
    | ExpireSnapshots
    | FindHeld
    | DeleteObjects
    | ListObjects
)

# --- events -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed; the first event of a machine."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """`snapshots` are all of the table, the oldest first; the newest one is `newest`.

    `files` are those of the newest; None if it is the one that the effect says is known.
    """

    snapshots: tuple[TableSnapshot, ...]
    newest: TableSnapshot | None
    files: tuple[LiveFile, ...] | None
    began_again: bool = False
    """Whether this process has created the table, although the topic had one before."""
    refs: tuple[TableRef, ...] = ()
    """All branches and tags."""


@dataclass(frozen=True, slots=True)
class TableRefused:
    """The table is not one that this topic may write; `problem` says why, and what helps."""

    problem: str


@dataclass(frozen=True, slots=True)
class TableGone:
    """The topic is deleted, and the catalogue has no table of it."""


@dataclass(frozen=True, slots=True)
class ManifestsRead:
    """A partition without a manifest is left out."""

    manifests: Mapping[int, Manifest]


@dataclass(frozen=True, slots=True)
class FootersRead:
    """The files by segments' names; a segment whose object is gone is left out."""

    files: Mapping[str, TableFile]


@dataclass(frozen=True, slots=True)
class PiecesWritten:
    window: Window
    pieces: tuple[TableFile, ...]
    """Without one that has no record."""


@dataclass(frozen=True, slots=True)
class Committed:
    effect: Commit
    snapshot: TableSnapshot


@dataclass(frozen=True, slots=True)
class CommitStale:
    """The table is not as it was read: another newest snapshot, perhaps of this commit, or a moved tag."""


@dataclass(frozen=True, slots=True)
class SnapshotsExpired:
    """These snapshots are out of the table: without those that a tag or another branch has."""

    snapshot_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ObjectsDeleted:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeldFound:
    """Each file with one of the snapshots that have it."""

    files: tuple[HeldFile, ...]


@dataclass(frozen=True, slots=True)
class ObjectsListed:
    objects: tuple[ListedObject, ...]
    metadata_in_use: frozenset[str] = frozenset()
    """The last parts of the names of the table's metadata, read after the list."""


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """The store or the catalogue has failed; a commit may have happened, or may happen yet."""

    error: str


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    settings: TableSettings
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The topic is deleted; its objects stay as they are until `TopicTable.is_finished`."""


TableEvent: TypeAlias = (
    Ticked
    | TableRead
    | TableRefused
    | TableGone
    | ManifestsRead
    | FootersRead
    | PiecesWritten
    | Committed
    | CommitStale
    | SnapshotsExpired
    | HeldFound
    | ObjectsDeleted
    | ObjectsListed
    | EffectFailed
)
TableNews: TypeAlias = ConfigChanged | TopicDeleted

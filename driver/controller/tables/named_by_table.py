"""Names in the metadata of a table: branches and tags, files of snapshots, its own objects."""

from collections.abc import Callable, Iterator
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from sparklog.driver.controller.tables.machine.events import FindHeld, HeldFile
from sparklog.driver.controller.tables.machine.snapshot_refs import TableRef

_MIN_SNAPSHOTS_TO_KEEP: Final = "history.expire.min-snapshots-to-keep"
_MAX_SNAPSHOT_AGE_MS: Final = "history.expire.max-snapshot-age-ms"
_MAX_REF_AGE_MS: Final = "history.expire.max-ref-age-ms"


def table_refs(metadata: TableMetadata) -> tuple[TableRef, ...]:
    """Return the branches and tags, with the table's properties where a ref has no limit of its own."""

    def default(name: str) -> int | None:
        text = metadata.properties.get(name, "")
        return int(text) if text.isdecimal() else None

    return tuple(
        TableRef(
            name,
            ref.snapshot_id,
            ref.snapshot_ref_type == "branch",
            ref.min_snapshots_to_keep or default(_MIN_SNAPSHOTS_TO_KEEP),
            ref.max_snapshot_age_ms or default(_MAX_SNAPSHOT_AGE_MS),
            ref.max_ref_age_ms or default(_MAX_REF_AGE_MS),
        )
        for name, ref in metadata.refs.items()
    )


def held_files(table: Table, effect: FindHeld, proceed: Callable[[], None]) -> tuple[HeldFile, ...]:
    """Return those of the named objects that snapshots have, each for one of them.

    Names are compared with the ends of paths: other writers may spell the store differently (s3a for s3).
    """
    names = frozenset(effect.names)
    found: dict[str, HeldFile] = {}
    read: set[str] = set()
    for snapshot_id in effect.snapshot_ids:
        proceed()
        snapshot = table.snapshot_by_id(snapshot_id)
        for manifest in () if snapshot is None else snapshot.manifests(table.io):
            if manifest.manifest_path in read:
                continue
            read.add(manifest.manifest_path)
            proceed()
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                name = next((end for end in _ends(entry.data_file.file_path) if end in names), None)
                if name is not None:
                    size = entry.data_file.file_size_in_bytes
                    found.setdefault(name, HeldFile(name, snapshot_id, size))
    return tuple(found.values())


def _ends(path: str) -> Iterator[str]:
    """Yield a path without its first parts, the longest first."""
    while path:
        path = path.partition("/")[2]
        yield path


def metadata_in_use(table: Table, proceed: Callable[[], None]) -> frozenset[str]:
    """Return the last parts of the names of the metadata of all versions and snapshots that the table has.

    Not whole names: a catalogue may spell the store differently, and they are unique.
    """
    return frozenset(path.rpartition("/")[2] for path in _metadata(table, proceed))


def _metadata(table: Table, proceed: Callable[[], None]) -> Iterator[str]:
    metadata = table.metadata
    yield table.metadata_location
    for version in metadata.metadata_log:
        yield version.metadata_file
    for statistics in (*metadata.statistics, *metadata.partition_statistics):
        yield statistics.statistics_path
    for snapshot in metadata.snapshots:
        proceed()
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path

"""One update of a table in its catalogue, and what is known after it was refused.

A refusal is no proof that nothing was committed: a client or a proxy that repeats a request has the second
one refused because the first one succeeded.
"""

from collections.abc import Iterable
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import _SnapshotProducer

from sparklog.driver.controller.tables.table_errors import StaleTableError


def commit_once(
    table: Table, updates: Iterable[TableUpdate], requirements: Iterable[TableRequirement]
) -> None:
    """Update a table, and never try it again on top of another snapshot.

    Raises:
        CommitFailedException: the catalogue has refused an attempt.
        Exception: the catalogue's; it is not known whether the table was updated.
    """
    uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
    table._do_commit(tuple(updates), (*requirements, uuid))


def commit_snapshot(table: Table, producer: "_SnapshotProducer[Any]") -> None:
    """Commit the snapshot of a producer; delete what it has written only if no table can have it.

    Raises:
        StaleTableError: the table has to be read again.
        Exception: the catalogue's or the store's; it is not known whether the snapshot was made.
    """
    updates, requirements = producer._commit()
    try:
        commit_once(table, updates, requirements)
    except CommitFailedException as error:
        found = table.catalog.load_table(table.name())
        if found.metadata.snapshot_by_id(producer.snapshot_id) is None:
            producer._clean_all_uncommitted()
        raise StaleTableError from error

"""A committer's process for tests: one table over a directory, as the controller keeps it, and no cluster."""

import asyncio
import secrets
from pathlib import Path
from typing import Final
from uuid import UUID

from sparklog.driver.controller.tables.catalog_threads import CatalogThreads
from sparklog.driver.controller.tables.iceberg_table import IcebergTable, open_catalog
from sparklog.driver.controller.tables.machine.events import TableIdentity, TableSettings
from sparklog.driver.controller.tables.machine.table_files import table_prefix
from sparklog.driver.controller.tables.machine.topic_table import TopicTable
from sparklog.driver.controller.tables.table_keeper import TableKeeper
from sparklog.node.remote_log.directory_store import DirectoryStore
from sparklog.node.remote_log.segments.segment_format import SCHEMA

IDENTITY: Final = TableIdentity("orders", UUID(int=5), "topics.orders")
PARTITIONS: Final = 2


def catalog_properties(directory: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{directory}/catalogue.db", "warehouse": directory.as_uri()}


def keep_table(directory: Path, owner_epoch: int) -> None:
    """Keep the table of the manifests in `directory`/bucket, with a commit as soon as there is news."""
    asyncio.run(_keep(directory, owner_epoch))


async def _keep(directory: Path, owner_epoch: int) -> None:
    bucket = directory / "bucket"
    settings = TableSettings(commit_interval_ms=1, snapshot_retention_ms=1_000)

    def open_table() -> IcebergTable:
        return IcebergTable(
            open_catalog(catalog_properties(directory)),
            IDENTITY,
            bucket.as_uri(),
            table_prefix(IDENTITY.topic, IDENTITY.topic_id),
            SCHEMA,
            settings.partitioned_by,
        )

    async def is_owner() -> bool:
        return True

    machine = TopicTable(IDENTITY, owner_epoch, secrets.token_hex(8), settings, PARTITIONS)
    await TableKeeper(machine, DirectoryStore(bucket), open_table, CatalogThreads(), is_owner).run()

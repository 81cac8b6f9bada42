"""Tables beside brokers that copy: what leaders write is what tables have."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from sparklog.driver.controller.tables.machine.events import Retention
from sparklog.driver.controller.tables.store_properties import store_properties
from sparklog.driver.controller.tables.table_marker import TableMarker, encode_marker
from sparklog.driver.controller.tables.topic_tables import TopicTables
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.schemas import ConfigRecord, ResourceType
from sparklog.node.remote_log.machine.names import table_marker_name
from sparklog.node.remote_log.machine.ownership import OWNER_NAME
from sparklog.node.remote_log.machine.periods import PERIODS_MS
from sparklog.node.remote_log.opened_store import open_store
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.builders import image
from tests.s3_server import BUCKET, s3_server
from tests.unit.executor.brokers import Brokers, until
from tests.unit.executor.requests import produce, rows
from tests.unit.executor.tiering.tiered_brokers import bucket_of, tiered_brokers

DAY_MS: Final = PERIODS_MS["day"]
FIRST_DAY: Final = wall_clock_ms() // DAY_MS - 10
SCHEMA: Final = "sparklog.table.value.schema"
TOPIC: Final = {
    "sparklog.table.enable": "true",
    "sparklog.table.partition.by": "day",
    "retention.ms": "-1",
    SCHEMA: "id INT",
}


async def owns_store() -> bool:
    return True


def tables_in(directory: Path, catalog: dict[str, str]) -> TopicTables:
    return tables_of({"sparklog.remote.uri": bucket_of(directory).as_uri()}, catalog)


def tables_of(store: dict[str, str], catalog: dict[str, str]) -> TopicTables:
    options = {f"sparklog.table.catalog.{name}": value for name, value in catalog.items()}
    config = BrokerConfig.from_mapping({"sparklog.table.commit.interval.ms": "100", **store, **options})
    assert config.remote_uri is not None
    opened = open_store(config.remote_uri, config.remote_options)
    return TopicTables(opened, config, 1, owns_store, lambda *_: None)


def new_catalog(directory: Path, warehouse: str) -> dict[str, str]:
    """Return the properties of an empty catalogue, made before two open it at once to make it."""
    properties = {"uri": f"sqlite:///{directory}/catalogue.db", "warehouse": warehouse}
    load_catalog("sparklog", **properties)
    return properties


async def append(brokers: Brokers, topic_id: UUID, *records: tuple[int, bytes]) -> None:
    """Produce a batch of (day, value)."""
    channel = await brokers.connect(0)
    batch = build_batch([SimpleRecord(None, value, (), (FIRST_DAY + day) * DAY_MS) for day, value in records])
    (row,) = rows(await channel.request(produce(topic_id, batch)))
    assert row.error_code is ErrorCode.none


async def table_with(catalog: dict[str, str], row_count: int) -> Table:
    """Return the table once it has so many rows."""
    found: list[Table] = []

    def has_rows() -> bool:
        try:
            table = load_catalog("sparklog", **catalog).load_table("topics.t")
        except NoSuchTableError:
            return False
        found.append(table)
        return table.scan().count() == row_count

    await until(has_rows, f"the table has {row_count} rows")
    return found[-1]


def test_table_by_day_has_typed_columns_and_files_of_one_day(tmp_path: Path) -> None:
    """Copies are cut at midnight, a batch of two days is divided, and the schema changes meanwhile."""
    catalog = new_catalog(tmp_path, tmp_path.as_uri())

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            tables = tables_in(tmp_path, catalog)
            topic_id = await brokers.create_topic("t", [(0,)], TOPIC)
            tables.committed(brokers.image)
            for day in (0, 1, 1):
                await append(brokers, topic_id, (day, b'{"id":%d}' % day), (day, b"x"))
            await append(brokers, topic_id, (1, b'{"id":7}'), (2, b'{"id":8}'))
            table = await table_with(catalog, 8)
            assert str(table.schema().find_type("id")) == "int"
            assert table.scan().to_arrow().sort_by("offset").column("id").to_pylist() == [
                *[0, None, 1, None, 1, None],
                *[7, 8],
            ]
            wider = "id BIGINT, name STRING"
            kind = ResourceType.TOPIC
            await brokers.commit(
                ConfigRecord(resource_type=kind, resource_name="t", name=SCHEMA, value=wider)
            )
            tables.committed(brokers.image)
            await append(brokers, topic_id, (0, b'{"id":3000000000,"name":"n"}'))
            table = await table_with(catalog, 9)
            found = table.scan("id > 7").to_arrow().sort_by("offset")
            assert found.select(["id", "name"]).to_pydict() == {
                "id": [8, 3_000_000_000],
                "name": [None, "n"],
            }
            midnight = datetime.fromtimestamp((FIRST_DAY + 1) * DAY_MS / 1000, UTC).isoformat()
            files = [task.file for task in table.scan(f"timestamp < '{midnight}'").plan_files()]
            assert {file.partition[0] for file in files} == {FIRST_DAY}
            assert sum(file.record_count for file in files) == 3
            await tables.close()

    asyncio.run(play())


def test_table_in_s3_is_written_with_the_credentials_of_the_tier(tmp_path: Path) -> None:
    """Files, metadata and catalogue entries name the bucket; a reader with its own access finds all rows."""
    uri = f"s3://{BUCKET}/{tmp_path.name}"
    catalog = new_catalog(tmp_path, uri)

    async def play(options: dict[str, str]) -> None:
        config = {
            "sparklog.remote.uri": uri,
            **{f"sparklog.remote.option.{name}": value for name, value in options.items()},
        }
        store = open_store(uri, options)
        await store.create(OWNER_NAME, b"")
        async with tiered_brokers(tmp_path, **config) as brokers:
            tables = tables_of(config, catalog)
            topic_id = await brokers.create_topic("t", [(0,)], TOPIC)
            tables.committed(brokers.image)
            await append(brokers, topic_id, (0, b'{"id":1}'), (1, b'{"id":2}'))
            await append(brokers, topic_id, (1, b'{"id":3}'))
            table = await table_with(catalog | store_properties(uri, options), 3)
            assert table.scan().to_arrow().sort_by("offset").column("id").to_pylist() == [1, 2, 3]
            assert table.metadata_location.startswith(f"{uri}/tables/t-{topic_id}/metadata/")
            files = [task.file.file_path for task in table.scan().plan_files()]
            in_store = {f"{uri}/{found.name}" async for found in store.list("")}
            assert set(files) <= in_store
            assert any(file.startswith(f"{uri}/segments/t-{topic_id}/") for file in files)
            await tables.close()
        await store.close()

    with s3_server() as server:
        asyncio.run(play(server.options))


def test_finished_table_of_a_deleted_topic_is_not_begun_again(tmp_path: Path) -> None:
    """It keeps its rows, and may be somebody else's by now; each driver would commit to it once more."""
    catalog = new_catalog(tmp_path, tmp_path.as_uri())
    finished, unfinished = (
        TableMarker("t", UUID(int=number), f"topics.t{number}", Retention.FOREVER, "none", 1)
        for number in (1, 2)
    )
    finished = replace(finished, finished=True)

    async def play() -> None:
        bucket = bucket_of(tmp_path)
        for marker in (finished, unfinished):
            path = bucket / table_marker_name(marker.topic_id)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_marker(marker))
        tables = tables_in(tmp_path, catalog)
        tables.committed(image())
        await until(lambda: tables.statuses != (), "the markers are read")
        assert [status.name for status in tables.statuses] == ["topics.t2"]
        await tables.close()

    asyncio.run(play())

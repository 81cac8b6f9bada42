"""Topics as Iceberg tables, in a running cluster: the rows of a read_committed consumer."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer, TopicPartition
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, consume, create_topic
from tests.compat.tiering import tiered_config

TABLE: Final = {"sparklog.table.enable": "true"}


def catalog_properties(directory: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{directory}/catalogue.db", "warehouse": directory.as_uri()}


def table_config(directory: Path) -> dict[str, str]:
    """Return the configuration of a cluster with tables; store and catalogue lie in `directory`."""
    options = {
        f"sparklog.table.catalog.{name}": value for name, value in catalog_properties(directory).items()
    }
    return tiered_config(directory / "bucket", **options, **{"sparklog.table.commit.interval.ms": "300"})


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("lake")
    (directory / "bucket").mkdir()
    return directory


@pytest.fixture(autouse=True)
def held() -> None:
    """Count neither threads nor descriptors: the pools of catalogue, DuckDB and pyiceberg keep theirs."""


@pytest.fixture(scope="module")
def catalog(directory: Path) -> Catalog:
    return load_catalog("sparklog", **catalog_properties(directory))


@pytest.fixture(scope="module")
def cluster(directory: Path) -> Iterator[LocalCluster]:
    with LocalCluster(config=table_config(directory)) as cluster:
        yield cluster


def produce_transactions(
    cluster: LocalCluster, topic: str, partitions: int
) -> list[tuple[int, bytes | None]]:
    """Write three transactions, the second aborted; return (partition, value) of the committed records."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    written: list[tuple[int, bytes | None]] = []
    for number in range(3):
        producer.begin_transaction()
        records = [
            (record % partitions, None if record == 7 else b"%d-%d" % (number, record))
            for record in range(300)
        ]
        for partition, value in records:
            producer.produce(
                topic, value, key=b"key", partition=partition, headers=[("one", b"1"), ("none", None)]
            )
        producer.flush(TIMEOUT_S)
        if number == 1:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
            written += records
    return written


def wait_for_rows(catalog: Catalog, name: str, count: int) -> Table:
    """Return the table once it has so many rows."""
    found: list[int] = []

    def table() -> Table | None:
        try:
            table = catalog.load_table(name)
        except NoSuchTableError:
            return None
        found.append(table.scan().count())
        return table if found[-1] >= count else None

    return wait_for(table, f"{count} rows of {name}, last {found[-1:]}", TIMEOUT_S)


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers() or []
    return list(headers)


def consumed(cluster: LocalCluster, topic: str, partitions: int, count: int) -> list[Mapping[str, Any]]:
    """Return the records that a read_committed consumer gets, by partition and offset."""
    read = consume(
        cluster.bootstrap_servers,
        [TopicPartition(topic, partition, 0) for partition in range(partitions)],
        count,
        **{"isolation.level": "read_committed"},
    )
    rows = [
        {
            "partition": each.partition(),
            "offset": each.offset(),
            "timestamp": each.timestamp()[1],
            "key": each.key(),
            "value": each.value(),
            "headers": [{"key": name, "value": value} for name, value in headers_of(each)],
        }
        for each in read
    ]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def rows_of(table: pa.Table) -> list[Mapping[str, Any]]:
    """Return rows of a table of Arrow in the form of `consumed`."""
    milliseconds = table.column("timestamp").cast(pa.int64())
    columns = table.drop_columns(["timestamp", "timestampType"]).to_pylist()
    rows = [
        {**row, "timestamp": microseconds.as_py() // 1000}
        for row, microseconds in zip(columns, milliseconds, strict=True)
    ]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def test_table_has_the_rows_of_a_read_committed_consumer(cluster: LocalCluster, catalog: Catalog) -> None:
    """Each committed record is there once, with all its parts, for pyiceberg and for DuckDB."""
    create_topic(cluster.bootstrap_servers, "orders", partitions=2, config=TABLE)
    written = produce_transactions(cluster, "orders", 2)
    table = wait_for_rows(catalog, "topics.orders", len(written))
    expected = consumed(cluster, "orders", 2, len(written))
    rows = table.scan().to_arrow()
    assert rows_of(rows) == expected
    assert sorted((row["partition"], row["value"]) for row in expected if row["value"]) == sorted(
        row for row in written if row[1]
    )
    found = duckdb.sql("SELECT * FROM rows").arrow()
    assert rows_of(pa.table(found)) == expected
    paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    found = duckdb.read_parquet(paths).arrow()
    assert rows_of(pa.table(found)) == expected

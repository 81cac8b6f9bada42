"""Tables of topics whose rows, drivers and other writers change, in a running cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client, create_topic, produce
from tests.compat.tiering import segment_objects, tiered_config

TABLE: Final = {"sparklog.table.enable": "true"}


@pytest.fixture(autouse=True)
def held() -> None:
    """Count neither threads nor descriptors: the pools of catalogue and pyiceberg keep theirs."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("lake")
    (directory / "bucket").mkdir()
    return directory


@pytest.fixture(scope="module")
def catalog(directory: Path) -> Catalog:
    # A reader waits for the disk of the writer's commit.
    return load_catalog("sparklog", uri=f"sqlite:///{directory}/catalogue.db?timeout={TIMEOUT_S}")


@pytest.fixture(scope="module")
def cluster(directory: Path) -> Iterator[LocalCluster]:
    options = {
        "sparklog.table.catalog.uri": f"sqlite:///{directory}/catalogue.db",
        "sparklog.table.commit.interval.ms": "300",
        "sparklog.table.snapshot.retention.ms": "2000",
    }
    with LocalCluster(config=tiered_config(directory / "bucket", **options)) as cluster:
        yield cluster


def wait_for_rows(catalog: Catalog, name: str, count: int) -> Table:
    """Return the table once it has so many rows."""

    def found() -> Table | None:
        try:
            table = catalog.load_table(name)
        except NoSuchTableError:
            return None
        return table if table.scan().count() >= count else None

    return wait_for(found, f"{count} rows of {name}", TIMEOUT_S)


def test_another_writers_snapshot_stops_commits_until_it_is_taken_back(
    cluster: LocalCluster, catalog: Catalog
) -> None:
    """A table that others change is not rewritten over them, and goes on once it is rolled back."""
    create_topic(cluster.bootstrap_servers, "shared", config=TABLE)
    produce(cluster.bootstrap_servers, "shared", [{"value": b"first"}])
    table = wait_for_rows(catalog, "topics.shared", 1)
    ours = table.current_snapshot()
    assert ours is not None
    table.delete("offset = 0")
    wait_for(
        lambda: "another writer" in (problem(cluster, "shared") or ""), "the problem is shown", TIMEOUT_S
    )
    produce(cluster.bootstrap_servers, "shared", [{"value": b"second"}])
    catalog.load_table("topics.shared").manage_snapshots().rollback_to_snapshot(ours.snapshot_id).commit()
    table = wait_for_rows(catalog, "topics.shared", 2)
    rows = table.scan().to_arrow().sort_by("offset")
    assert rows.column("value").to_pylist() == [b"first", b"second"]
    assert problem(cluster, "shared") is None


def problem(cluster: LocalCluster, topic: str) -> str | None:
    statuses = {status.topic: status for status in cluster.controller.table_statuses}
    return statuses[topic].problem


def test_rows_leave_with_the_topics_records_unless_the_table_keeps_them(
    cluster: LocalCluster, catalog: Catalog
) -> None:
    """DeleteRecords reaches the table, to the record; a table that keeps its rows has them all."""
    for topic, retention in (("passing", "topic"), ("lasting", "forever")):
        create_topic(
            cluster.bootstrap_servers, topic, config={**TABLE, "sparklog.table.retention": retention}
        )
        produce(cluster.bootstrap_servers, topic, [{"value": b"%d" % number} for number in range(10)])
        wait_for_rows(catalog, f"topics.{topic}", 10)
        delete_records(cluster, topic, 4)
        produce(cluster.bootstrap_servers, topic, [{"value": b"last"}])
    wait_for(lambda: offsets(catalog, "passing") == list(range(4, 11)), "the rows leave", TIMEOUT_S)
    wait_for(lambda: offsets(catalog, "lasting") == list(range(11)), "the new row comes", TIMEOUT_S)


def delete_records(cluster: LocalCluster, topic: str, before: int) -> None:
    admin = admin_client(cluster.bootstrap_servers)
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(TIMEOUT_S)


def offsets(catalog: Catalog, topic: str) -> list[int]:
    rows = catalog.load_table(f"topics.{topic}").scan(selected_fields=("offset",)).to_arrow()
    return sorted(rows.column("offset").to_pylist())


def test_files_of_a_deleted_topic_go_unless_its_table_keeps_them(
    cluster: LocalCluster, catalog: Catalog, directory: Path
) -> None:
    """The table of a deleted topic can be read as long as its snapshots are there, or for ever."""
    for topic, retention in (("gone", "topic"), ("stays", "forever")):
        create_topic(
            cluster.bootstrap_servers, topic, config={**TABLE, "sparklog.table.retention": retention}
        )
        produce(cluster.bootstrap_servers, topic, [{"value": b"one"}])
        wait_for_rows(catalog, f"topics.{topic}", 1)
        admin = admin_client(cluster.bootstrap_servers)
        for future in admin.delete_topics([topic]).values():
            future.result(TIMEOUT_S)
    wait_for(lambda: offsets(catalog, "gone") == [], "the rows leave with the topic", TIMEOUT_S)
    bucket = directory / "bucket"
    wait_for(lambda: not segment_objects(bucket, "gone"), "its files go", TIMEOUT_S)
    assert offsets(catalog, "stays") == [0]
    assert len(segment_objects(bucket, "stays")) == 1


def test_new_driver_goes_on_with_tables(cluster: LocalCluster, catalog: Catalog) -> None:
    """It reads the newest snapshot, and neither doubles nor loses a record."""
    create_topic(cluster.bootstrap_servers, "followed", config=TABLE)
    produce(cluster.bootstrap_servers, "followed", [{"value": b"%d" % number} for number in range(5)])
    wait_for_rows(catalog, "topics.followed", 5)
    cluster.restart_controller()
    produce(cluster.bootstrap_servers, "followed", [{"value": b"%d" % number} for number in range(5)])
    wait_for(lambda: offsets(catalog, "followed") == list(range(10)), "all rows, once", TIMEOUT_S)

"""Tasks of a DataFrame that read from the replica on their own host."""

import socket
from typing import Any

import pytest
from pyspark.sql.types import StructType

from sparklog.protocol.records.batch import CorruptBatchError
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.user.dataframe.options import ReadOptions
from sparklog.user.dataframe.planning import OffsetRange
from sparklog.user.dataframe.range_reader import OffsetRangePartition, RangeReader
from tests.unit.sparklog.user.client.brokers import FIRST, TOPIC_ID, Brokers, with_brokers
from tests.unit.sparklog.user.dataframe.reading import SCHEMA

ANOTHER_HOST = "192.0.2.1"
"""An address that no host has (RFC 5737)."""
LEADER = "leader.test"
"""A name that leads to the leader, on another host."""
FIRST_BATCH = build_batch([SimpleRecord(value=b"a")])
SECOND_BATCH = build_batch([SimpleRecord(value=b"b")], base_offset=1)
DAMAGED_BATCH = SECOND_BATCH[:-2] + bytes([SECOND_BATCH[-2] ^ 1]) + SECOND_BATCH[-1:]


@pytest.fixture
def leader_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve the leader's name to another host's address, except for connections."""
    found = socket.getaddrinfo

    def resolve(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        if host == LEADER:
            host = ANOTHER_HOST if options.get("type") == socket.SOCK_DGRAM else "127.0.0.1"
        return found(host, port, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def _read(brokers: Brokers, schema: Any = SCHEMA) -> list[bytes]:
    """Return the values of offsets 0 and 1, read by a task beside broker 1."""
    bootstrap_servers = f"127.0.0.1:{brokers.listeners[2].port}"
    options = ReadOptions.parse(
        {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": FIRST.topic}, None
    )
    task = OffsetRangePartition(OffsetRange(FIRST, 0, 2), TOPIC_ID)
    reader = RangeReader(options, schema)
    return [value for rows in reader.read(task) for value in rows.column("value").to_pylist()]


def test_task_reads_its_range_from_the_follower_on_its_host() -> None:
    """Its bytes cross no network: the leader is on a host that cannot even be reached."""

    def use(brokers: Brokers) -> None:
        brokers.hosts[0] = ANOTHER_HOST
        brokers.follower_records = {1: build_batch([SimpleRecord(value=b"near")])}
        bootstrap_servers = f"127.0.0.1:{brokers.listeners[2].port}"
        options = ReadOptions.parse(
            {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": FIRST.topic}, None
        )
        reader = RangeReader(options, SCHEMA)
        task = OffsetRangePartition(OffsetRange(FIRST, 0, 1), TOPIC_ID)
        values = [value for rows in reader.read(task) for value in rows.column("value").to_pylist()]
        assert values == [b"near"]
        assert brokers.fetched == [1]

    with_brokers(use)


@pytest.mark.usefixtures("leader_elsewhere")
@pytest.mark.parametrize("columns", [SCHEMA.fieldNames(), ["value"]], ids=["all columns", "values"])
def test_records_that_are_damaged_on_the_follower_are_read_from_the_leader(columns: list[str]) -> None:
    """Brokers send without a look at CRCs, and a retried task would meet the same damage."""

    def use(brokers: Brokers) -> None:
        brokers.hosts[0] = LEADER
        brokers.follower_records = {1: FIRST_BATCH + DAMAGED_BATCH, 2: b""}
        brokers.records = FIRST_BATCH + SECOND_BATCH
        schema = StructType([SCHEMA[name] for name in columns])
        assert _read(brokers, schema) == [b"a", b"b"]
        assert brokers.fetched == [1, 0]
        assert _read(brokers, schema) == [b"a", b"b"]
        assert 1 not in brokers.fetched[2:]

    with_brokers(use)


@pytest.mark.usefixtures("leader_elsewhere")
def test_records_that_are_damaged_on_follower_and_leader_are_an_error() -> None:
    """No copy is sound, which must not look like fewer records."""

    def use(brokers: Brokers) -> None:
        brokers.hosts[0] = LEADER
        brokers.follower_records = {1: FIRST_BATCH + DAMAGED_BATCH}
        brokers.records = FIRST_BATCH + DAMAGED_BATCH
        with pytest.raises(CorruptBatchError, match="t-0"):
            _read(brokers)
        assert brokers.fetched == [1, 0]

    with_brokers(use)

"""Tasks of a DataFrame that read from the replica on their own host."""

from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.user.dataframe.options import ReadOptions
from sparklog.user.dataframe.planning import OffsetRange
from sparklog.user.dataframe.range_reader import OffsetRangePartition, RangeReader
from tests.unit.sparklog.user.client.brokers import FIRST, TOPIC_ID, Brokers, with_brokers
from tests.unit.sparklog.user.dataframe.reading import SCHEMA

ANOTHER_HOST = "192.0.2.1"
"""Of nobody (RFC 5737)."""


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

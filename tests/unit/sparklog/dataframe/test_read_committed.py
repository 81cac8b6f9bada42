"""What DataFrames show of transactions, read from a broker's real logs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from executor.api.metadata import MetadataHandler
from executor.partitions.replica import Replica
from sparklog.dataframe.options import ReadOptions
from sparklog.dataframe.reader import SparklogReader
from sparklog.dataframe.schemas import record_schema
from sparklog.dataframe.stream_reader import SparklogStreamReader
from sparklog.records.batch import read_header
from sparklog.storage.transaction_markers import EndTransaction
from sparklog.wire.apis import CLIENT_VERSIONS, ApiKey
from sparklog.wire.listener import Listener
from sparklog.wire.requests import Api
from tests.unit.executor.brokers import Brokers, with_brokers
from tests.unit.executor.requests import batch

SCHEMA = record_schema(include_headers=False)


@asynccontextmanager
async def options_of(brokers: Brokers, **options: str) -> AsyncIterator[dict[str, str]]:
    """Have somebody tell of topics; yield the options of a read of topic t."""
    metadata = MetadataHandler(
        lambda: brokers.image,
        cluster_id="c",
        node_id=0,
        suspicions=brokers.brokers[0].suspicions,
        auto_topic_creation=None,
    )
    table = {
        **brokers.brokers[0].apis,
        ApiKey.METADATA: Api(*CLIENT_VERSIONS[ApiKey.METADATA], metadata.handle),
    }
    listener = await Listener.start("127.0.0.1", 0, table, name="PLAINTEXT")
    try:
        yield {
            "subscribe": "t",
            "kafka.bootstrap.servers": f"127.0.0.1:{listener.port}",
            **{name.replace("__", "."): value for name, value in options.items()},
        }
    finally:
        await listener.close()


def write(replica: Replica, producer_id: int, value: bytes, sequence: int = 0) -> None:
    """Append a record of a transaction."""
    records = batch(
        value=value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )
    verification = replica.log.producers.begin_verification(
        producer_id, 0, sequence, 0, supports_epoch_bump=True
    )
    replica.leading()
    replica.append(records, read_header(records), 0, 0, None, verification)


def end(replica: Replica, producer_id: int, *, committed: bool) -> None:
    """End a transaction."""
    replica.leading()
    replica.append_marker(EndTransaction(producer_id, 1, committed, 0, 2), 0, 0, None)


def values(reader: Any, *bounds: Any) -> list[bytes]:
    """Return what a plan shows."""
    return [
        value
        for partition in reader.partitions(*bounds)
        for arrow in reader.read(partition)
        for value in arrow.column("value").to_pylist()
    ]


def interleave(replica: Replica) -> None:
    """Write two transactions into each other, of which one is aborted, and begin a third."""
    write(replica, 1, b"aborted")
    write(replica, 2, b"first")
    write(replica, 1, b"aborted too", 1)
    end(replica, 1, committed=False)
    write(replica, 2, b"second", 1)
    end(replica, 2, committed=True)
    write(replica, 3, b"open")


@with_brokers()
async def test_batch_query_shows_committed_records_only_unless_all_are_asked_for(brokers: Brokers) -> None:
    """The default of kafka.isolation.level is not Kafka's: what is written exactly once is to be read so."""
    replica = brokers.replica(0, await brokers.create_topic("t", [(0,)]))
    interleave(replica)

    def read(options: dict[str, str]) -> list[bytes]:
        return values(SparklogReader(ReadOptions.parse(options, None), SCHEMA))

    async with options_of(brokers) as options:
        assert await asyncio.to_thread(read, options) == [b"first", b"second"]
    async with options_of(brokers, kafka__isolation__level="read_uncommitted") as options:
        everything = [b"aborted", b"first", b"aborted too", b"second", b"open"]
        assert await asyncio.to_thread(read, options) == everything


@with_brokers()
async def test_stream_shows_a_transaction_when_it_is_committed_and_none_that_was_aborted(
    brokers: Brokers,
) -> None:
    """A micro-batch ends where it is known what became of everything before."""
    replica = brokers.replica(0, await brokers.create_topic("t", [(0,)]))
    async with options_of(brokers, startingOffsets="earliest") as given:
        stream = SparklogStreamReader(given, None, SCHEMA)
        start = await asyncio.to_thread(stream.initialOffset)

        async def micro_batch() -> list[bytes]:
            nonlocal start
            latest = await asyncio.to_thread(stream.latestOffset, start, ReadAllAvailable())
            if latest == start:  # Spark makes no batch then
                return []
            shown = await asyncio.to_thread(values, stream, start, latest)
            start = latest
            return shown

        interleave(replica)
        assert await micro_batch() == [b"first", b"second"]
        write(replica, 4, b"behind")
        end(replica, 4, committed=True)
        assert await micro_batch() == [], "a transaction before it is open"
        end(replica, 3, committed=False)
        assert await micro_batch() == [b"behind"]
        write(replica, 5, b"aborted")
        end(replica, 5, committed=False)
        assert await micro_batch() == []
        await asyncio.to_thread(stream.stop)

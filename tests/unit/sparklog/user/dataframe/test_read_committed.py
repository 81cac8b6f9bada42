"""What DataFrames show of transactions, read from a broker's real logs."""

import asyncio

from sparklog.executor.partitions.replica import Replica
from sparklog.spark_versions import ReadAllAvailable
from sparklog.user.dataframe.options import ReadOptions
from sparklog.user.dataframe.reader import SparklogReader
from sparklog.user.dataframe.stream_reader import SparklogStreamReader
from tests.unit.executor.brokers import Brokers, with_brokers
from tests.unit.sparklog.user.dataframe.reading import SCHEMA, end, options_of, values, write


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

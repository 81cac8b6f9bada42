"""What is between the last stable offset and the high watermark is there, and is waited for.

A checkpoint of a query that read all records may stand there, and options may name offsets there: Kafka's own
tools list them so by default.
"""

import asyncio
from typing import Any

import pytest

from sparklog.executor.partitions.replica import Replica
from sparklog.user.dataframe.errors import DataLossError, DataSourceOptionError
from sparklog.user.dataframe.options import ReadOptions
from sparklog.user.dataframe.reader import SparklogReader
from sparklog.user.dataframe.resolution import end_for_now
from sparklog.user.dataframe.stream_reader import SparklogStreamReader
from tests.unit.executor.brokers import Brokers, with_brokers
from tests.unit.sparklog.user.dataframe.reading import SCHEMA, Query, append, end, options_of, values, write


def at(offset: int) -> dict[str, Any]:
    """Return a position in the only partition."""
    return {"t": {"0": offset}}


async def open_transaction(brokers: Brokers) -> Replica:
    """Have partition 0 of topic t read up to its last stable offset, 1, and written up to 4."""
    replica = brokers.replica(0, await brokers.create_topic("t", [(0,)]))
    append(replica, b"before")
    write(replica, 1, b"first")
    append(replica, b"behind")
    write(replica, 1, b"second", 1)
    return replica


@pytest.mark.parametrize(
    ("latest", "high_watermark", "expected"),
    [(20, 25, 20), (10, 10, 10), (5, 12, 10), (5, 10, 10), (5, 9, 5), (5, 5, 5)],
    ids=["readable", "at the end", "in a transaction", "written up to it", "lost", "lost, all is stable"],
)
def test_end_is_before_the_start_only_if_less_is_written(
    latest: int, high_watermark: int, expected: int
) -> None:
    """What is written is not lost, whoever may read it yet."""
    assert end_for_now(10, latest, high_watermark) == expected


@with_brokers()
async def test_stream_that_stands_in_an_open_transaction_waits_and_gives_what_follows_once(
    brokers: Brokers,
) -> None:
    """Its end went into the checkpoint, before its beginning: it failed for ever, or gave rows twice."""
    replica = await open_transaction(brokers)
    for fail_on_data_loss in ("true", "false"):
        async with options_of(brokers, failOnDataLoss=fail_on_data_loss) as options:
            query = Query(options, at(3))
            for _ in range(2):
                await query.micro_batch()
            assert query.position == at(3)
            await query.stop()
    async with options_of(brokers) as options:
        query = Query(options, at(3))
        end(replica, 1, committed=True)
        assert await query.read_to(at(5)) == [b"second"]
        await query.stop()


@with_brokers()
async def test_stream_whose_checkpoint_went_back_in_an_open_transaction_goes_on(brokers: Brokers) -> None:
    """Such a batch is in checkpoints, and comes again whenever the query is started."""
    await open_transaction(brokers)
    async with options_of(brokers, fetchOffset__retryIntervalMs="10") as options:
        reader = SparklogStreamReader(options, None, SCHEMA)
        try:
            assert await asyncio.to_thread(reader.partitions, at(4), at(1)) == []
            with pytest.raises(DataLossError, match=r"read up to offset 5, and ends at 1 now"):
                await asyncio.to_thread(reader.partitions, at(5), at(1))
        finally:
            await asyncio.to_thread(reader.stop)


@with_brokers()
async def test_new_stream_begins_where_it_is_told_to_in_an_open_transaction(brokers: Brokers) -> None:
    """It began before, at the last stable offset, and gave rows that were not asked for."""
    await open_transaction(brokers)

    async def begins(offset: int, fail_on_data_loss: str) -> dict[str, Any]:
        starting = f'{{"t": {{"0": {offset}}}}}'
        async with options_of(brokers, startingOffsets=starting, failOnDataLoss=fail_on_data_loss) as options:
            reader = SparklogStreamReader(options, None, SCHEMA)
            try:
                return await asyncio.to_thread(reader.initialOffset)
            finally:
                await asyncio.to_thread(reader.stop)

    for offset in (3, 4):
        assert await begins(offset, "true") == at(offset)
    with pytest.raises(DataLossError, match=r"offsets 0 to 4 \(exclusive\), so none starts at 5"):
        await begins(5, "true")
    assert await begins(5, "false") == at(1), "where it would begin by latest"


def plan(options: dict[str, str]) -> list[tuple[int, int]]:
    """Return the ranges of a batch query."""
    return [
        (partition.offset_range.start_offset, partition.offset_range.end_offset)
        for partition in SparklogReader(ReadOptions.parse(options, None), SCHEMA).partitions()
    ]


@with_brokers()
async def test_batch_from_an_offset_in_an_open_transaction_is_empty(brokers: Brokers) -> None:
    """Only what was never written is lost."""
    await open_transaction(brokers)
    async with options_of(brokers, startingOffsets='{"t": {"0": 4}}') as options:
        assert await asyncio.to_thread(plan, options) == []
    async with options_of(brokers, startingOffsets='{"t": {"0": 5}}') as options:
        with pytest.raises(DataLossError, match="ends at offset 4, before the starting offset 5"):
            await asyncio.to_thread(plan, options)


@with_brokers()
async def test_batch_to_an_offset_in_an_open_transaction_waits_for_its_end(brokers: Brokers) -> None:
    """As a consumer does that is to read so far; it was told that the records are not there."""
    replica = await open_transaction(brokers)
    async with options_of(brokers, endingOffsets='{"t": {"0": 4}}') as options:
        assert await asyncio.to_thread(plan, options) == [(0, 4)]
        reader = SparklogReader(ReadOptions.parse(options, None), SCHEMA)
        reading = asyncio.create_task(asyncio.to_thread(values, reader))
        end(replica, 1, committed=True)
        assert await reading == [b"before", b"first", b"behind", b"second"]


@with_brokers()
async def test_batch_to_an_offset_that_is_not_written_is_refused_or_reads_what_is_committed(
    brokers: Brokers,
) -> None:
    """With failOnDataLoss=false nothing is waited for that may not come."""
    await open_transaction(brokers)
    async with options_of(brokers, endingOffsets='{"t": {"0": 5}}') as options:
        with pytest.raises(DataSourceOptionError, match="names offset 5 of t-0, which ends at 4"):
            await asyncio.to_thread(plan, options)
        assert await asyncio.to_thread(plan, {**options, "failOnDataLoss": "false"}) == [(0, 1)]

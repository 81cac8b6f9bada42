"""Streams of topics that are deleted or made anew, or that the broker that is asked does not know yet."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog.executor.partitions.replica import Replica
from sparklog.user.client.errors import UnknownTopicError
from sparklog.user.dataframe.errors import DataLossError
from tests.unit.executor.brokers import Brokers
from tests.unit.sparklog.user.dataframe.reading import Query, ToldMetadata, append, told_of

GOES_ON = {"failOnDataLoss": "false"}
SOON_GIVEN_UP = {"fetchOffset.numRetries": "20", "fetchOffset.retryIntervalMs": "10"}

Scenario = Callable[[Brokers, ToldMetadata, dict[str, str]], Awaitable[None]]


def play(directory: Path, scenario: Scenario) -> None:
    """Run a scenario beside a broker; it is given who tells of topics, and the options that name where."""

    async def body() -> None:
        async with asyncio.timeout(60), Brokers(directory) as brokers, told_of(brokers) as (metadata, where):
            await scenario(brokers, metadata, where)

    asyncio.run(body())


def at(**offsets: int) -> dict[str, Any]:
    """Return a position in partitions 0 of topics."""
    return {topic: {"0": offset} for topic, offset in offsets.items()}


async def topic(brokers: Brokers, name: str, *values: bytes) -> Replica:
    """Create a topic of one partition that has these records."""
    replica = brokers.replica(0, await brokers.create_topic(name, [(0,)]))
    append(replica, *values)
    return replica


async def delete(brokers: Brokers, name: str) -> None:
    await brokers.delete_topic(brokers.image.topics.by_name[name].topic_id)


async def until_idle(query: Query, metadata: ToldMetadata) -> None:
    """Return when the query waits at the ends of its partitions, and knows them."""
    asked = None
    while asked != metadata.asked:
        asked = metadata.asked
        await query.micro_batch()


def test_stream_that_went_on_without_a_topic_can_be_started_again_and_a_new_one_cannot(
    tmp_path: Path,
) -> None:
    """With failOnDataLoss=false it warns, whether it runs or is started; a misspelt topic is an error."""

    async def scenario(brokers: Brokers, metadata: ToldMetadata, where: dict[str, str]) -> None:
        await topic(brokers, "t", b"0", b"1")
        options = {"subscribe": "t,u", **where, **SOON_GIVEN_UP}
        query = Query({**options, **GOES_ON}, at(t=1, u=3))
        assert await query.read_to(at(t=2)) == [b"1"]
        await query.stop()
        for new in (Query({**options, **GOES_ON}, {}), Query(options, {})):
            with pytest.raises(UnknownTopicError, match="topic u does not exist"):
                await asyncio.to_thread(new.reader.initialOffset)
            await new.stop()
        query = Query(options, at(t=1, u=3))
        with pytest.raises(UnknownTopicError, match="topic u does not exist"):
            await query.micro_batch()
        await query.stop()

    play(tmp_path, scenario)


@pytest.mark.parametrize("is_seen_gone", [False, True], ids=["at once", "after a while"])
def test_stream_reads_a_topic_that_was_made_anew_from_its_beginning(
    is_seen_gone: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was read below the position in the former topic, and no error if there was as much again."""

    async def scenario(brokers: Brokers, metadata: ToldMetadata, where: dict[str, str]) -> None:
        await topic(brokers, "t", b"0", b"1", b"2")
        query = Query({"subscribe": "t", **where, **SOON_GIVEN_UP, **GOES_ON}, at(t=0))
        assert await query.read_to(at(t=3)) == [b"0", b"1", b"2"]
        former = brokers.image
        await delete(brokers, "t")
        if is_seen_gone:
            while "continuing without it" not in caplog.text:
                await query.micro_batch()
        replica = await topic(brokers, "t", b"a", b"b", b"c")
        assert await query.read_to(at(t=0)) == [], "a batch without rows, which a restart can repeat"
        assert caplog.text.count("topic t was deleted and created again") == 1
        assert await query.read_to(at(t=3)) == [b"a", b"b", b"c"]
        # Who still tells of the former topic does not make it the newer one.
        await until_idle(query, metadata)
        metadata.behind = [former] * 2
        while metadata.behind:
            await query.micro_batch()
        append(replica, b"d")
        assert await query.read_to(at(t=4)) == [b"d"]
        await query.stop()
        assert caplog.text.count("topic t was deleted and created again") == 1

    play(tmp_path, scenario)


def test_stream_that_was_to_read_of_a_topic_that_was_made_anew_names_what_it_does_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a batch ends may have been decided before, in offsets of the former topic."""

    async def scenario(brokers: Brokers, metadata: ToldMetadata, where: dict[str, str]) -> None:
        await topic(brokers, "t", b"0")
        query = Query({"subscribe": "t", **where, **SOON_GIVEN_UP, **GOES_ON}, at(t=0))
        assert await query.read_to(at(t=1)) == [b"0"]
        await delete(brokers, "t")
        await topic(brokers, "t", b"a", b"b", b"c")
        while "created again" not in caplog.text:
            assert await asyncio.to_thread(query.reader.partitions, at(t=1), at(t=1)) == []
        assert await asyncio.to_thread(query.reader.partitions, at(t=1), at(t=3)) == []
        assert "offsets 1 to 3 (exclusive) of t-0 went with the topic that was deleted" in caplog.text
        query.position = at(t=3)
        assert await query.read_to(at(t=0)) == []
        assert await query.read_to(at(t=3)) == [b"a", b"b", b"c"]
        await query.stop()

    play(tmp_path, scenario)


def test_stream_that_is_to_fail_on_data_loss_fails_when_a_topic_was_made_anew(tmp_path: Path) -> None:
    """What the former topic had and was not read is lost."""

    async def scenario(brokers: Brokers, metadata: ToldMetadata, where: dict[str, str]) -> None:
        await topic(brokers, "t", b"0")
        query = Query({"subscribe": "t", **where, **SOON_GIVEN_UP}, at(t=0))
        await query.read_to(at(t=1))
        await delete(brokers, "t")
        await topic(brokers, "t", b"a", b"b")
        with pytest.raises(DataLossError, match="topic t was deleted and created again"):
            await query.read_to(at(t=2))
        await query.stop()

    play(tmp_path, scenario)


@pytest.mark.parametrize("is_started_again", [False, True], ids=["running", "started again"])
def test_topic_of_a_pattern_that_a_broker_does_not_know_yet_is_asked_for_again(
    is_started_again: bool, tmp_path: Path
) -> None:
    """It was lost data, or its position was forgotten, and all of it was read again."""

    async def scenario(brokers: Brokers, metadata: ToldMetadata, where: dict[str, str]) -> None:
        replica = await topic(brokers, "t-1", b"0")
        behind = brokers.image
        await topic(brokers, "t-2", b"1", b"2")
        options = {"subscribePattern": "t-.*", **where}
        position = at(**{"t-1": 1, "t-2": 2})
        query = Query(options, position)
        if not is_started_again:
            await until_idle(query, metadata)
        metadata.behind = [behind] * 3
        while metadata.behind:
            await query.micro_batch()
        assert query.position == position
        append(replica, b"3")
        assert await query.read_to(at(**{"t-1": 2, "t-2": 2})) == [b"3"]
        await query.stop()

    play(tmp_path, scenario)


def test_topic_of_a_pattern_that_nobody_knows_any_more_is_lost_after_a_while(tmp_path: Path) -> None:
    """What was waited for in vain is taken for deleted, as the connector does at once."""

    async def scenario(brokers: Brokers, metadata: ToldMetadata, where: dict[str, str]) -> None:
        await topic(brokers, "t-1", b"0")
        await topic(brokers, "t-2", b"1")
        options = {"subscribePattern": "t-.*", **where, **SOON_GIVEN_UP}
        position = at(**{"t-1": 1, "t-2": 1})
        query = Query(options, position)
        await query.micro_batch()
        await delete(brokers, "t-2")
        with pytest.raises(DataLossError, match="t-2-0 is gone"):
            await query.read_to({})
        await query.stop()

    play(tmp_path, scenario)

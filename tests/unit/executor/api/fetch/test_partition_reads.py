"""When a leader looks at what a follower asks for again."""

from pathlib import Path
from typing import Any

import pytest

from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, fetch, produce, rows


def looked_at(log: pytest.LogCaptureFixture) -> list[str]:
    """Return what was looked at, as it was logged."""
    return [record.getMessage() for record in log.records if "again and again" in record.getMessage()]


def test_records_that_a_session_reads_for_another_partition_s_request_are_not_suspected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a slow machine partitions rest, and their neighbours' records are read with each that is woken."""

    @with_brokers(count=2)
    async def scenario(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0, 1)] * 5)
        follower = {"replica": (1, brokers.brokers[1].broker_epoch)}
        await brokers.stop(1)
        channel = await brokers.connect(0)
        await channel.request(produce(topic_id, batch(), acks=1))
        first = await channel.request(fetch(topic_id, {0: 0}, session_epoch=0, **follower))
        for partition in range(1, 5):
            session = {"session_id": first.session_id, "session_epoch": partition}
            response = await channel.request(fetch(topic_id, {partition: 0}, **session, **follower))
            assert 0 in [row.partition_index for row in rows(response) if row.records]

    scenario(tmp_path)
    assert looked_at(caplog) == []


def test_records_that_a_follower_names_a_third_time_are_looked_at_and_not_those_of_a_new_leader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It refuses what is damaged and asks again; it does not look at answers of an earlier epoch."""

    @with_brokers(count=2)
    async def scenario(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0, 1)])
        follower: dict[str, Any] = {"replica": (1, brokers.brokers[1].broker_epoch)}
        await brokers.stop(1)
        channel = await brokers.connect(0)
        await channel.request(produce(topic_id, batch(), acks=1))

        async def ask() -> None:
            (row,) = rows(await channel.request(fetch(topic_id, {0: 0}, **follower)))
            assert row.error_code is ErrorCode.none and row.records

        for _ in range(3):
            await ask()
            await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
        assert looked_at(caplog) == []
        for _ in range(3):
            await ask()
        assert len(looked_at(caplog)) == 1
        await until(lambda: "are sound" in caplog.messages[-1], "it was looked at")

    scenario(tmp_path)

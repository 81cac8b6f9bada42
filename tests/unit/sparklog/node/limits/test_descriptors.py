"""File descriptors: connections take what files leave, and give it back."""

import asyncio
import logging
import os

import pytest

from sparklog.node.limits.connection_quotas import ConnectionQuotas
from sparklog.node.limits.descriptors import DescriptorBudget, open_descriptors
from sparklog.node.serving.listener import Listener
from sparklog.node.serving.requests import Api, Deferred
from sparklog.protocol.codec.apis import ApiKey
from tests.unit.sparklog.node.serving.serving import (
    HEARTBEAT_ONLY,
    RawClient,
    heartbeat,
    heartbeat_response,
    run,
    serving,
    until,
)


class Process:
    """A process with so many files open, beside its connections."""

    def __init__(self, file_count: int, limit: int) -> None:
        self.file_count = file_count
        self.connection_count = 0
        self.budget = DescriptorBudget(limit, lambda: self.file_count + self.connection_count)

    def open(self, count: int, *, reserved: bool = False) -> int:
        """Open as many connections as there is room for; return how many that were."""
        opened = 0
        while opened < count and self.budget.has_room(reserved=reserved):
            self.budget.opened()
            self.connection_count += 1
            opened += 1
        return opened


def test_connections_take_half_of_what_files_leave_and_the_clusters_own_some_more() -> None:
    """The rest is for segments to come: a log that cannot begin one cannot be appended to."""
    process = Process(file_count=20, limit=100)
    process.budget.measure()
    assert process.open(1000) == 40
    process.budget.measure()
    assert process.open(1000) == 0, "the connections themselves are not among the files"
    assert process.budget.excess == 0
    assert process.open(1000, reserved=True) == 20
    process.file_count = 60
    process.budget.measure()
    assert process.budget.excess == 40
    for _ in range(60):
        process.budget.closed()
    process.connection_count = 0
    process.budget.measure()
    assert process.open(1000) == 20
    process.file_count = 200
    process.budget.measure()
    assert (process.open(1), process.budget.excess) == (0, 20), "nothing is left"


def test_open_descriptors_counts_what_is_open() -> None:
    """The bound is as good as the count."""
    before = open_descriptors()
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
    try:
        assert open_descriptors() == before + 50
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert open_descriptors() == before


def test_listener_short_of_descriptors_refuses_and_then_closes_who_is_idle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who waits for an answer keeps its connection; what is refused takes one line, however often."""
    file_count = 80
    held: list[Deferred] = []

    def hold(_: object) -> Deferred:
        held.append(Deferred())
        return held[-1]

    async def scenario() -> None:
        nonlocal file_count
        listeners: list[Listener] = []
        budget = DescriptorBudget(100, lambda: file_count + sum(each.connection_count for each in listeners))
        quotas = ConnectionQuotas(descriptors=budget)
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, hold)}, quotas=quotas) as listener:
            listeners.append(listener)
            clients = [await RawClient.connect(listener) for _ in range(10)]
            await until(lambda: listener.connection_count == 10)
            clients[0].send(heartbeat())
            await until(lambda: len(held) == 1)
            clients[1].send(heartbeat())
            await until(lambda: len(held) == 2)
            held[1].complete(heartbeat_response())
            await clients[1].receive()
            for _ in range(20):
                assert await (await RawClient.connect(listener)).closed_by_server()
            assert listener.connection_count == 10
            file_count = 90
            closed = await asyncio.gather(*(client.closed_by_server() for client in clients[2:7]))
            assert closed == [True] * 5, "who has never said a word goes first, whoever is there longest"
            assert listener.connection_count == 5
            assert not held[0].abandoned

    with caplog.at_level(logging.WARNING):
        run(scenario())
    lines = [record.getMessage() for record in caplog.records]
    assert sum("refusing" in line for line in lines) == 2, "the first, and the count at the end"
    assert any("the last of 19 more" in line for line in lines)


def test_listener_without_a_budget_takes_whoever_comes() -> None:
    """A process that has nothing to lose needs none."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            clients = [await RawClient.connect(listener) for _ in range(20)]
            await until(lambda: listener.connection_count == len(clients))

    run(scenario())

"""Producer ids out of the blocks that the controller allocates."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse

from sparklog.executor.control.senders import BrokerRequests, ProducerIdBlocks
from sparklog.node.serving.requests import Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.executor.controller_script import linked_controller

NO_TIME = timedelta(0)


def test_producer_ids_are_taken_from_blocks_and_never_twice() -> None:
    """Two producers with one id would make each other's records look like duplicates."""

    async def scenario() -> list[int]:
        starts = iter(range(1_000, 9_000, 3))

        def allocate(request: Request) -> Any:
            return AllocateProducerIdsResponse(
                throttle_time=NO_TIME,
                error_code=ErrorCode.none,
                producer_id_start=next(starts),
                producer_id_len=3,
            )

        async with linked_controller({ApiKey.ALLOCATE_PRODUCER_IDS: allocate}) as (_, link):
            producer_ids = ProducerIdBlocks(BrokerRequests(link, 1, lambda: 42))
            return await asyncio.gather(*(producer_ids.next(5_000) for _ in range(8)))

    assert sorted(asyncio.run(scenario())) == [1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007]


def test_producer_ids_refused_raise_the_controllers_error() -> None:
    """A fenced broker must not hand out ids it does not have."""

    async def scenario() -> None:
        def refuse(request: Request) -> Any:
            return AllocateProducerIdsResponse(
                throttle_time=NO_TIME,
                error_code=ErrorCode.stale_broker_epoch,
                producer_id_start=0,
                producer_id_len=0,
            )

        async with linked_controller({ApiKey.ALLOCATE_PRODUCER_IDS: refuse}) as (_, link):
            with pytest.raises(KafkaError) as raised:
                await ProducerIdBlocks(BrokerRequests(link, 1, lambda: 42)).next(5_000)
            assert raised.value.error_code is ErrorCode.stale_broker_epoch

    asyncio.run(scenario())

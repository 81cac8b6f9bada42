"""Hands out producer ids from blocks that the controller allocates to this broker.

An id is given to one producer ever: a block is committed to the metadata log before it gets here, and the
rest of a broker's block is never used after the broker ends. Source: KIP-730.
"""

import asyncio

from kio.schema.allocate_producer_ids.v0 import AllocateProducerIdsRequest

from sparklog.executor.control.broker_requests import BrokerRequests
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import ProducerId


class ProducerIdBlocks:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests
        self._block = iter(range(0))
        self._allocation = asyncio.Lock()

    async def next(self, timeout_ms: int) -> ProducerId:
        """Return an unused id; requests a new block when the current one is used up.

        Raises:
            KafkaError: the controller did not answer in time, or refused.
        """
        while True:
            producer_id = next(self._block, None)
            if producer_id is not None:
                return producer_id
            async with self._allocation:
                producer_id = next(self._block, None)
                if producer_id is not None:
                    return producer_id
                self._block = iter(await self._allocate(timeout_ms))

    async def _allocate(self, timeout_ms: int) -> range:
        response = await self._requests.send(AllocateProducerIdsRequest, timeout_ms)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code, "the controller allocates no producer ids to this broker")
        first = response.producer_id_start
        return range(first, first + response.producer_id_len)

"""Requests to the controller that carry the broker's id and current epoch."""

from collections.abc import Callable
from typing import Any

from sparklog.executor.control.controller_link import REQUEST_TIMEOUT_MS, ControllerLink
from sparklog.protocol.types import BrokerEpoch, BrokerId, or_minus_one


class BrokerRequests:
    def __init__(
        self, link: ControllerLink, broker_id: BrokerId, broker_epoch: Callable[[], BrokerEpoch | None]
    ) -> None:
        self._link = link
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch

    async def send(
        self, request_type: Callable[..., Any], timeout_ms: int = REQUEST_TIMEOUT_MS, **content: Any
    ) -> Any:
        """Send a request of that type and content; return the response.

        Raises:
            KafkaError: see `ControllerLink.request`.
        """
        request = request_type(
            broker_id=self._broker_id,
            broker_epoch=or_minus_one(self._broker_epoch()),
            **content,
        )
        return await self._link.request(request, timeout_ms)

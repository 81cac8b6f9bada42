"""Requests that the controller answers: forwarded by the broker, as their rows say.

A broker itself answers only that the controller could not be reached: by the row's refusal with
REQUEST_TIMED_OUT, which Kafka's clients take for "try again". The change may have been made all the same.
Where the controller refuses the broker itself, the error is UNKNOWN_SERVER_ERROR, as in Kafka.
"""

from collections.abc import Mapping

from sparklog.executor.api.services import BrokerServices
from sparklog.executor.control.forwarding import Forwarder
from sparklog.node.apis.table import FORWARDED_APIS
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.protocol.codec.apis import ApiKey


def handlers(services: BrokerServices) -> Mapping[ApiKey, Handler]:
    return dict.fromkeys(FORWARDED_APIS, AdminHandlers(services.senders.forwarder).handle)


class AdminHandlers:
    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    async def handle(self, request: Request) -> Response:
        """Forward the request as it is.

        Raises:
            KafkaError: REQUEST_TIMED_OUT: the controller has not answered. UNKNOWN_SERVER_ERROR: it does not
                take what this broker forwards.
        """
        return await self._forwarder.forward(request)

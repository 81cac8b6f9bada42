"""The handlers of the controller's listener, before an election is won and after it.

Brokers can announce themselves from the first moment on. Requests of clients that come too early wait,
instead of being repeated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Final

from sparklog.driver.controller.active_controller import ActiveController
from sparklog.driver.controller.quorum.candidacy import Candidacy
from sparklog.driver.controller.quorum.machine.candidate import AnnouncedBroker, ForeignClusterError
from sparklog.driver.controller.quorum.requests import announced_broker, announcement_response
from sparklog.node.apis.cluster_actions import cluster_actions, guarded_cluster_actions
from sparklog.node.apis.listeners import listener_apis, offered
from sparklog.node.apis.row import Side
from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.node.config import BrokerConfig
from sparklog.node.serving.requests import Api, Handler, Request, Response
from sparklog.node.serving.turns import response_of
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError

_WAITING_APIS: Final = frozenset(CLIENT_VERSIONS) - {
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
"""Client requests that can wait for a leader. Fetch and telemetry are not among them, since brokers use them
too; DescribeQuorum is used to find out why there is no majority yet.
"""

logger = logging.getLogger(__name__)


class StartedController:
    """The parts of a controller while its loop runs; to be used on the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stop_requested: asyncio.Event, candidacy: Candidacy
    ) -> None:
        self.loop = loop
        self.stop_requested = stop_requested
        self.candidacy = candidacy
        self.active_controller: ActiveController | None = None
        self.handlers: Mapping[ApiKey, Handler] = {}
        """Empty while this driver does not lead."""
        self.serves_clients = asyncio.Event()
        """Set once this driver leads and its clients need not wait for late brokers any more."""

    def broker_announced(self, request: Request) -> Response:
        """Answer AddRaftVoter, by which a broker announces itself."""
        try:
            broker: AnnouncedBroker = announced_broker(request.body)
            (self.candidacy if self.active_controller is None else self.active_controller).broker_announced(
                broker
            )
        except KafkaError as error:
            return announcement_response(error.error_code, error.message)
        except ForeignClusterError as error:
            logger.error("%s", error)
            return announcement_response(ErrorCode.inconsistent_cluster_id, str(error))
        return announcement_response(ErrorCode.none)

    def handle(self, request: Request) -> Response | Awaitable[Response]:
        """Answer any other request; a client's that comes too early waits.

        Raises:
            KafkaError: NOT_CONTROLLER: this driver does not lead yet, or no more.
        """
        if request.api_key in _WAITING_APIS and not self.serves_clients.is_set():
            return self._handle_later(request)
        handler = self.handlers.get(request.api_key)
        if handler is None:
            raise KafkaError(
                ErrorCode.not_controller,
                f"{request.connection.peer} asks for {ApiKey(request.api_key).name} of a controller that "
                "does not lead",
            )
        return handler(request)

    async def _handle_later(self, request: Request) -> Response:
        await self.serves_clients.wait()
        return await response_of(self.handle(request))


def listener_table(started: StartedController, config: BrokerConfig) -> dict[ApiKey, Api]:
    handlers: dict[ApiKey, Handler] = {
        **dict.fromkeys(offered(Side.CONTROLLER), started.handle),
        ApiKey.ADD_RAFT_VOTER: started.broker_announced,
    }
    return guarded_cluster_actions(
        listener_apis(Side.CONTROLLER, handlers), cluster_actions(Side.CONTROLLER, config)
    )

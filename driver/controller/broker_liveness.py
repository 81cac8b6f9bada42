"""Detects the end of a broker's process at once, instead of waiting for its session to run out.

A broker keeps a connection to the controller. When that connection ends, or when Spark reports the end of
the broker's task, the controller tries to connect to the broker's own listener. A refusal means that no
process holds the port any more. An accepted connection or a time-out proves nothing, and the session
decides.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.serving.requests import Peer
from sparklog.protocol.types import BrokerEpoch, BrokerId

PROBE_MS: Final = 200
"""Time for a probe: the sockets of a killed process do not all close in the same instant."""
PROBE_PAUSE_MS: Final = 10

logger = logging.getLogger(__name__)


class BrokerLiveness:
    """The brokers' connections, and the probes of suspected brokers; belongs to one event loop."""

    def __init__(
        self,
        listener_name: str,
        image: Callable[[], MetadataImage],
        on_gone: Callable[[BrokerId, BrokerEpoch], None],
    ) -> None:
        self._listener_name = listener_name
        self._image = image
        self._on_gone = on_gone
        self._connections: dict[BrokerId, Peer] = {}
        self._watched: set[Peer] = set()
        self._probes: dict[BrokerId, asyncio.Task[None]] = {}

    def seen(self, broker_id: BrokerId, connection: Peer) -> None:
        """Note that the broker has just sent a request over `connection`."""
        self._connections[broker_id] = connection
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_close(lambda: self._closed(connection))

    def suspect(self, broker_id: BrokerId) -> None:
        """Probe a broker whose end was reported."""
        registration = self._image().brokers.get(broker_id)
        if registration is None or broker_id in self._probes:
            return
        endpoint = registration.endpoint(self._listener_name) or registration.listeners[0]
        task = asyncio.get_running_loop().create_task(
            self._probe(broker_id, registration.broker_epoch, endpoint)
        )
        self._probes[broker_id] = task
        task.add_done_callback(lambda _: self._probes.pop(broker_id, None))

    async def close(self) -> None:
        self._connections.clear()
        probes = list(self._probes.values())
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)

    def _closed(self, connection: Peer) -> None:
        self._watched.discard(connection)
        for broker_id in [other for other, known in self._connections.items() if known is connection]:
            del self._connections[broker_id]
            logger.info("The connection of broker %d has ended", broker_id)
            self.suspect(broker_id)

    async def _probe(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, endpoint: Endpoint) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PROBE_MS / 1000
        while (left_s := deadline_s - loop.time()) > 0:
            if await refuses(endpoint, left_s):
                self._on_gone(broker_id, broker_epoch)
                return
            await asyncio.sleep(PROBE_PAUSE_MS / 1000)
        logger.info("Broker %d may be alive; its session decides", broker_id)


async def refuses(endpoint: Endpoint, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except ConnectionRefusedError:
        return True
    except (TimeoutError, socket.gaierror, ValueError):  # the last: no host name can be so
        return False
    except OSError as error:
        # All of several addresses of one name have refused.
        return error.errno == errno.ECONNREFUSED
    writer.close()
    return False

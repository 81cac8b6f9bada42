"""Reserve of connections for driver and brokers, which each connection has to prove to be.

A listener for the cluster alone takes no others. A listener of clients takes these beyond its bounds: clients
that use up max.connections, or the descriptors, must not keep out the brokers, which connect to the same
listener. The principal of a connection is unknown before its login. So up to `MAX_WAITING` are taken, each of
which is closed unless it has the cluster's principal within `LOGIN_S`. With one more, the oldest is closed: a
flood of connections cannot keep out a broker that logs in at once.

Belongs to one event loop.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from sparklog.node.acls.acl import Principal
from sparklog.node.security.application_secret import CLUSTER_PRINCIPAL

MAX_WAITING: Final = 100
LOGIN_S: Final = 10.0


class _Connection(Protocol):
    """The part of a connection that the reserve uses."""

    principal: Principal | None

    def refuse(self, reason: str, what: str) -> None: ...

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the connection is lost."""


class ReservedConnections:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[_Connection, asyncio.TimerHandle] = {}

    def admit(self, connection: _Connection, exhausted: str) -> None:
        """Give a connection `LOGIN_S` for a cluster principal; `exhausted` is the bound reached."""
        if len(self._waiting) >= MAX_WAITING:
            oldest = next(iter(self._waiting))
            self._waiting[oldest].cancel()
            self._look(oldest, exhausted)
        self._waiting[connection] = self._loop.call_later(LOGIN_S, self._look, connection, exhausted)
        connection.on_close(partial(self._forget, connection))

    def close(self) -> None:
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _forget(self, connection: _Connection) -> None:
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _look(self, connection: _Connection, exhausted: str) -> None:
        del self._waiting[connection]
        if connection.principal is not CLUSTER_PRINCIPAL:
            connection.refuse(exhausted, f"{exhausted} reached, and it is no broker's")

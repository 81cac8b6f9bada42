"""Connections that a listener takes for driver and brokers alone: each has to be one of them.

A listener of the inside takes no others. One of clients takes these beyond its bounds: clients that use up
max.connections, or the descriptors, must not keep out the brokers, who come to the same listener. Who
connects is not known before he has logged in. So up to `MAX_WAITING` are taken, each of which is closed
unless it is of the inside within `LOGIN_S`. One more, and the oldest is given up: whoever floods it can't
keep out who logs in at once.

Belongs to one event loop.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from sparklog.node.acls.acl import Principal
from sparklog.node.security.inside import INSIDE

MAX_WAITING: Final = 100
LOGIN_S: Final = 10.0


class _Waiting(Protocol):
    """What is needed of a connection."""

    principal: Principal | None

    def refuse(self, reason: str, what: str) -> None:
        """Close it."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once when it is lost."""


class InsideReserve:
    """Those of one listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[_Waiting, asyncio.TimerHandle] = {}

    def admit(self, connection: _Waiting, exhausted: str) -> None:
        """Have a connection show that it is of the inside; `exhausted` says what leaves others no room."""
        if len(self._waiting) >= MAX_WAITING:
            oldest = next(iter(self._waiting))
            self._waiting[oldest].cancel()
            self._look(oldest, exhausted)
        self._waiting[connection] = self._loop.call_later(LOGIN_S, self._look, connection, exhausted)
        connection.on_close(partial(self._forget, connection))

    def close(self) -> None:
        """Look after none of them any more."""
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _forget(self, connection: _Waiting) -> None:
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _look(self, connection: _Waiting, exhausted: str) -> None:
        del self._waiting[connection]
        if connection.principal is not INSIDE:
            connection.refuse(exhausted, f"{exhausted} reached, and it is no broker's")

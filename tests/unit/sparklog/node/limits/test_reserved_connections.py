"""Who is beyond a listener's bounds for a while."""

import asyncio
import gc
import weakref
from collections.abc import Callable

from sparklog.node.acls.acl import Principal
from sparklog.node.limits.reserved_connections import ReservedConnections
from tests.unit.sparklog.node.serving.serving import run


class Stranger:
    """A connection that says nothing."""

    principal: Principal | None = None

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def refuse(self, reason: str, what: str) -> None:
        raise AssertionError(what)

    def on_close(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def leave(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


def test_connection_that_is_closed_is_not_kept_until_its_time_is_over() -> None:
    """With its buffers, of each of a hundred: whoever comes and goes would be held for ten seconds."""

    async def scenario() -> None:
        reserve = ReservedConnections(asyncio.get_running_loop())
        stranger = Stranger()
        kept = weakref.ref(stranger)
        reserve.admit(stranger, "max.connections=0")
        stranger.leave()
        del stranger
        gc.collect()
        assert kept() is None
        reserve.close()

    run(scenario())

"""An object store for callers that block: its event loop runs in a thread of its own.

Opening a store costs tens of milliseconds, so a Spark worker process, which runs many tasks, keeps those that
it has opened. A forked process opens its own: threads do not survive a fork.
"""

import asyncio
import os
from collections.abc import Coroutine
from threading import Thread
from typing import Any, Final, TypeVar

from sparklog.node.remote_log.object_store import StoreUnavailableError
from sparklog.node.remote_log.opened_store import open_store
from sparklog.node.remote_log.store_location import StoreLocation

Result = TypeVar("Result")

_MOST_STORES: Final = 4
ANSWER_LIMIT_S: Final = 60.0
"""Of a read with all its repetitions: a client that hangs must not hold a task for ever."""


async def within_limit(
    work: Coroutine[Any, Any, Result], uri: str, *, limit_s: float = ANSWER_LIMIT_S
) -> Result:
    """Await a read of a store.

    Raises:
        StoreUnavailableError: it has not ended within `limit_s`.
    """
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError:
        raise StoreUnavailableError(f"{uri}: no answer within {limit_s:g} s") from None


class StoreThread:
    def __init__(self, location: StoreLocation) -> None:
        """Open a store; nothing is sent.

        Raises:
            RemoteUriError: the URI or an option is not usable.
        """
        self.store: Final = open_store(location.uri, dict(location.options))
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = Thread(target=self._loop.run_forever, name="sparklog-store", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop; return its result, or raise its error."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def read(self, work: Coroutine[Any, Any, Result], *, limit_s: float = ANSWER_LIMIT_S) -> Result:
        """Run a read of the store; return its result, or raise its error.

        Raises:
            StoreUnavailableError: it has not ended within `limit_s`.
        """
        return self.run(within_limit(work, self.store.uri, limit_s=limit_s))

    def close(self) -> None:
        self.run(self.store.close())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_opened: Final[dict[tuple[int, StoreLocation], StoreThread]] = {}


def opened(location: StoreLocation) -> StoreThread:
    """Return this process's store at a location.

    Raises:
        RemoteUriError: the URI or an option is not usable.
    """
    key = os.getpid(), location
    found = _opened.pop(key, None) or StoreThread(location)
    while len(_opened) >= _MOST_STORES:
        _close(next(iter(_opened)))
    _opened[key] = found
    return found


def close_stores() -> None:
    """Close all stores of this process, for one that outlives its queries."""
    for key in list(_opened):
        _close(key)


def _close(key: tuple[int, StoreLocation]) -> None:
    store = _opened.pop(key)
    if key[0] == os.getpid():
        store.close()

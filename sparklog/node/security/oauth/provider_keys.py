"""The keys of an identity provider, as last fetched from a file or over HTTP.

Fetching blocks, so a thread does it; looking for a key never does. A failed fetch keeps the old keys: the
provider may be down while tokens that it has signed are valid.

Order for the caller, all on one event loop: `run` until cancelled; `find` at any time. `tried` is set after
the first fetch or its failure; before that no token is accepted.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sparklog.node.clocks import monotonic_ms
from sparklog.node.security.oauth.http import ProviderError
from sparklog.node.security.oauth.machine.refresh_times import RefreshTimes
from sparklog.node.security.oauth.verification_keys import VerificationKey, VerificationKeys

logger = logging.getLogger(__name__)

_NONE: Final = VerificationKeys(())


class ProviderKeys:
    def __init__(self, where: str, fetch: Callable[[], bytes], times: RefreshTimes) -> None:
        """`fetch` returns the key set of `where`, or raises a ProviderError or OSError."""
        self.tried = asyncio.Event()
        self._where = where
        self._fetch = fetch
        self._times = times
        self._wanted = asyncio.Event()
        self._keys = _NONE
        self._failure: str | None = None

    def find(self, key_id: object, algorithm: object) -> VerificationKey | None:
        """Return a key; None if there is none, in which case the keys are fetched for later calls."""
        key = self._keys.find(key_id, algorithm)
        if key is None and self._times.missing(monotonic_ms()):
            self._wanted.set()
        return key

    async def run(self) -> None:
        """Fetch the keys whenever due; ends by cancellation."""
        loop = asyncio.get_running_loop()
        executor = ThreadPoolExecutor(1, "provider keys")
        try:
            while True:
                now_ms = monotonic_ms()
                if now_ms >= self._times.due_ms:
                    self._times.begun(now_ms)
                    self._note(await loop.run_in_executor(executor, self._fetched))
                    self.tried.set()
                    continue
                self._wanted.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout((self._times.due_ms - now_ms) / 1000):
                        await self._wanted.wait()
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _fetched(self) -> VerificationKeys | str:
        """Return the keys, or the reason of the failure. Blocks."""
        try:
            return VerificationKeys.parse(self._fetch())
        except (ProviderError, OSError, ValueError) as error:
            return str(error)
        except Exception as error:  # any other content: the task goes on fetching
            logger.exception("cannot parse the keys of %s", self._where)
            return repr(error)

    def _note(self, found: VerificationKeys | str) -> None:
        now_ms = monotonic_ms()
        if isinstance(found, str):
            self._times.failed(now_ms)
            if found != self._failure:
                logger.error(
                    "%s: fetching keys failed, the %d old ones stay in use: %s",
                    self._where,
                    len(self._keys.keys),
                    found,
                )
            self._failure = found
            return
        self._times.fetched(now_ms)
        if self._failure is not None or found.keys != self._keys.keys:
            names = ", ".join(str(key.key_id)[:100] for key in found.keys[:10])
            logger.info("%s has %d keys: %s", self._where, len(found.keys), names)
        self._failure = None
        self._keys = found

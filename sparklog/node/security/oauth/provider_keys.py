"""The keys of an identity provider, as last fetched from a file or over HTTP.

Fetching blocks, so a thread does it; looking for a key never does. A failed fetch keeps the old keys: the
provider may be down while tokens that it has signed are valid. (PyJWT's `PyJWKClient` drops them then, and
knows neither keys without a name nor those of RSA for other algorithms than RS256.)

Keys are fetched every `refresh_ms`; after a failure sooner, with growing pauses; and when a token names an
unknown key, since providers publish new keys before they sign with them. Such a token may be forged, so that
happens at most once in `MIN_EXPEDITED_MS`.

Order for the caller, all on one event loop: `run` until cancelled; `find` at any time. `tried` is set after
the first fetch or its failure; before that no token is accepted.

Source: Kafka's RefreshingHttpsJwks, which remembers the names of unknown keys, and after a few failures in a
row waits for the next regular time.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.node.security.oauth.verification_keys import VerificationKey, VerificationKeys

MIN_EXPEDITED_MS: Final = 10_000

logger = logging.getLogger(__name__)


class ProviderKeys:
    def __init__(
        self,
        where: str,
        fetch: Callable[[], bytes],
        refresh_ms: int,
        retry_backoff: ExponentialBackoff,
        min_expedited_ms: int = MIN_EXPEDITED_MS,
    ) -> None:
        """`fetch` returns the key set of `where`, or raises an error."""
        self.tried = asyncio.Event()
        self._where = where
        self._fetch = fetch
        self._refresh_ms = refresh_ms
        self._retry_backoff = retry_backoff
        self._min_expedited_ms = min_expedited_ms
        self._wanted = asyncio.Event()
        self._keys = VerificationKeys(())
        self._failure: str | None = None

    def find(self, key_id: object, algorithm: object) -> VerificationKey | None:
        """Return a key; None if there is none, in which case the keys are fetched for later calls."""
        key = self._keys.find(key_id, algorithm)
        if key is None:
            self._wanted.set()
        return key

    async def run(self) -> None:
        """Fetch the keys whenever due; ends by cancellation."""
        failures = 0
        while True:
            self._wanted.clear()
            try:
                self._note(await asyncio.to_thread(lambda: VerificationKeys.parse(self._fetch())))
            except Exception as error:  # of any content: the task goes on fetching
                self._note_failure(str(error) or repr(error))
                pause_ms, failures = self._retry_backoff.pause_ms(failures), failures + 1
            else:
                pause_ms, failures = self._refresh_ms, 0
            self.tried.set()
            await asyncio.sleep(min(pause_ms, self._min_expedited_ms) / 1_000)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0, pause_ms - self._min_expedited_ms) / 1_000):
                    await self._wanted.wait()

    def _note_failure(self, failure: str) -> None:
        if failure != self._failure:
            count = len(self._keys.keys)
            logger.error(
                "%s: fetching keys failed, the %d old ones stay in use: %s", self._where, count, failure
            )
        self._failure = failure

    def _note(self, found: VerificationKeys) -> None:
        if self._failure is not None or found.keys != self._keys.keys:
            names = ", ".join(str(key.key_id)[:100] for key in found.keys[:10])
            logger.info("%s has %d keys: %s", self._where, len(found.keys), names)
        self._failure = None
        self._keys = found

"""Look-ups in the object store: one at a time for each object or row group, however many wait for it.

Look-ups begin in the order in which they came, each as soon as its `may_begin` lets it (memory, quota). One
that fails for a reason that may pass is tried again for a moment. Then its failure counts for `REFUSED_MS`,
without another try: a store in trouble gets few requests, and clients get an error that they retry.

Belongs to the event loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic
from typing import Final, NamedTuple

from sparklog.executor.remote_reads.decoding.failure import DecodingFailedError
from sparklog.node.limits.rate_limited_log import ANY_PEER, RateLimitedLog
from sparklog.node.remote_log.object_store import (
    CorruptSegmentError,
    ObjectMissingError,
    StoreError,
    StoreRefusedError,
)
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

REFUSED_MS: Final = 500
MAX_WAITING: Final = 100
"""Look-ups that may wait for their beginning; Kafka's remote.log.reader.max.pending.tasks."""
MAX_RUNNING: Final = 10
"""Look-ups under way; Kafka's remote.log.reader.threads."""
_FIRST_BACK_OFF_S: Final = 0.05
_STORE_TIMEOUT_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.1


class Load:
    """A look-up that is under way, or waits for its beginning."""

    __slots__ = ("_waiting", "ended")

    def __init__(self) -> None:
        self._waiting: dict[Callable[[], None], None] = {}
        self.ended = False

    def wait(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the look-up has ended, in success or not."""
        self._waiting[callback] = None

    def leave(self, callback: Callable[[], None]) -> None:
        self._waiting.pop(callback, None)

    def end(self) -> None:
        self.ended = True
        waiting, self._waiting = self._waiting, {}
        for callback in waiting:
            callback()


class _Waiting(NamedTuple):
    key: Hashable
    load: Load
    may_begin: Callable[[], bool]
    look_up: Callable[[], Awaitable[None]]


class _Failure(NamedTuple):
    error_code: ErrorCode
    message: str
    until_ms: int


class Loads:
    def __init__(self, now_ms: Callable[[], int], *, retried_within_ms: int) -> None:
        self._now_ms = now_ms
        self._retried_within_s = retried_within_ms / 1000
        self._loads: dict[Hashable, Load] = {}
        self._waiting: deque[_Waiting] = deque()
        self._failures: dict[Hashable, _Failure] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._log = RateLimitedLog(logger, asyncio.get_running_loop())

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        return len(self._tasks)

    def get(self, key: Hashable) -> Load | None:
        """Return the look-up of `key`, if it is under way or waits.

        Raises:
            KafkaError: it failed lately.
        """
        failure = self._failures.get(key)
        if failure is not None:
            if self._now_ms() < failure.until_ms:
                raise KafkaError(failure.error_code, failure.message)
            del self._failures[key]
        return self._loads.get(key)

    def begin(
        self,
        key: Hashable,
        look_up: Callable[[], Awaitable[None]],
        may_begin: Callable[[], bool] = lambda: True,
    ) -> Load | None:
        """Begin a look-up, now or when `may_begin` says yes; None if too many wait already."""
        if self._is_closed or len(self._waiting) >= MAX_WAITING:
            return None
        load = self._loads[key] = Load()
        self._waiting.append(_Waiting(key, load, may_begin, look_up))
        self.go_on()
        return load

    async def until_ended(self, load: Load | None) -> None:
        """Wait for a look-up's end; for None, which `begin` returned, until another one may be begun.

        Raises:
            KafkaError: no look-up begins any more.
        """
        if self._is_closed:
            raise KafkaError(ErrorCode.kafka_storage_error, "the broker shuts down")
        if load is None:
            await asyncio.sleep(_LOOK_AGAIN_S)
            return
        ended = asyncio.Event()
        if not load.ended:
            load.wait(ended.set)
            try:
                await ended.wait()
            finally:
                load.leave(ended.set)

    def go_on(self) -> None:
        """Begin look-ups that wait, as far as they may."""
        while self._waiting and len(self._tasks) < MAX_RUNNING and not self._is_closed:
            first = self._waiting[0]
            if not first.may_begin():
                break
            self._waiting.popleft()
            task = asyncio.get_running_loop().create_task(self._run(first))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        if self._waiting and self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._look_again)

    async def close(self) -> None:
        """Give up all look-ups; their readers are answered without them."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._waiting.clear()
        loads, self._loads = self._loads, {}
        for load in loads.values():
            load.end()
        self._log.close()

    def _look_again(self) -> None:
        self._timer = None
        self.go_on()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.go_on()

    async def _run(self, waiting: _Waiting) -> None:
        try:
            await self._try(waiting.look_up)
        except KafkaError as error:
            self._fail(waiting.key, error)
        except Exception as error:  # a mistake must not leave fetches waiting for it
            logger.exception("a read of %s failed", waiting.key)
            self._fail(waiting.key, KafkaError(ErrorCode.unknown_server_error, str(error)))
        finally:
            self._loads.pop(waiting.key, None)
            waiting.load.end()

    async def _try(self, look_up: Callable[[], Awaitable[None]]) -> None:
        until_s = monotonic() + self._retried_within_s
        back_off_s = _FIRST_BACK_OFF_S
        while True:
            try:
                async with asyncio.timeout(_STORE_TIMEOUT_S):
                    await look_up()
            except (ObjectMissingError, StoreRefusedError) as error:
                raise _storage_error(error) from error
            except CorruptSegmentError as error:
                # Damage of the object, or on its way here.
                if monotonic() + back_off_s > until_s:
                    raise KafkaError(ErrorCode.corrupt_message, str(error)) from error
            except DecodingFailedError as error:
                raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
            except (StoreError, OSError, TimeoutError) as error:
                if monotonic() + back_off_s > until_s:
                    raise _storage_error(error) from error
            else:
                return
            await asyncio.sleep(back_off_s)
            back_off_s *= 2

    def _fail(self, key: Hashable, error: KafkaError) -> None:
        reason = error.error_code.name
        self._log.write(logging.WARNING, ANY_PEER, reason, f"a read of {key} failed: {error}")
        now_ms = self._now_ms()
        self._failures = {
            failed: failure for failed, failure in self._failures.items() if now_ms < failure.until_ms
        }
        self._failures[key] = _Failure(error.error_code, error.message, now_ms + REFUSED_MS)


def _storage_error(error: Exception) -> KafkaError:
    reason = str(error) or type(error).__name__
    return KafkaError(ErrorCode.kafka_storage_error, f"the object store did not answer: {reason}")

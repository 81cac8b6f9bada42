"""Object stores for tests: one in memory, and one that has the faults of a network and a cloud, by a seed.

    store = FaultyStore(MemoryStore(), StoreFaults(failure_rate=0.1), seed=7)

`FaultyStore` wraps any store. `sleep` is the clock's: a simulation passes its own.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from sparklog.node.remote_log.object_store import (
    ListedObject,
    ObjectExistsError,
    ObjectMissingError,
    ObjectStore,
    StaleObjectError,
    StoredObject,
    StoreRefusedError,
    StoreUnavailableError,
    Version,
)

T = TypeVar("T")


class MemoryStore:
    """An object store without faults, in memory; `modified_ms` counts the writes."""

    def __init__(self) -> None:
        self.objects: Final[dict[str, StoredObject]] = {}
        self._modified_ms: Final[dict[str, int]] = {}
        self._writes = 0

    @property
    def uri(self) -> str:
        return "memory://"

    async def create(self, name: str, data: bytes | memoryview | Path) -> Version:
        if name in self.objects:
            raise ObjectExistsError(f"{self.uri}: {name} exists")
        return self._put(name, data.read_bytes() if isinstance(data, Path) else bytes(data))

    async def replace(self, name: str, data: bytes, version: Version) -> Version:
        found = self.objects.get(name)
        if found is None or found.version != version:
            raise StaleObjectError(f"{self.uri}: {name} is not in the state {version}")
        return self._put(name, data)

    def _put(self, name: str, data: bytes) -> Version:
        self._writes += 1
        self.objects[name] = StoredObject(data, str(self._writes))
        self._modified_ms[name] = self._writes
        return str(self._writes)

    async def get(self, name: str) -> StoredObject:
        if name not in self.objects:
            raise ObjectMissingError(f"{self.uri}: there is no {name}")
        return self.objects[name]

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        data = (await self.get(name)).data[start:end]
        if len(data) != end - start:
            raise StoreUnavailableError(f"{self.uri}: {name} has {len(data)} bytes from {start} on")
        return data

    async def delete(self, name: str) -> None:
        self.objects.pop(name, None)

    async def list(self, prefix: str) -> AsyncIterator[ListedObject]:
        for name, found in sorted(self.objects.items()):
            if not prefix or name.startswith(f"{prefix.rstrip('/')}/"):
                yield ListedObject(name, len(found.data), self._modified_ms[name])

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StoreFaults:
    """Probabilities of a call's faults, each between 0 and 1."""

    failure_rate: float = 0
    """The call fails before anything has happened: a 503."""
    lost_reply_rate: float = 0
    """The call times out although the store did it."""
    latency_s: tuple[float, float] = (0, 0)
    """Between which limits a call takes, before the store does anything and again before its reply."""
    unlisted_rate: float = 0
    """A list lacks an object that is among the newest `newest`."""
    newest: int = 8


class FaultyStore:
    def __init__(
        self,
        store: ObjectStore,
        faults: StoreFaults,
        seed: int,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.faults = faults
        """May be changed at any time; `StoreFaults()` heals the store."""
        self.is_gone = False
        """The bucket went away: every call fails as unavailable."""
        self.is_refused = False
        """Permissions went away: every call fails as refused."""
        self.calls: Final[list[tuple[str, str]]] = []
        """(method, name) of every call, also of those that failed."""
        self._store: Final = store
        self._random: Final = random.Random(seed)
        self._sleep: Final = sleep

    @property
    def uri(self) -> str:
        return f"faulty+{self._store.uri}"

    async def create(self, name: str, data: bytes | memoryview | Path) -> Version:
        return await self._faulty("create", name, lambda: self._store.create(name, data))

    async def replace(self, name: str, data: bytes, version: Version) -> Version:
        return await self._faulty("replace", name, lambda: self._store.replace(name, data, version))

    async def get(self, name: str) -> StoredObject:
        return await self._faulty("get", name, lambda: self._store.get(name))

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        return await self._faulty("get_range", name, lambda: self._store.get_range(name, start, end))

    async def delete(self, name: str) -> None:
        await self._faulty("delete", name, lambda: self._store.delete(name))

    async def list(self, prefix: str) -> AsyncIterator[ListedObject]:
        async def listed() -> list[ListedObject]:
            return [found async for found in self._store.list(prefix)]

        found = await self._faulty("list", prefix, listed)
        newest = sorted(found, key=lambda each: (each.modified_ms, each.name))[-self.faults.newest :]
        late = {each.name for each in newest if self._random.random() < self.faults.unlisted_rate}
        for each in found:
            if each.name not in late:
                yield each

    async def close(self) -> None:
        await self._store.close()

    async def _faulty(self, method: str, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append((method, name))
        await self._delay()
        where = f"{self.uri}: cannot {method} {name}"
        if self.is_refused:
            raise StoreRefusedError(f"{where}: 403 Forbidden")
        if self.is_gone or self._random.random() < self.faults.failure_rate:
            raise StoreUnavailableError(f"{where}: 503 Slow Down")
        result = await call()
        await self._delay()
        if self._random.random() < self.faults.lost_reply_rate:
            raise StoreUnavailableError(f"{where}: the request timed out")
        return result

    async def _delay(self) -> None:
        shortest, longest = self.faults.latency_s
        if longest:
            await self._sleep(self._random.uniform(shortest, longest))

"""Which row groups stay in memory, and which may be loaded.

The bytes of cached groups, of groups being loaded and of groups that were evicted while they are still being
sent are at most the capacity. One group alone may be larger, or its records could never be read.

Rules kept, when room is needed for a load:
- A group that a reader has read to its end goes first, the least recently used of them before others: a
  sequential reader does not come back.
- A group with unread records is kept while its reader comes back within `IDLE_MS`. Otherwise more sequential
  readers than the cache has room for would load each group once a fetch and not once. Their loads wait.
- A read-ahead evicts nothing but groups that were read to their end.

Pure.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

IDLE_MS: Final = 1_000

Key = TypeVar("Key", bound=Hashable)
Group = TypeVar("Group")


class _Cached(Generic[Group]):
    __slots__ = ("group", "is_read", "read_ms", "size_bytes")

    def __init__(self, group: Group, size_bytes: int, now_ms: int) -> None:
        self.group = group
        self.size_bytes = size_bytes
        self.read_ms = now_ms
        self.is_read = False
        """Whether a reader has got to its end."""


class RowGroupCache(Generic[Key, Group]):
    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes: Final = capacity_bytes
        self._cached: dict[Key, _Cached[Group]] = {}
        """The least recently read first."""
        self._reserved: dict[Key, int] = {}
        """The expected sizes of the groups being loaded."""
        self.cached_bytes = 0
        self.reserved_bytes = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._cached

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, key: Key, now_ms: int) -> Group | None:
        """Return a cached group, from now on the latest used; None if there is none."""
        found = self._cached.pop(key, None)
        if found is None:
            return None
        self._cached[key] = found
        found.read_ms = now_ms
        return found.group

    def read_to_end(self, key: Key) -> None:
        """Note that a reader has got the last records of a group."""
        found = self._cached.get(key)
        if found is not None:
            found.is_read = True

    def reserve(
        self, key: Key, size_bytes: int, now_ms: int, *, sending_bytes: int, is_read_ahead: bool = False
    ) -> bool:
        """Make room for a group; return whether it may be loaded, after which `put` or `abandon` follows.

        `sending_bytes` are those of evicted groups that are still being sent.
        """
        lacking = self._lacking(size_bytes, sending_bytes)
        evicted = []
        for cached_key in self._evictable(now_ms, only_read=is_read_ahead):
            if lacking <= 0:
                break
            evicted.append(cached_key)
            lacking -= self._cached[cached_key].size_bytes
        if lacking > 0 and (is_read_ahead or self.reserved_bytes or sending_bytes):
            return False
        if lacking > 0 and len(evicted) < len(self._cached):
            return False
        for cached_key in evicted:
            self._evict(cached_key)
        self._reserved[key] = size_bytes
        self.reserved_bytes += size_bytes
        return True

    def put(self, key: Key, group: Group, size_bytes: int, now_ms: int) -> None:
        """Keep a group whose load has ended; its size may differ from the expected one."""
        self.abandon(key)
        self._cached[key] = _Cached(group, size_bytes, now_ms)
        self.cached_bytes += size_bytes

    def abandon(self, key: Key) -> None:
        """Give back the room of a load that has failed."""
        self.reserved_bytes -= self._reserved.pop(key, 0)

    def clear(self) -> None:
        self._cached.clear()
        self.cached_bytes = 0

    def _lacking(self, size_bytes: int, sending_bytes: int) -> int:
        used_bytes = self.cached_bytes + self.reserved_bytes + sending_bytes
        return used_bytes + size_bytes - self.capacity_bytes

    def _evictable(self, now_ms: int, *, only_read: bool) -> list[Key]:
        read = [key for key, cached in self._cached.items() if cached.is_read]
        if only_read:
            return read
        return read + [
            key
            for key, cached in self._cached.items()
            if not cached.is_read and now_ms - cached.read_ms >= IDLE_MS
        ]

    def _evict(self, key: Key) -> None:
        self.cached_bytes -= self._cached.pop(key).size_bytes

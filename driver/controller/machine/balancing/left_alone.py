"""The partitions that are not moved for a while, because an administrator has decided about them."""

from collections import OrderedDict
from typing import Final

from sparklog.protocol.types import TopicIdPartition

LEFT_ALONE_MS: Final = 3_600_000
_EXPIRED_AT_ONCE: Final = 1_000


class LeftAlone:
    """Partitions in the order in which their times end, since all are left alone equally long."""

    def __init__(self) -> None:
        self._until_ms: OrderedDict[TopicIdPartition, int] = OrderedDict()

    def __contains__(self, key: TopicIdPartition) -> bool:
        return key in self._until_ms

    def add(self, key: TopicIdPartition, now_ms: int) -> None:
        self._until_ms.pop(key, None)
        self._until_ms[key] = now_ms + LEFT_ALONE_MS

    def discard(self, key: TopicIdPartition) -> None:
        self._until_ms.pop(key, None)

    def expire(self, now_ms: int) -> bool:
        """Remove partitions whose time has ended, few enough for one step; return whether there were any."""
        for count in range(_EXPIRED_AT_ONCE):
            key = next(iter(self._until_ms), None)
            if key is None or now_ms < self._until_ms[key]:
                return count > 0
            del self._until_ms[key]
        return True

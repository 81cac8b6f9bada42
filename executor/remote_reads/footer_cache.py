"""The footers of remote segments that were read lately."""

from typing import Final

from sparklog.node.remote_log.segments.segment_footer import SegmentFooter


class FooterCache:
    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes: Final = capacity_bytes
        self._footers: dict[str, SegmentFooter] = {}
        """The least recently used first."""
        self._size_bytes = 0

    def get(self, segment: str) -> SegmentFooter | None:
        footer = self._footers.pop(segment, None)
        if footer is not None:
            self._footers[segment] = footer
        return footer

    def put(self, footer: SegmentFooter) -> None:
        """Keep a footer that is not here yet."""
        self._footers[footer.name] = footer
        self._size_bytes += footer.memory_bytes
        while self._size_bytes > self._capacity_bytes and len(self._footers) > 1:
            oldest = next(iter(self._footers))
            self._size_bytes -= self._footers.pop(oldest).memory_bytes

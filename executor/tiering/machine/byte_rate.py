"""A bound on bytes a second, for work that comes in large pieces.

A piece is not cut: it is delayed until the pieces before it are paid for. So the rate holds on average, from
the first piece on, and a piece larger than a second's bytes goes out whole.

Source: Kafka's RLMQuotaManager, which also lets a segment begin while the quota is not yet exceeded.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class ByteRate:
    bytes_per_second: int | None
    """None delays nothing."""
    _paid_ms: float = field(default=0.0, init=False)
    """The time from which on another piece may begin."""

    def begin(self, size_bytes: int, now_ms: int) -> int:
        """Note that a piece is about to go out; return for how many milliseconds it must wait."""
        if self.bytes_per_second is None:
            return 0
        begins_ms = max(float(now_ms), self._paid_ms)
        self._paid_ms = begins_ms + size_bytes * 1000 / self.bytes_per_second
        return round(begins_ms - now_ms)

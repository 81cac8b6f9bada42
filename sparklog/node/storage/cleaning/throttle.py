"""Limit on a cleaning's bytes a second (log.cleaner.io.max.bytes.per.second)."""

from time import monotonic, sleep


class Throttle:
    def __init__(self, max_bytes_a_second: float | None) -> None:
        self._max_bytes_a_second = max_bytes_a_second
        self._free_at_s = 0.0
        """Time at which the bytes taken so far are paid for."""

    def take(self, size_bytes: int) -> None:
        """Wait until all bytes taken before are paid for, then take more."""
        if self._max_bytes_a_second is None:
            return
        now_s = monotonic()
        if self._free_at_s > now_s:
            sleep(self._free_at_s - now_s)
            now_s = self._free_at_s
        self._free_at_s = now_s + size_bytes / self._max_bytes_a_second

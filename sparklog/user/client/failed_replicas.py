"""Followers that have just failed a reader, which the readers of this process avoid for a while.

A retried task and the next ones would else choose the same follower, and wait for it or read the same damaged
copy. Leaders are always asked.
"""

import time
from collections.abc import Callable
from typing import Final, TypeAlias

Address: TypeAlias = tuple[str, int]

AVOIDED_FOR_S: Final = 60.0


class FailedReplicas:
    """Addresses of brokers, each for `AVOIDED_FOR_S` after its last failure."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until_s: dict[Address, float] = {}

    def add(self, address: Address | None) -> None:
        """Avoid a broker for a while; nothing is noted without an address."""
        if address is not None:
            self._until_s[address] = self._now_s() + AVOIDED_FOR_S

    def __contains__(self, address: Address | None) -> bool:
        return address is not None and self._until_s.get(address, 0.0) > self._now_s()


FAILED_REPLICAS: Final = FailedReplicas()
"""Those of this process."""

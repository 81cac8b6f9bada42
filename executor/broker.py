"""One broker: opens its directories, registers, follows the metadata log, serves, and leaves in order."""

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from sparklog.types import BrokerId


class BrokerState(Enum):
    """Where a broker is in its life; the names are Kafka's."""

    NOT_RUNNING = "not running"
    STARTING = "starting"
    RECOVERY = "catching up with the metadata log"
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "handing over its leaderships"
    SHUTTING_DOWN = "shutting down"


class Broker:
    """A Kafka broker on the running asyncio loop."""

    def __init__(
        self,
        *,
        cluster_id: str,
        node_id: BrokerId,
        rack: str | None,
        controller: tuple[str, int],
        config: Any,
        directories: Sequence[Path],
        on_state: Callable[[BrokerState], None] = lambda state: None,
    ) -> None: ...

    async def run(self) -> None:
        """Start, serve until told to leave, and leave; returns after a clean shutdown.

        Raises:
            DirectoryLockedError, ForeignDirectoryError: (storage) a directory is another's.
            BrokerRefusedError: the controller will not have this broker, whatever it retries.
        """

    def stop(self, reason: str) -> None:
        """Begin a controlled shutdown; safe from any thread and from a signal handler; idempotent."""

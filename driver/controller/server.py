"""The controller's thread, listener and metadata log (skeleton)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparklog.types import BrokerId

if TYPE_CHECKING:
    from sparklog.config import BrokerConfig
    from sparklog.metadata.image import MetadataImage

__all__ = ["ControllerServer"]


class ControllerServer:
    """The cluster's controller in a thread of its own.

    All methods may be called from any thread.
    """

    def __init__(
        self, cluster_id: str, config: BrokerConfig, directory: Path, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Open the metadata log, listen; return when requests are answered."""
        raise NotImplementedError

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the listener."""
        raise NotImplementedError

    @property
    def image(self) -> MetadataImage:
        """The newest committed state of the cluster."""
        raise NotImplementedError

    def wait_until_unfenced(self, broker_count: int, timeout_s: float) -> None:
        """Return when at least `broker_count` brokers are unfenced; `TimeoutError` names who is missing."""
        raise NotImplementedError

    def report_broker_lost(self, broker_id: BrokerId) -> None:
        """Spark says the broker's task or executor ended: probe its listener, fence it if refused."""
        raise NotImplementedError

    def move_leaders_away(self, broker_id: BrokerId) -> None:
        """Start a controlled shutdown of a broker whose executor is being decommissioned."""
        raise NotImplementedError

    def shut_down_brokers(self) -> None:
        """From now on every heartbeat is answered with should_shut_down."""
        raise NotImplementedError

    def stop(self) -> None:
        """Close listener and log, end the thread. Safe to call twice."""
        raise NotImplementedError

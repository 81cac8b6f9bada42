"""One `log.dirs` entry: its lock, its identity, its checkpoints and the logs under it.

Order for callers: `LogDirectory.open` (takes the lock), `format` if `meta` is None, `load_all`, then
create and delete logs and write checkpoints; at the end close the logs, `write_clean_shutdown`, `close`.
All of it blocks and belongs off an event loop.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from uuid import UUID

from sparklog.storage.log import Log
from sparklog.storage.log_config import LogConfig
from sparklog.storage.meta_properties import MetaProperties
from sparklog.types import BrokerEpoch, Offset, TopicPartition


class DirectoryLockedError(Exception):
    """Another live process holds the data directory."""


class LogDirectory:
    """A data directory under this process's exclusive lock."""

    path: Path
    meta: MetaProperties | None
    """None: not formatted yet."""
    clean_shutdown: bool
    """The previous owner left by a clean shutdown."""
    previous_broker_epoch: BrokerEpoch | None
    """From the clean-shutdown marker (KIP-966); None after a crash."""

    @classmethod
    def open(cls, path: Path) -> "LogDirectory":
        """Create `path` if it is missing, lock it and read its identity.

        Raises:
            DirectoryLockedError: another process (or this one) holds it.
            KafkaError: KAFKA_STORAGE_ERROR: not writable, or a malformed meta.properties.
        """
        raise NotImplementedError

    def format(self, meta: MetaProperties) -> None:
        """Give an unformatted directory its identity (meta.properties, fsynced)."""
        raise NotImplementedError

    def load_all(self, config_for: Callable[[str], LogConfig], now_ms: int) -> dict[TopicPartition, Log]:
        """Open every log below, recovering what an unclean stop left. `config_for` is asked by topic name.

        Removes the clean-shutdown marker and half-deleted `-delete` directories; leaves `-stray` ones.
        """
        raise NotImplementedError

    def create_log(
        self, topic: str, partition: int, topic_id: UUID | None, config: LogConfig, now_ms: int
    ) -> Log:
        """Create (or open, when the directory exists) the log of a partition."""
        raise NotImplementedError

    def delete_log(self, log: Log, now_ms: int) -> None:
        """Rename the log's directory with `-delete` and remove it after `file.delete.delay.ms`."""
        raise NotImplementedError

    def mark_stray(self, log: Log) -> Path:
        """Close the log and rename its directory with `-stray`: it is not this broker's, but is kept."""
        raise NotImplementedError

    def remove_directories_due(self, now_ms: int) -> int:
        """Remove `-delete` directories whose delay is over; return how many."""
        raise NotImplementedError

    def write_checkpoints(
        self, logs: Iterable[Log], high_watermarks: Mapping[TopicPartition, Offset] | None = None
    ) -> None:
        """Write the recovery-point and log-start-offset checkpoints of `logs`, and the high watermarks."""
        raise NotImplementedError

    def read_high_watermarks(self) -> dict[TopicPartition, Offset]:
        """Return the last checkpointed high watermarks."""
        raise NotImplementedError

    def write_clean_shutdown(self, broker_epoch: BrokerEpoch | None) -> None:
        """Say that every log was closed properly. Call it last."""
        raise NotImplementedError

    @property
    def free_bytes(self) -> int:
        """Usable bytes of the volume."""
        raise NotImplementedError

    @property
    def total_bytes(self) -> int:
        """Size of the volume in bytes."""
        raise NotImplementedError

    def close(self) -> None:
        """Give up the lock. Logs must be closed before."""
        raise NotImplementedError

"""One `log.dirs` entry: its lock, its identity, its checkpoints and the logs under it.

Order for callers: `LogDirectory.open` (takes the lock), `format` if `meta` is None, `load_all`, then create
and delete logs and write checkpoints; at the end close the logs, `write_clean_shutdown`, `close`. All of it
blocks and belongs off an event loop.

Rules kept: an open file holds the lock (`fcntl`), so the lock ends with the process and no other process can
use the directory before. A directory whose disk has failed once (`fail`) is not used again by this process:
nothing is written there, and no clean shutdown is recorded.
"""

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from sparklog.node.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from sparklog.node.storage.directory.directory_checkpoints import DirectoryCheckpoints
from sparklog.node.storage.directory.file_system import file_system_id
from sparklog.node.storage.directory.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from sparklog.node.storage.directory.running_marker import (
    RUNNING_MARKER,
    RunningMarker,
    boot_id,
    read_marker,
    write_marker,
)
from sparklog.node.storage.files import (
    FUTURE_SUFFIX,
    directory_name,
    is_disk_error,
    is_future_name,
    partition_of,
    replace_file,
    storage_errors,
    sync_directory,
    system_error,
)
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.node.storage.private_directories import make_private_directory
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import (
    CLUSTER_METADATA_TOPIC,
    BrokerEpoch,
    TimestampMs,
    TopicPartition,
    or_minus_one,
)

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN_MARKER: Final = ".kafka_cleanshutdown"
LOCK_FILE: Final = ".lock"
DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"


class DirectoryLockedError(Exception):
    """Another live process, or another object of this process, has locked the data directory."""


class ForeignDirectoryError(Exception):
    """The data directory belongs to another cluster or another broker. Raised by the caller of `open`."""


class LogDirectory:
    """A data directory under this process's exclusive lock. Created by `LogDirectory.open`."""

    def __init__(self, path: Path, lock_descriptor: int, meta: MetaProperties | None) -> None:
        self.path = path
        self.file_system_id = file_system_id(lock_descriptor)
        self.meta = meta
        """None before formatting."""
        self.previous_stop, self.previous_broker_epoch = _read_previous_stop(path)
        """How the previous owner ended, and the broker epoch under which the directory had all records
        that it had acknowledged (KIP-966); None if unknown."""
        self.unreadable: dict[TopicPartition, KafkaError] = {}
        """Logs that `load_all` could not open because of their contents."""
        self.vanished: set[TopicPartition] = set()
        """Partitions of which a clean stop left records here, and `load_all` found no directory."""
        self.futures: list[Log] = []
        """Future logs that `load_all` found; the log mover takes them over."""
        self.failure: BaseException | None = None
        """Error that took the directory offline; None while it is online."""
        self.has_unclosed_logs = False
        """Set when a log is given up without being closed: no clean shutdown is recorded then."""
        self.checkpoints = DirectoryCheckpoints(path)
        self._lock_descriptor: int | None = lock_descriptor
        self._to_delete: list[tuple[TimestampMs, Path]] = []

    @classmethod
    def open(cls, path: Path) -> "LogDirectory":
        """Create `path` if it is missing, for this user alone, lock it and read its identity.

        Raises:
            DirectoryLockedError: another process (or this one) holds it.
            KafkaError: KAFKA_STORAGE_ERROR: not writable, or a malformed meta.properties.
        """
        with storage_errors(f"lock the log directory {path}"):
            make_private_directory(path)
            descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                # flock belongs to the open file, not to the process: it excludes other objects of this
                # process, too.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                meta = read_meta_properties(path)
            except BlockingIOError as error:
                os.close(descriptor)
                raise DirectoryLockedError(
                    f"{path} is in use by another broker: stop that one, or give this one its own log.dirs"
                ) from error
            except BaseException:
                os.close(descriptor)
                raise
        return cls(path, descriptor, meta)

    def format(self, meta: MetaProperties) -> None:
        """Write an unformatted directory's identity (meta.properties, fsynced).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        assert self.meta is None, f"{self.path} belongs to {self.meta}"
        write_meta_properties(self.path, meta)
        self.meta = meta

    def note_running(self, broker_epoch: BrokerEpoch) -> None:
        """Record the broker epoch under which the directory is in use (`running_marker`).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        boot = boot_id()
        if boot is not None and self.failure is None:
            with storage_errors(f"write {self.path / RUNNING_MARKER}"):
                write_marker(self.path, RunningMarker(boot, broker_epoch))

    def is_failed_by(self, error: BaseException) -> bool:
        """Whether an error makes the directory unusable: its disk failed, or it was removed."""
        return is_disk_error(error) or not (self.path / LOCK_FILE).exists()

    def fail(self, error: BaseException) -> bool:
        """Take the directory offline because of `error`; return whether it was online.

        Safe on an event loop: its only disk access is the removal of one file, whose failure is ignored.
        """
        if self.failure is not None:
            return False
        self.failure = error
        logger.critical("Log directory %s is offline until this broker restarts: %s", self.path, error)
        with suppress(OSError):
            (self.path / RUNNING_MARKER).unlink(missing_ok=True)
        return True

    def load_all(
        self, config_for: Callable[[str], LogConfig], now_ms: TimestampMs, *, threads: int = 1
    ) -> dict[TopicPartition, Log]:
        """Open every log, recovering those of an unclean stop. `config_for` takes a topic name.

        Logs that a clean stop left, and that are not there any more, are in `vanished`.

        Up to `threads` logs are opened at once (num.recovery.threads.per.data.dir). Removes the
        clean-shutdown marker and deleted logs (`-delete`, `-stray`); leaves out the metadata log, which the
        metadata follower opens. Logs with damaged contents are in `unreadable`; copies of logs of other
        directories in `futures`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        with storage_errors(f"load {self.path}"):
            to_load = {
                directory: (partition, config_for(partition.topic))
                for directory, partition in self._log_directories().items()
            }
            recovery_points = self.checkpoints.read(RECOVERY_POINT_CHECKPOINT)
            start_offsets = self.checkpoints.read(LOG_START_OFFSET_CHECKPOINT)
            high_watermarks = self.checkpoints.read(REPLICATION_OFFSET_CHECKPOINT)
            cleaned_offsets = self.checkpoints.read(CLEANER_OFFSET_CHECKPOINT)
            with ThreadPoolExecutor(threads, "sparklog-recovery") as executor:
                opening = {
                    directory: executor.submit(
                        Log.open,
                        directory,
                        config,
                        recovery_point=recovery_points.get(partition, 0),
                        log_start_offset=start_offsets.get(partition),
                        high_watermark=high_watermarks.get(partition, 0),
                        cleaned_offset=cleaned_offsets.get(partition),
                        stop=self.previous_stop,
                        now_ms=now_ms,
                    )
                    for directory, (partition, config) in to_load.items()
                }
                loaded = self._loaded(opening)
            if self.previous_stop is PreviousStop.CLEAN:
                # After a kill the files may name the logs of topics that had just been deleted.
                named = {**recovery_points, **{each: end for each, end in high_watermarks.items() if end}}
                there = {partition for partition, _ in to_load.values()}
                self.vanished = {each for each, end in named.items() if end and each not in there}
            self.checkpoints.lower(loaded)
            self.futures = [log for log in loaded if log.is_future]
            logs = {log.topic_partition: log for log in loaded if not log.is_future}
            logger.info(
                "%s: %d logs with %d bytes loaded, %d bytes of them checked",
                self.path,
                len(loaded),
                sum(log.size_bytes for log in loaded),
                sum(log.checked_bytes for log in loaded),
            )
            # From here on a crash is unclean.
            (self.path / CLEAN_SHUTDOWN_MARKER).unlink(missing_ok=True)
            sync_directory(self.path)
        return logs

    def _loaded(self, opening: Mapping[Path, "Future[Log]"]) -> list[Log]:
        """Return the opened logs; note unreadable ones, raise if the disk failed."""
        logs: list[Log] = []
        try:
            for directory, future in opening.items():
                try:
                    logs.append(future.result())
                except KafkaError as error:
                    if system_error(error) is not None:
                        raise
                    if is_future_name(directory.name):
                        logger.error("%s is ignored, the copy cannot be used: %s", directory, error)
                    else:
                        logger.error("%s is offline: %s", directory, error)
                        self.unreadable[partition_of(directory.name)] = error
        except BaseException:
            for future in opening.values():
                future.cancel()
            wait(opening.values())
            _close_opened(opening.values())
            raise
        return logs

    def _log_directories(self) -> dict[Path, TopicPartition]:
        """Return the directories of logs to load, after removing deleted ones."""
        found: dict[Path, TopicPartition] = {}
        for directory in sorted(entry for entry in self.path.iterdir() if entry.is_dir()):
            if directory.name.endswith((DELETE_SUFFIX, STRAY_SUFFIX)):
                logger.info("Removing %s", directory)
                shutil.rmtree(directory)
                continue
            try:
                partition = partition_of(directory.name)
            except ValueError:
                logger.warning("Ignoring %s: its name is not <topic>-<partition>", directory)
                continue
            if is_future_name(directory.name) and (self.path / str(partition)).exists():
                logger.warning("Removing %s: the log is in this directory already", directory)
                shutil.rmtree(directory)
            elif partition.topic != CLUSTER_METADATA_TOPIC:
                found[directory] = partition
        return found

    def begin_log(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, now_ms: TimestampMs
    ) -> Log:
        """Begin the log of a partition that has none here; its directory comes with the first record.

        A new log must not inherit the checkpoints of a deleted one: these are removed before the directory is
        created, or a crash would apply them to the new log. Nothing blocks here.
        """
        return Log.begin(
            self.path / str(topic_partition),
            config,
            topic_id,
            stop=self.previous_stop,
            now_ms=now_ms,
            before_files=partial(self.checkpoints.forget, topic_partition),
        )

    def create_future(self, current: Log, now_ms: TimestampMs) -> Log:
        """Create the future log for a copy of `current`, which lies in another directory.

        `current` has files from then on, on the disk: after a crash a copy without a log would count as the
        log, and as one that may lack records.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        current.sync_identity()
        self.checkpoints.forget(current.topic_partition)
        return Log.open(
            self.path / directory_name(current.topic_partition, uuid4(), FUTURE_SUFFIX),
            current.config,
            log_start_offset=current.log_start_offset,
            now_ms=now_ms,
            topic_id=current.topic_id,
        )

    def delete_log(self, log: Log, now_ms: TimestampMs) -> None:
        """Rename the log's directory with `-delete`, to be removed after file.delete.delay.ms.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._set_aside(log, DELETE_SUFFIX, now_ms)

    def remove_stray(self, log: Log, now_ms: TimestampMs) -> Path | None:
        """Close a log that this broker should not have; rename its directory with `-stray` and return it.

        `remove_directories_due` removes it after `file.delete.delay.ms`, else the next `load_all`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        return self._set_aside(log, STRAY_SUFFIX, now_ms)

    def _set_aside(self, log: Log, suffix: str, now_ms: TimestampMs) -> Path | None:
        path = log.rename_with_suffix(suffix)
        if path is not None:
            self._to_delete.append((now_ms + log.config.file_delete_delay_ms, path))
        return path

    def has_directories_due(self, now_ms: TimestampMs) -> bool:
        return any(due_ms <= now_ms for due_ms, _ in self._to_delete)

    def remove_directories_due(self, now_ms: TimestampMs) -> int:
        """Remove `-delete` and `-stray` directories whose delay is over; return how many.

        A failure, or a directory that is missing already, does not stop the others. The next `load_all` tries
        again.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, once all have been tried.
        """
        due = [entry for entry in self._to_delete if entry[0] <= now_ms]
        first_error: KafkaError | None = None
        for entry in due:
            self._to_delete.remove(entry)
            try:
                with storage_errors(f"remove {entry[1]}"):
                    shutil.rmtree(entry[1])
            except KafkaError as error:
                if entry[1].exists():
                    first_error = first_error or error
        if first_error is not None:
            raise first_error
        return len(due)

    def write_clean_shutdown(self, broker_epoch: BrokerEpoch | None) -> None:
        """Record a clean shutdown if every log was closed. Call it last.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None or self.unreadable or self.has_unclosed_logs:
            logger.error("%s was not stopped cleanly: the next start checks its logs", self.path)
            return
        content = {"version": 0, "brokerEpoch": or_minus_one(broker_epoch)}
        with storage_errors(f"write the clean-shutdown marker of {self.path}"):
            replace_file(
                self.path / CLEAN_SHUTDOWN_MARKER, json.dumps(content, separators=(",", ":")).encode()
            )

    def volume_bytes(self) -> tuple[int, int] | None:
        """Return total and usable bytes of the volume; None on an error, which a write will report.

        A network file system may never answer.
        """
        try:
            usage = shutil.disk_usage(self.path)
        except OSError:
            return None
        return usage.total, usage.free

    def close(self) -> None:
        """Release the lock. All logs must be closed before."""
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None


def _close_opened(opening: Iterable[Future[Log]]) -> None:
    for future in opening:
        if not future.cancelled() and future.exception() is None:
            future.result().close(clean=False)


def _read_previous_stop(path: Path) -> tuple[PreviousStop, BrokerEpoch | None]:
    marker = path / CLEAN_SHUTDOWN_MARKER
    if marker.exists():
        return PreviousStop.CLEAN, _read_broker_epoch(marker)
    running = read_marker(path)
    if running is not None and running.boot_id == boot_id():
        return PreviousStop.KILLED, running.broker_epoch
    return PreviousStop.UNKNOWN, None


def _read_broker_epoch(marker: Path) -> BrokerEpoch | None:
    try:
        broker_epoch = json.loads(marker.read_bytes())["brokerEpoch"]
    except (OSError, ValueError, KeyError, TypeError):
        # An older version wrote it, or the write was incomplete: the stop was clean, the epoch is unknown.
        return None
    return broker_epoch if isinstance(broker_epoch, int) and broker_epoch >= 0 else None

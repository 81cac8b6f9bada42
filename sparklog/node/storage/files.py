"""Names of the files of a log directory, and atomic replacement of small files.

Every file of a segment begins with its base offset in 20 digits, so a sorted listing is in offset order.
Suffixes and names are Kafka's, except `.cut-<n>`: data that recovery cut off a damaged segment.
"""

import base64
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset, TopicPartition

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
FUTURE_SUFFIX: Final = "-future"
"""Suffix of the directory of a log that is being copied here from another directory of the broker
(KIP-113)."""
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
OFFSET_GAPS_MARKER: Final = "offset-gaps"
"""An empty file of ours: offsets may be missing between this log's batches (compaction). Without it a gap
is damage. It is created before the log is compacted."""
REBUILT_EPOCHS_MARKER: Final = "rebuilt-epochs"
"""An empty file of ours: the epochs of a tiered log were rebuilt from its batches, and do not say where the
tier's part of it begins. It is created before they are written."""
PARTITION_METADATA: Final = "partition.metadata"
LONGEST_NAME_BYTES: Final = 255
"""Length limit of a file name on common file systems."""
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a file that cannot grow although the disk works."""
_DISK_ERRORS: Final = NO_SPACE | {
    # Errors of the device, its driver or its cable.
    errno.EIO,
    errno.ENODEV,
    errno.ENXIO,
    errno.ENOMEDIUM,
    errno.EREMOTEIO,
    errno.ENODATA,
    errno.EILSEQ,
    errno.ETIME,
    errno.ENOLINK,
    # Errors of the file system: unmounted, remounted read-only, or damaged.
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EUCLEAN,
    errno.EBADMSG,
    # Errors of a network file system.
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ENOTCONN,
    errno.ECONNABORTED,
    errno.EHOSTDOWN,
}
"""Errors that tell of a failed disk. Others tell of this process or machine (EMFILE, ENFILE, ENOMEM,
EINTR), or of a file that another process may have removed (ENOENT)."""
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EINTR})


class SyncFailedError(OSError):
    """Data may be missing on the disk although later calls of the system report success."""


def offset_file(directory: Path, offset: Offset, suffix: str) -> Path:
    """Return the path of a segment's file.

    >>> offset_file(Path("t-0"), 42, ".log").name
    '00000000000000000042.log'
    """
    return directory / offset_name(offset, suffix)


def offset_name(offset: Offset, suffix: str) -> str:
    """Return the name of a segment's file."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> Offset | None:
    """Return the offset that begins a file's name, or None if it is not a segment's file."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None


def partition_of(directory_name: str) -> TopicPartition:
    """Return the partition of a directory `<topic>-<partition>`.

    Or `<topic>-<partition>.<unique>-future`.

    Raises:
        ValueError: the name has neither form.
    """
    name = directory_name
    if is_future_name(name):
        name = name.rpartition(".")[0]
    topic, separator, partition = name.rpartition("-")
    if not (topic and separator and partition.isascii() and partition.isdigit()):
        raise ValueError(f"{directory_name!r} is not <topic>-<partition>")
    return TopicPartition(topic, int(partition))


def is_future_name(directory_name: str) -> bool:
    """Whether a directory's log is being copied here from another directory."""
    return directory_name.endswith(FUTURE_SUFFIX)


def directory_name(partition: TopicPartition, unique: UUID, suffix: str) -> str:
    """Return the name of a log directory that is set aside: `<topic>-<partition>.<unique><suffix>`.

    A long topic is cut, so that the name stays within what file systems take.
    """
    full_suffix = f"-{partition.partition}.{unique.hex}{suffix}"
    return partition.topic[: LONGEST_NAME_BYTES - len(full_suffix)] + full_suffix


def encode_uuid(value: UUID) -> str:
    """Return Kafka's text form of an id: 22 characters of URL-safe base64.

    >>> encode_uuid(UUID(int=1))
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    """Return the id that `encode_uuid` wrote.

    Raises:
        ValueError: not 16 bytes in base64.
    """
    return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))


@contextmanager
def storage_errors(action: str) -> Iterator[None]:
    """Turn an operating system's error during `action` into KAFKA_STORAGE_ERROR."""
    try:
        yield
    except OSError as error:
        raise storage_error(action, error) from error


def storage_error(action: str, error: OSError) -> KafkaError:
    failure = KafkaError(ErrorCode.kafka_storage_error, f"cannot {action}: {error}")
    failure.__cause__ = error  # of a compiled module `raise from` sets none
    return failure


def system_error(error: BaseException | None) -> OSError | None:
    """Return the operating system's error that caused another one; None if none did."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error


def is_disk_error(error: BaseException | None) -> bool:
    """Whether a failed disk caused an error: it is, or was raised because of, an OSError of the disk.

    A failed fsync always counts.
    """
    cause = system_error(error)
    return isinstance(cause, SyncFailedError) or (cause is not None and cause.errno in _DISK_ERRORS)


def is_shortage(error: BaseException) -> bool:
    """Whether a lack of descriptors or memory, or an interrupted call, caused an error."""
    cause = system_error(error)
    return cause is not None and cause.errno in _SHORTAGES


def is_transient(error: BaseException) -> bool:
    """Whether the system refused a call for another reason than a failed disk: a retry may succeed."""
    return system_error(error) is not None and not is_disk_error(error)


def replace_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Replace the file at `path` by `content` atomically.

    With `sync` the new content is on the disk on return. Without, a crash of the machine (not of the process)
    may undo the replacement.

    Raises:
        OSError: the old file remains.
    """
    temporary = path.with_name(path.name + ".tmp")
    write_file(temporary, content, sync=sync)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)


def write_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write a whole file; with `sync` it is fsynced.

    Raises:
        OSError: no file is left.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, "it was written only in part", str(path))
            if sync:
                sync_descriptor(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def sync_descriptor(descriptor: int, *, data_only: bool = False) -> None:
    """fsync an open file, or fdatasync it.

    Raises:
        SyncFailedError: not retriable: the system may have dropped the data.
    """
    try:
        (os.fdatasync if data_only else os.fsync)(descriptor)
    except OSError as error:
        raise SyncFailedError(error.errno, error.strerror) from error


def sync_file(path: Path) -> None:
    """fsync a file that is not open; a missing file is ignored."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """fsync a directory: files created, renamed or removed in it remain so after a machine crash."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)

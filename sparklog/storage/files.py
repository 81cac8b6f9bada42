"""Names of the files of a log directory, and how a small file is replaced so that a crash shows old or new.

Every file of a segment begins with its base offset in 20 digits, so that a sorted listing is in offset
order. Suffixes and names are Kafka's; `.cut-<n>` files are ours (what recovery cut off a damaged segment).
"""

import base64
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import Offset, TopicPartition

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
FUTURE_SUFFIX: Final = "-future"
"""Of the directory of a log that is being copied here from another directory of the broker (KIP-113)."""
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
OFFSET_GAPS_MARKER: Final = "offset-gaps"
"""An empty file of ours: offsets may be missing between this log's batches (compaction). Without it a gap is
damage. Who compacts a log makes it first."""
PARTITION_METADATA: Final = "partition.metadata"
LONGEST_NAME_BYTES: Final = 255
"""Of a file or directory, on what file systems there are."""
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says when a file cannot grow, though nothing is wrong with the disk."""
_DISK_ERRORS: Final = NO_SPACE | {
    # The device, its driver or its cable.
    errno.EIO,
    errno.ENODEV,
    errno.ENXIO,
    errno.ENOMEDIUM,
    errno.EREMOTEIO,
    errno.ENODATA,
    errno.EILSEQ,
    errno.ETIME,
    errno.ENOLINK,
    # The file system: taken away, gone read-only (so that whoever asks is refused), found to be damaged.
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EUCLEAN,
    errno.EBADMSG,
    # One on the network.
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ENOTCONN,
    errno.ECONNABORTED,
    errno.EHOSTDOWN,
}
"""Errors that say something of the disk. Others say something of this process or machine (EMFILE, ENFILE,
ENOMEM, EINTR), or of a file that somebody else may have taken (ENOENT)."""
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EINTR})


class SyncFailedError(OSError):
    """What was written may not be on the disk, whatever the system says of it from now on."""


def offset_file(directory: Path, offset: Offset, suffix: str) -> Path:
    """Return the path of a segment's file.

    >>> offset_file(Path("t-0"), 42, ".log").name
    '00000000000000000042.log'
    """
    return directory / f"{offset:020d}{suffix}"


def offset_of(name: str) -> Offset | None:
    """Return the offset a file's name begins with, or None when it is no file of a segment."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None


def partition_of(directory_name: str) -> TopicPartition:
    """Return the partition that a directory `<topic>-<partition>` is for.

    Or `<topic>-<partition>.<unique>-future`.

    Raises:
        ValueError: the name is not of either form.
    """
    name = directory_name
    if is_future_name(name):
        name = name.rpartition(".")[0]
    topic, separator, partition = name.rpartition("-")
    if not (topic and separator and partition.isascii() and partition.isdigit()):
        raise ValueError(f"{directory_name!r} is not <topic>-<partition>")
    return TopicPartition(topic, int(partition))


def is_future_name(directory_name: str) -> bool:
    """Whether a directory is that of a log which is being copied here from another directory."""
    return directory_name.endswith(FUTURE_SUFFIX)


def directory_name(partition: TopicPartition, unique: UUID, suffix: str) -> str:
    """Return the name of a log's directory set aside: `<topic>-<partition>.<unique><suffix>`.

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
    """Turn an operating system's error during `action` into KAFKA_STORAGE_ERROR, naming both."""
    try:
        yield
    except OSError as error:
        raise storage_error(action, error) from error


def storage_error(action: str, error: OSError) -> KafkaError:
    """Return the KAFKA_STORAGE_ERROR that says what could not be done, and why."""
    return KafkaError(ErrorCode.kafka_storage_error, f"cannot {action}: {error}")


def system_error(error: BaseException | None) -> OSError | None:
    """Return the operating system's error that is behind another one; None if none is."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error


def is_disk_error(error: BaseException | None) -> bool:
    """Say whether the disk is behind an error: it is an OSError that says so, or was raised because of one.

    A failed fsync is one in any case.
    """
    cause = system_error(error)
    return isinstance(cause, SyncFailedError) or (cause is not None and cause.errno in _DISK_ERRORS)


def is_shortage(error: BaseException) -> bool:
    """Say whether what the system lacks is behind an error: descriptors, memory, time."""
    cause = system_error(error)
    return cause is not None and cause.errno in _SHORTAGES


def may_pass(error: BaseException) -> bool:
    """Say whether the system refused something for a reason that is not the disk's: try it again later."""
    return system_error(error) is not None and not is_disk_error(error)


def replace_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Put `content` in place of the file at `path` in one step.

    With `sync` the new content is on the disk on return. Without, a crash of the machine (not of the
    process) may undo the replacement.

    Raises:
        OSError: the old file is then still there.
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
    """Write a whole file, with `sync` onto the disk.

    Raises:
        OSError: it is not there then.
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
        SyncFailedError: never to be tried again: the system may have dropped what it could not write.
    """
    try:
        (os.fdatasync if data_only else os.fsync)(descriptor)
    except OSError as error:
        raise SyncFailedError(error.errno, error.strerror) from error


def sync_file(path: Path) -> None:
    """fsync a file that nobody holds open; nothing if it has gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """fsync a directory: files created, renamed or removed in it stay so after a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)

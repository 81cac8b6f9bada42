"""Kafka's checkpoint files: text files of offsets or leader epochs.

    0                 version of the format
    2                 number of entries
    flights 0 17      one entry per line
    flights 1 12

Offsets by partition (`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
`replication-offset-checkpoint`, `cleaner-offset-checkpoint`) have topic, partition, offset; a
`leader-epoch-checkpoint` has epoch and start offset. Beside them in a partition's directory lies
`partition.metadata` with the topic id.

Rules kept: files are replaced atomically, so a reader sees the old or the new one. A digit that changed on
the disk must not pass for an offset. Kafka's formats have no checksum, so the offsets' files have a checksum
in a file beside them (`<name>.crc32c`: of the content, and of what it replaced), the topic id in a third line
that Kafka does not read. Leader epochs are compared with the batches when a log is opened.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID

from crc32c import crc32c

from sparklog.node.storage.files import decode_uuid, encode_uuid, replace_file, storage_errors
from sparklog.node.storage.machine.leader_epochs import EpochEntry
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset, TopicPartition

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"
CHECKSUM_SUFFIX: Final = ".crc32c"
_VERSION: Final = 0
_TOPIC_ID_CHECKSUM: Final = "crc32c"


class CorruptCheckpointError(KafkaError):
    """A checkpoint file is malformed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(ErrorCode.kafka_storage_error, f"{path} is malformed: {reason}")


def _read_entries(path: Path, fields: int) -> list[list[str]]:
    """Return the fields of each entry; empty if the file does not exist."""
    try:
        with storage_errors(f"read {path}"):
            content = path.read_bytes()
            _check_checksum(path, content)
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(path, str(error)) from error
    except KafkaError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise
    if len(lines) < 2 or lines[0].strip() != str(_VERSION):
        raise CorruptCheckpointError(path, f"it must begin with version {_VERSION} and a count")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if not lines[1].strip().isdigit() or int(lines[1]) != len(entries):
        raise CorruptCheckpointError(path, f"it counts {lines[1]!r} entries and has {len(entries)}")
    if any(len(entry) != fields for entry in entries):
        raise CorruptCheckpointError(path, f"an entry does not have {fields} fields")
    return entries


def _check_checksum(path: Path, content: bytes) -> None:
    """Compare a file with its checksums; one without any is accepted (Kafka writes none).

    Raises:
        CorruptCheckpointError: it is neither the last content written nor the one before.
    """
    try:
        checksums = path.with_name(path.name + CHECKSUM_SUFFIX).read_bytes().split()
    except FileNotFoundError:
        return
    if _checksum(content) not in checksums:
        raise CorruptCheckpointError(path, "its CRC does not match")


def _checksum(content: bytes) -> bytes:
    return b"%08x" % crc32c(content)


def _write_checksums(path: Path, content: bytes) -> None:
    """Write the checksums of `content` and of the current file: after a crash either of the two is valid."""
    checksums = [_checksum(content)]
    with suppress(FileNotFoundError):
        checksums.append(_checksum(path.read_bytes()))
    replace_file(path.with_name(path.name + CHECKSUM_SUFFIX), b" ".join(checksums))


def _content(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in [str(_VERSION), str(len(lines)), *lines]).encode()


def read_offsets(path: Path) -> dict[TopicPartition, Offset]:
    """Return the offsets in a checkpoint; empty when there is no such file.

    Raises:
        CorruptCheckpointError: the file is malformed.
    """
    offsets = {}
    for topic, partition, offset in _read_entries(path, fields=3):
        try:
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise CorruptCheckpointError(path, str(error)) from error
    return offsets


def write_offsets(path: Path, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Replace a checkpoint; it is on the disk when this returns."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    content = _content(lines)
    with storage_errors(f"write {path}"):
        _write_checksums(path, content)
        replace_file(path, content)


def read_leader_epochs(path: Path) -> list[EpochEntry]:
    """Return the entries of a `leader-epoch-checkpoint`; empty when there is no such file.

    Raises:
        CorruptCheckpointError: the file is malformed.
    """
    try:
        return [EpochEntry(int(epoch), int(offset)) for epoch, offset in _read_entries(path, fields=2)]
    except ValueError as error:
        raise CorruptCheckpointError(path, str(error)) from error


def write_leader_epochs(path: Path, entries: Iterable[EpochEntry], *, sync: bool) -> None:
    lines = [f"{entry.leader_epoch} {entry.start_offset}" for entry in entries]
    with storage_errors(f"write {path}"):
        replace_file(path, _content(lines), sync=sync)


def read_topic_id(path: Path) -> UUID | None:
    """Return the topic id in `partition.metadata`, or None when there is no such file.

    Nor is there one with nothing in it, which a power cut leaves of a file that was never fsynced.

    Raises:
        CorruptCheckpointError: the file is malformed.
        OSError: it cannot be read.
    """
    try:
        content = path.read_bytes()
        if not content.strip(b"\0"):
            return None
        lines = content.decode().splitlines()
        fields = dict(line.split(": ", 1) for line in lines if line)
        if int(fields["version"]) < 0:
            raise CorruptCheckpointError(path, f"version {fields['version']}")
        topic_id = decode_uuid(fields["topic_id"].strip())
    except FileNotFoundError:
        return None
    except (KeyError, ValueError) as error:
        raise CorruptCheckpointError(path, f"it must name version and topic_id ({error})") from error
    checksum = fields.get(_TOPIC_ID_CHECKSUM)
    if checksum is not None and checksum.strip().encode() != _checksum("\n".join(lines[:2]).encode()):
        raise CorruptCheckpointError(path, "its CRC does not match")
    return topic_id


def write_topic_id(path: Path, topic_id: UUID, *, sync: bool = True) -> None:
    """Write `partition.metadata`; with `sync` it is on the disk when this returns."""
    content = f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()
    with storage_errors(f"write {path}"):
        replace_file(
            path, content + b"\n%s: %s" % (_TOPIC_ID_CHECKSUM.encode(), _checksum(content)), sync=sync
        )

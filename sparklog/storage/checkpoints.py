"""Kafka's checkpoint files: small texts that say how far something has come.

    0                 version of the format
    2                 number of entries
    flights 0 17      an entry a line
    flights 1 12

Offsets by partition (`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
`replication-offset-checkpoint`) have topic, partition, offset; a `leader-epoch-checkpoint` has epoch and
start offset. Beside them in a partition's directory lies `partition.metadata` with the topic id.

Rule kept: files are replaced in one step, so a reader sees the old or the new one, never a mixture.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.storage.files import decode_uuid, encode_uuid, replace_file, storage_errors
from sparklog.storage.leader_epochs import EpochEntry
from sparklog.types import Offset, TopicPartition

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT: Final = "replication-offset-checkpoint"
_VERSION: Final = 0


class CorruptCheckpointError(KafkaError):
    """A checkpoint file that does not say what such a file says."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(ErrorCode.kafka_storage_error, f"{path} is malformed: {reason}")


def _read_entries(path: Path, fields: int) -> list[list[str]]:
    """Return the fields of each entry; no entries for a file that does not exist."""
    try:
        with storage_errors(f"read {path}"):
            lines = path.read_text(encoding="utf-8").splitlines()
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


def _write_entries(path: Path, lines: list[str], *, sync: bool) -> None:
    content = "".join(f"{line}\n" for line in [str(_VERSION), str(len(lines)), *lines])
    with storage_errors(f"write {path}"):
        replace_file(path, content.encode(), sync=sync)


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
    """Replace a checkpoint; it is on the disk on return."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    _write_entries(path, lines, sync=True)


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
    """Replace a `leader-epoch-checkpoint`."""
    lines = [f"{entry.leader_epoch} {entry.start_offset}" for entry in entries]
    _write_entries(path, lines, sync=sync)


def read_topic_id(path: Path) -> UUID | None:
    """Return the topic id in `partition.metadata`, or None when there is no such file.

    Raises:
        CorruptCheckpointError: the file is malformed.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        fields = dict(line.split(": ", 1) for line in lines if line)
        if int(fields["version"]) < 0:
            raise CorruptCheckpointError(path, f"version {fields['version']}")
        return decode_uuid(fields["topic_id"].strip())
    except FileNotFoundError:
        return None
    except (KeyError, ValueError) as error:
        raise CorruptCheckpointError(path, f"it must name version and topic_id ({error})") from error


def write_topic_id(path: Path, topic_id: UUID) -> None:
    """Write `partition.metadata`; it is on the disk on return."""
    with storage_errors(f"write {path}"):
        replace_file(path, f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode())

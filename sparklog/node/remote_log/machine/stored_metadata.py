"""The object that names the newest snapshot of a cluster's metadata in an object store.

    metadata/latest                                       JSON, replaced by compare-and-swap
    metadata/<end offset>-<leader epoch>.checkpoint       snapshots in Kafka's format; only the newest is kept

Source: KIP-630 for the snapshots.
"""

import json
from dataclasses import asdict, dataclass
from typing import Final

from sparklog.protocol.types import LeaderEpoch, Offset, SnapshotId, TimestampMs

METADATA_PREFIX: Final = "metadata"
LATEST_NAME: Final = f"{METADATA_PREFIX}/latest"
_FORMAT: Final = 1


class StoredMetadataFormatError(Exception):
    """The object is none that this version of sparklog can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMetadata:
    cluster_id: str
    owner_epoch: int
    """Epoch of the application that wrote it. An application that finds a higher epoch writes no more."""
    end_offset: Offset
    leader_epoch: LeaderEpoch
    size_bytes: int
    written_ms: TimestampMs
    is_final: bool
    """Whether the cluster has stopped in order, with this as its last state."""
    is_copied: bool
    """Whether it has stopped with all of its records in the store."""
    starts: int = 0
    """Applications that have claimed this snapshot to begin from it.

    Those that ended without one of their own have held elections, and handed out producer ids, that no
    snapshot has.
    """

    @property
    def snapshot_id(self) -> SnapshotId:
        return SnapshotId(self.end_offset, self.leader_epoch)

    @property
    def name(self) -> str:
        return snapshot_name(self.snapshot_id)


def snapshot_name(snapshot_id: SnapshotId) -> str:
    return f"{METADATA_PREFIX}/{snapshot_id}.checkpoint"


def encode_stored_metadata(stored: StoredMetadata) -> bytes:
    return json.dumps({"format": _FORMAT, **asdict(stored)}, indent=1).encode()


def decode_stored_metadata(data: bytes) -> StoredMetadata:
    """Return what the object's bytes say.

    Raises:
        StoredMetadataFormatError.
    """
    try:
        fields = json.loads(data)
        version = fields.pop("format")
        if version != _FORMAT:
            raise StoredMetadataFormatError(
                f"the object {LATEST_NAME} has format {version}, and this version of sparklog reads "
                f"{_FORMAT}: use the version that wrote it, or a later one"
            )
        return StoredMetadata(**fields)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise StoredMetadataFormatError(
            f"the object {LATEST_NAME} is damaged, or not one of sparklog's: {error}"
        ) from None

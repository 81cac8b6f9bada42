"""The view of a partition's tier by which its leader serves, and keeps, what the object store has."""

from typing import Protocol

from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.object_store import ObjectStore
from sparklog.protocol.types import Offset


class PartitionTierView(Protocol):
    """Set as `Replica.tier` once the manifest is known.

    Records in [log.log_start_offset, log.local_log_start_offset) are read from `manifest`'s segments.
    """

    @property
    def manifest(self) -> Manifest:
        """The newest that is in the store."""

    @property
    def tiered_end_offset(self) -> Offset | None:
        """The offset below which the local log may drop records, or clean them; None for nothing at all."""

    @property
    def store(self) -> ObjectStore: ...

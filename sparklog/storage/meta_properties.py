"""`meta.properties`: whose data directory this is (cluster, broker, directory), version 1 of the file."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a data directory (KIP-631, KIP-858)."""

    cluster_id: str
    node_id: int
    directory_id: UUID

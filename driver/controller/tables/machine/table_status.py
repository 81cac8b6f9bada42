"""The state of a table, for the Log tab and for metrics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sparklog.protocol.types import Offset


class RefFiles(NamedTuple):
    """The files that the table no longer has, and that a branch or a tag keeps."""

    ref: str
    files: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.ref} keeps {self.files} files ({self.size_bytes} bytes) that the table no longer has"


@dataclass(frozen=True, slots=True)
class TableStatus:
    topic: str
    name: str
    """The table's, with its namespaces."""
    snapshot_id: int | None
    """The newest known; None for none."""
    committed: Mapping[int, Offset]
    """By partitions: records below are in the table, if the topic has them."""
    lag: int
    """Offsets in the store, over all partitions, that are not in the table yet."""
    problem: str | None
    """Why commits stand still, and what helps; None while all is well."""
    files: int = 0
    """Of the newest snapshot."""
    level_ms: int | None = None
    """When the table last had all that the store had, by the monotonic clock; at first its beginning."""
    commits: int = 0
    failures: int = 0
    """Both since this controller has kept the table."""
    held: tuple[RefFiles, ...] = ()
    """The files that branches and tags keep in the store."""

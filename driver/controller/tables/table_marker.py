"""The object that says that a table has files of a topic: written before the table's first commit.

It outlives the topic, and tells a later driver what to do with the table of a topic that is deleted.
"""

import json
from dataclasses import dataclass
from uuid import UUID

from sparklog.driver.controller.tables.machine.events import PartitionedBy, Retention


class MarkerFormatError(Exception):
    """An object is no marker, or one of a later version; the message names it."""


@dataclass(frozen=True, slots=True)
class TableMarker:
    topic: str
    topic_id: UUID
    table: str
    """With its namespaces."""
    retention: Retention
    partitioned_by: str
    partitions: int
    table_uuid: UUID | None = None
    """None in a marker of a version that did not write it."""
    finished: bool = False
    """Whether the topic is deleted, and its table keeps its rows without further commits."""


def encode_marker(marker: TableMarker) -> bytes:
    content = {
        "topic": marker.topic,
        "topic_id": str(marker.topic_id),
        "table": marker.table,
        "retention": marker.retention.value,
        "partitioned_by": marker.partitioned_by,
        "partitions": marker.partitions,
        "table_uuid": None if marker.table_uuid is None else str(marker.table_uuid),
        "finished": marker.finished,
    }
    return json.dumps(content).encode()


def decode_marker(name: str, data: bytes) -> TableMarker:
    """Return the marker in the object `name`.

    Raises:
        MarkerFormatError.
    """
    try:
        content = json.loads(data)
        table_uuid = content.get("table_uuid")
        if not isinstance(content["topic"], str) or not isinstance(content["table"], str):
            raise TypeError("topic or table is no text")
        return TableMarker(
            content["topic"],
            UUID(content["topic_id"]),
            content["table"],
            Retention(content["retention"]),
            PartitionedBy(content["partitioned_by"]).value,
            int(content["partitions"]),
            None if table_uuid is None else UUID(table_uuid),
            content.get("finished", False),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MarkerFormatError(f"{name} in the object store is no marker of a table: {error}") from error

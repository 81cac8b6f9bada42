"""Positions of a streaming query in its checkpoint: the JSON of Spark's Kafka connector.

`{"topic": {"0": 23}}` means that all offsets of partition 0 below 23 were read. So a checkpoint continues
under either format.

Spark records the end of a batch, and takes the end of the previous batch for its start. The first batch has
no previous one: if it is repeated, after a crash, the source is asked again for the initial offset, and the
latest offset has changed by then. So the end of a first batch contains its start, too, under names that no
topic can have. The connector records it in a file of its own; Python sources do not know where.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from sparklog.protocol.types import Offset, TopicPartition

Document: TypeAlias = dict[str, dict[str, int]]
_START: Final = "start of the first batch/"
"""A topic's name has no slash."""


class StreamPosition(NamedTuple):
    """The next offset to read of each partition; for the first batch also its start.

    A first batch that began without partitions is marked, too: by `_START` alone.
    """

    offsets: Mapping[TopicPartition, Offset]
    first_starts: Mapping[TopicPartition, Offset] | None = None

    @classmethod
    def parse(cls, document: Mapping[str, Mapping[str, int]]) -> "StreamPosition":
        """Parse a document of `document` or of the connector."""
        offsets: dict[TopicPartition, Offset] = {}
        starts: dict[TopicPartition, Offset] = {}
        for name, numbers in document.items():
            topic = name.removeprefix(_START)
            into = offsets if topic == name else starts
            into.update((TopicPartition(topic, int(number)), offset) for number, offset in numbers.items())
        is_first = any(name.startswith(_START) for name in document)
        return cls(offsets, starts if is_first else None)

    def document(self) -> Document:
        document: Document = {}
        for topic_partition, offset in sorted(self.offsets.items()):
            document.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offset
        if self.first_starts is not None and not self.first_starts:
            document[_START] = {}
        for topic_partition, offset in sorted((self.first_starts or {}).items()):
            document.setdefault(_START + topic_partition.topic, {})[str(topic_partition.partition)] = offset
        return document

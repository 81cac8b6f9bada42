"""Where a streaming query stands, as its checkpoint says it: the JSON of Spark's Kafka connector.

`{"topic": {"0": 23}}` says that of partition 0 all below offset 23 was read. So a checkpoint goes on under
either format.

Spark notes where a batch ends, and takes for its beginning where the one before it ended. The first batch
has none before it: if it has to be done again, after a crash, the source is asked anew where to begin, and
the latest offset is another one by then. So the end of a first batch says where it began, too, under topic
names that no topic can have. The connector notes it in a file of its own; Python sources are not told where.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from sparklog.types import Offset, TopicPartition

Document: TypeAlias = dict[str, dict[str, int]]
_START: Final = "start of the first batch/"
"""No topic's name has a slash."""


class StreamPosition(NamedTuple):
    """The next offset to read of each partition; of the first batch also where that began.

    A first batch that began with no partition at all says so, too: `_START` alone.
    """

    offsets: Mapping[TopicPartition, Offset]
    first_starts: Mapping[TopicPartition, Offset] | None = None

    @classmethod
    def parse(cls, document: Mapping[str, Mapping[str, int]]) -> "StreamPosition":
        """Read what `document` wrote, here or in the connector."""
        offsets: dict[TopicPartition, Offset] = {}
        starts: dict[TopicPartition, Offset] = {}
        for name, numbers in document.items():
            topic = name.removeprefix(_START)
            into = offsets if topic == name else starts
            into.update((TopicPartition(topic, int(number)), offset) for number, offset in numbers.items())
        is_first = any(name.startswith(_START) for name in document)
        return cls(offsets, starts if is_first else None)

    def document(self) -> Document:
        """Return the position for the checkpoint."""
        document: Document = {}
        for topic_partition, offset in sorted(self.offsets.items()):
            document.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offset
        if self.first_starts is not None and not self.first_starts:
            document[_START] = {}
        for topic_partition, offset in sorted((self.first_starts or {}).items()):
            document.setdefault(_START + topic_partition.topic, {})[str(topic_partition.partition)] = offset
        return document

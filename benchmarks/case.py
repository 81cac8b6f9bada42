"""What every case is made of: figures, rounds of measuring them, and topics of one's own."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from benchmarks.clusters import ClusterUnderTest

PARTITIONS = 3
OURS = "sparklog"
BASELINE = "Apache Kafka"
RATIO = "x"
"""The unit of a figure that is the ratio of others of its round."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity."""

    case: str
    unit: str
    value: float
    bar: str = ""
    """What is asked of the ratio to the baseline."""
    is_difference: bool = field(default=False, kw_only=True)
    """Whether it is the difference of others of its round."""
    resolution: float = field(default=0.0, kw_only=True)
    """The steps in which it is read: one of them up or down is no movement."""

    @property
    def tells_warmth(self) -> bool:
        """Whether a side is warm only when this stands still; a ratio is still while both terms rise."""
        return self.unit != RATIO and not self.is_difference


Round = Callable[[], list[Figure]]
"""One round of a case; one figure at least tells whether the side is warm."""
Case = Callable[[ClusterUnderTest], AbstractContextManager[Round]]
"""Prepares a case on a cluster."""


class Topics:
    """Fresh topics, deleted again so that no case pays for another's page cache."""

    def __init__(self) -> None:
        self._count = 0

    @contextlib.contextmanager
    def one(self, cluster: ClusterUnderTest, partitions: int = PARTITIONS) -> Iterator[str]:
        """Create a topic, and delete it at the end."""
        self._count += 1
        topic = f"benchmark-{self._count}"
        cluster.create_topic(topic, partitions)
        try:
            yield topic
        finally:
            cluster.delete_topic(topic)


TOPICS = Topics()

"""The topics of a request that commits: which of its partitions exist, and the answer for each."""

from collections.abc import Generator, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from executor.coordinators.groups.api.topic_names import NamedTopic, named_topic
from executor.coordinators.groups.machine.offsets import CommittedPartition, TopicErrors
from sparklog.errors import ErrorCode
from sparklog.metadata.image import MetadataImage

__all__ = ["CommittedTopics", "committed_topics"]

SMALLEST_RECORD_BYTES: Final = 40
"""Of a committed offset: what has more partitions than fit in a batch need not be tried."""


class CommittedTopics(NamedTuple):
    """What is asked for, and what of it is to be decided about."""

    topics: tuple[tuple[str, UUID | None, tuple[CommittedPartition, ...]], ...]
    asked: tuple[tuple[NamedTopic, tuple[tuple[int, ErrorCode], ...]], ...]
    """The partitions in the order of the request; without an error they are among `topics`."""

    def answers(self, errors: TopicErrors) -> Iterator[tuple[Any, list[tuple[int, ErrorCode]]]]:
        """Iterate over the topics, as they were named, with the error code of each partition."""
        decided = iter(errors)
        for named, partitions in self.asked:
            its_errors = (
                iter(next(decided)[1])
                if any(error_code is ErrorCode.none for _, error_code in partitions)
                else iter(())
            )
            yield (
                named.named,
                [
                    next(its_errors) if error_code is ErrorCode.none else (partition, error_code)
                    for partition, error_code in partitions
                ],
            )

    def refused(self, error_code: ErrorCode) -> TopicErrors:
        """Return the same error for all that was to be decided about."""
        return [
            (topic, [(each.partition, error_code) for each in partitions])
            for topic, _, partitions in self.topics
        ]

    def fits(self, max_batch_bytes: int) -> bool:
        """Whether a batch might hold it."""
        count = sum(len(partitions) for _, _, partitions in self.topics)
        return count * SMALLEST_RECORD_BYTES <= max_batch_bytes


def committed_topics(
    image: MetadataImage, body: Any, *, by_id: bool
) -> Generator[None, None, CommittedTopics]:
    """Look the partitions of a request up, a step each."""
    topics = []
    asked = []
    for topic in body.topics:
        yield
        named = named_topic(image, topic, by_id=by_id)
        its_partitions = []
        committed = []
        for partition in topic.partitions:
            yield
            index = partition.partition_index
            error_code = named.error_code
            if error_code is ErrorCode.none and index not in named.partitions:
                error_code = ErrorCode.unknown_topic_or_partition
            if error_code is ErrorCode.none:
                committed.append(
                    CommittedPartition(
                        index,
                        partition.committed_offset,
                        getattr(partition, "committed_leader_epoch", -1),
                        partition.committed_metadata,
                    )
                )
            its_partitions.append((index, error_code))
        if committed:
            topics.append((named.name, named.topic_id, tuple(committed)))
        asked.append((named, tuple(its_partitions)))
    return CommittedTopics(tuple(topics), tuple(asked))

"""The topics of a request that commits: which of its partitions exist, and the answer for each."""

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple
from uuid import UUID

from executor.coordinators.groups.api.coordinator import wait_for
from executor.coordinators.groups.api.topic_names import NamedTopic, named_topic
from executor.coordinators.groups.machine.offsets import CommittedPartition, TopicErrors
from sparklog.errors import ErrorCode
from sparklog.metadata.image import MetadataImage
from sparklog.wire.requests import Deferred, Response, Steps
from sparklog.wire.turns import in_one_go

__all__ = ["CommittedTopics", "answer_commit", "committed_topics"]

SMALLEST_RECORD_BYTES: Final = 40
"""Of a committed offset: what has more partitions than fit in a batch need not be tried."""

AT_ONCE: Final = 64
"""So many are answered in one step, as soon as they are committed."""


class CommittedTopics(NamedTuple):
    """What is asked for, and what of it is to be decided about."""

    topics: tuple[tuple[str, UUID | None, tuple[CommittedPartition, ...]], ...]
    asked: tuple[tuple[NamedTopic, tuple[tuple[int, ErrorCode], ...]], ...]
    """The partitions in the order of the request; without an error they are among `topics`."""

    def answers(
        self, errors: TopicErrors
    ) -> Generator[None, None, list[tuple[Any, list[tuple[int, ErrorCode]]]]]:
        """Return the topics, as they were named, with the error code of each partition; a step a topic."""
        decided = iter(errors)
        answered = []
        for named, partitions in self.asked:
            yield
            its_errors = (
                iter(next(decided)[1])
                if any(error_code is ErrorCode.none for _, error_code in partitions)
                else iter(())
            )
            rows = []
            for partition, error_code in partitions:
                yield
                rows.append(next(its_errors) if error_code is ErrorCode.none else (partition, error_code))
            answered.append((named.named, rows))
        return answered

    def refused(self, error_code: ErrorCode) -> TopicErrors:
        """Return the same error for all that was to be decided about."""
        return [
            (topic, [(each.partition, error_code) for each in partitions])
            for topic, _, partitions in self.topics
        ]

    @property
    def item_count(self) -> int:
        """How many topics and partitions are asked for."""
        return sum(1 + len(partitions) for _, partitions in self.asked)

    def fits(self, max_batch_bytes: int) -> bool:
        """Whether a batch might hold it."""
        return self.item_count * SMALLEST_RECORD_BYTES <= max_batch_bytes


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


def answer_commit(
    checked: CommittedTopics,
    respond: Callable[[TopicErrors], Generator[None, None, Response]],
    submit: Callable[[Callable[[TopicErrors], Any]], Deferred],
) -> Steps:
    """Answer a commit; `submit` has it decided, and what it replies made of the errors by what it is given.

    Most commits are of a few partitions, whose answer is made with the decision.
    """
    if checked.item_count <= AT_ONCE:
        return submit(lambda errors: in_one_go(respond(errors)))
    errors = yield from wait_for(submit(lambda errors: errors))
    return (yield from respond(errors))

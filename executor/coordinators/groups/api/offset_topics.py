"""Topics of requests about offsets: by name, or by id from version 10 of OffsetCommit and OffsetFetch.

Offsets are committed under names, with the id of the topic that has the name now. Of a commit, the partitions
that exist are decided, and each gets its response.

A commit of very many partitions is divided, each part decided like a request of its own: each partition has
its own error code, and a batch of all would keep the loop for half a second. (Kafka makes one batch of it, on
a thread that serves other groups.)
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, NamedTuple
from uuid import UUID

from sparklog.executor.coordinators.groups.api.large_requests import answers_of
from sparklog.executor.coordinators.groups.machine.offsets import CommittedPartition, TopicErrors
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.registrations import PartitionRegistration
from sparklog.node.serving.requests import Deferred, Response
from sparklog.protocol.codec.steps import in_one_go, turn
from sparklog.protocol.errors import ErrorCode

FIRST_VERSION_WITH_TOPIC_IDS: Final = 10

SMALLEST_RECORD_BYTES: Final = 40
"""Lower bound of a committed offset's record: a commit that exceeds a batch by it is refused."""

AT_ONCE: Final = 64
"""Commits of at most so many topics and partitions are answered in one step."""

DECIDED_AT_ONCE: Final = 500
"""Partitions in one batch; some milliseconds of work."""

Topics = tuple[tuple[str, UUID | None, tuple[CommittedPartition, ...]], ...]


class NamedTopic(NamedTuple):
    named: Any
    """Name or id, as the response repeats it."""
    name: str
    topic_id: UUID | None
    partitions: Mapping[int, PartitionRegistration]
    error_code: ErrorCode
    """Error if there is no such topic."""


def named_topic(image: MetadataImage, topic: Any, *, by_id: bool) -> NamedTopic:
    if by_id:
        found = None if topic.topic_id is None else image.topics.by_id.get(topic.topic_id)
        if found is None:
            return NamedTopic(topic.topic_id, "", topic.topic_id, {}, ErrorCode.unknown_topic_id)
        return NamedTopic(topic.topic_id, found.name, found.topic_id, found.partitions, ErrorCode.none)
    found = image.topics.by_name.get(topic.name)
    if found is None:
        return NamedTopic(topic.name, topic.name, None, {}, ErrorCode.unknown_topic_or_partition)
    return NamedTopic(topic.name, topic.name, found.topic_id, found.partitions, ErrorCode.none)


class CommittedTopics(NamedTuple):
    """Topics and partitions of a commit, and those among them that exist."""

    topics: Topics
    asked: tuple[tuple[NamedTopic, tuple[tuple[int, ErrorCode], ...]], ...]
    """The partitions in the order of the request; those without an error are in `topics`."""

    async def answers(self, errors: TopicErrors) -> list[tuple[Any, list[tuple[int, ErrorCode]]]]:
        decided = chain.from_iterable(its_errors for _, its_errors in errors)
        answered = []
        for named, partitions in self.asked:
            await turn()
            rows = []
            for partition, error_code in partitions:
                await turn()
                rows.append(next(decided) if error_code is ErrorCode.none else (partition, error_code))
            answered.append((named.named, rows))
        return answered

    def refused(self, error_code: ErrorCode) -> TopicErrors:
        return all_refused(self.topics, error_code)

    def parts(self) -> Iterator[Topics]:
        part: list[tuple[str, UUID | None, tuple[CommittedPartition, ...]]] = []
        room = DECIDED_AT_ONCE
        for name, topic_id, partitions in self.topics:
            left = iter(partitions)
            while some := tuple(islice(left, room)):
                part.append((name, topic_id, some))
                room -= len(some)
                if not room:
                    yield tuple(part)
                    part, room = [], DECIDED_AT_ONCE
        if part:
            yield tuple(part)

    @property
    def item_count(self) -> int:
        return sum(1 + len(partitions) for _, partitions in self.asked)

    def fits(self, max_batch_bytes: int) -> bool:
        """Whether a batch may be able to hold it."""
        return self.item_count * SMALLEST_RECORD_BYTES <= max_batch_bytes


async def committed_topics(image: MetadataImage, body: Any, *, by_id: bool) -> CommittedTopics:
    topics = []
    asked = []
    for topic in body.topics:
        await turn()
        named = named_topic(image, topic, by_id=by_id)
        its_partitions = []
        committed = []
        for partition in topic.partitions:
            await turn()
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


def all_refused(topics: Topics, error_code: ErrorCode) -> TopicErrors:
    return [(topic, [(each.partition, error_code) for each in partitions]) for topic, _, partitions in topics]


async def answer_commit(
    checked: CommittedTopics,
    respond: Callable[[TopicErrors], Awaitable[Response]],
    submit: Callable[[Topics], Deferred],
) -> Response:
    """Answer a commit; `submit` passes topics to the coordinator, whose reply is their errors.

    Most commits have few partitions, and their response is built in one go.
    """
    if checked.item_count <= AT_ONCE:
        return in_one_go(respond(await submit(checked.topics)))
    decided = await answers_of(checked.parts(), submit)
    return await respond([*chain.from_iterable(decided)])

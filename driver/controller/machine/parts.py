"""Divides a change of very many topics into parts that are decided one after the other.

A decision about ten thousand topics would hold the controller's loop, and with it every broker's lease. So
what a request asks for is decided `TOPICS_PER_PART` topics at a time, each part on top of what was decided
before it, be it by others. A topic changes as a whole; a request of so many need not. What names the same
topic stays together, since naming it twice is a mistake. A request of few topics is its only part.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
from kio.schema.assign_replicas_to_dirs.v0.request import AssignReplicasToDirsRequest
from kio.schema.create_acls.v3.request import CreateAclsRequest
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.delete_acls.v3.request import DeleteAclsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest

from sparklog.driver.controller.machine.create_topics import refused_topics, too_many_partitions
from sparklog.errors import ErrorCode
from sparklog.wire.throttling import unthrottled

TOPICS_PER_PART: Final = 150

_PARTITIONS_OF_A_TOPIC: Final = 2
"""So many partitions that change count as a topic; one that is to be reassigned takes as long as one."""

_PARTITIONS_PER_PART: Final = TOPICS_PER_PART * _PARTITIONS_OF_A_TOPIC


class _Division(NamedTuple):
    asked: str
    """The field of the request that lists what is to change."""
    answered: str
    """The field of the response that lists what became of it."""
    key: Callable[[Any], Hashable]
    """What two items have in common that may not be apart."""
    pieces: Callable[[Any], Iterable[Any]] = lambda item: (item,)
    """What an item may be divided into."""
    size: Callable[[Any], int] = lambda _: 1
    """How many of a part's `TOPICS_PER_PART` an item stands for."""


_DIVISIONS: Final[dict[type[Any], _Division]] = {
    CreateTopicsRequest: _Division("topics", "topics", lambda topic: topic.name),
    DeleteTopicsRequest: _Division("topics", "responses", lambda topic: (topic.name, topic.topic_id)),
    CreateAclsRequest: _Division("creations", "results", id),
    DeleteAclsRequest: _Division("filters", "filter_results", id),
    CreatePartitionsRequest: _Division("topics", "results", lambda topic: topic.name),
    AlterConfigsRequest: _Division(
        "resources", "responses", lambda resource: (resource.resource_type, resource.resource_name)
    ),
    IncrementalAlterConfigsRequest: _Division(
        "resources", "responses", lambda resource: (resource.resource_type, resource.resource_name)
    ),
    AlterClientQuotasRequest: _Division(
        "entries",
        "entries",
        lambda entry: frozenset((part.entity_type, part.entity_name) for part in entry.entity[:4]),
    ),
    ElectLeadersRequest: _Division(
        "topic_partitions",
        "replica_election_results",
        lambda topic: (topic.topic, topic.partitions),
        lambda topic: _pieces(topic, _PARTITIONS_PER_PART),
        lambda topic: 1 + len(topic.partitions) // _PARTITIONS_OF_A_TOPIC,
    ),
    AlterPartitionRequest: _Division(
        "topics",
        "topics",
        id,
        lambda topic: _pieces(topic, _PARTITIONS_PER_PART),
        lambda topic: 1 + len(topic.partitions) // _PARTITIONS_OF_A_TOPIC,
    ),
    AssignReplicasToDirsRequest: _Division(
        "directories",
        "directories",
        id,
        lambda directory: _directory_pieces(directory),  # noqa: PLW0108  (it is defined below)
        lambda directory: (
            1 + sum(len(topic.partitions) for topic in directory.topics) // _PARTITIONS_OF_A_TOPIC
        ),
    ),
    AlterPartitionReassignmentsRequest: _Division(
        "topics",
        "responses",
        lambda topic: (topic.name, tuple(partition.partition_index for partition in topic.partitions)),
        lambda topic: _pieces(topic, TOPICS_PER_PART),
        lambda topic: max(1, len(topic.partitions)),
    ),
}


def parts_of(request: Any) -> Generator[None, None, Sequence[Any]]:
    """Return requests that together ask for what `request` does; itself, if it is small or indivisible.

    Yields after each piece of an item.
    """
    division = _DIVISIONS.get(type(request))
    asked = None if division is None else getattr(request, division.asked)
    if division is None or asked is None or _fits(division, asked):
        return [request]
    together: dict[Hashable, list[Any]] = {}
    for item in asked:
        for piece in division.pieces(item):
            yield
            together.setdefault(division.key(piece), []).append(piece)
    parts: list[list[Any]] = [[]]
    part_size = 0
    for items in together.values():
        yield
        size = sum(map(division.size, items))
        if parts[-1] and part_size + size > TOPICS_PER_PART:
            parts.append([])
            part_size = 0
        parts[-1] += items
        part_size += size
    return [replace(request, **{division.asked: tuple(part)}) for part in parts]


def _fits(division: _Division, asked: Sequence[Any]) -> bool:
    return len(asked) <= TOPICS_PER_PART and sum(map(division.size, asked)) <= TOPICS_PER_PART


def _pieces(topic: Any, size: int) -> Iterator[Any]:
    """Yield a topic as often as it takes to name all of its partitions, `size` at a time."""
    named = topic.partitions
    for start in range(0, max(1, len(named)), size):
        yield replace(topic, partitions=named[start : start + size])


def _directory_pieces(directory: Any) -> Iterator[Any]:
    """Yield a directory as often as it takes to name all of its replicas."""
    topics: list[Any] = []
    size = 0
    for topic in directory.topics:
        for piece in _pieces(topic, _PARTITIONS_PER_PART):
            if topics and size + len(piece.partitions) > _PARTITIONS_PER_PART:
                yield replace(directory, topics=tuple(topics))
                topics, size = [], 0
            topics.append(piece)
            size += len(piece.partitions)
    yield replace(directory, topics=tuple(topics))


def joined(request: Any, replies: Sequence[Any]) -> Generator[None, None, Any]:
    """Return the reply to a request of the replies to its parts, in their order; yield after each.

    A part that was refused as a whole stands for all: who asked asks again, and learns what was decided.
    """
    answered = _DIVISIONS[type(request)].answered
    items: list[Any] = []
    for reply in replies:
        if getattr(reply, "error_code", ErrorCode.none) is not ErrorCode.none:
            return reply
        items += getattr(reply, answered)
        yield
    return replace(replies[0], **{answered: tuple(items)})


def refused(part: Any) -> Any:
    """Return the reply to a part of a request that creates more partitions than one request may."""
    error = too_many_partitions()
    if isinstance(part, CreatePartitionsRequest):
        return unthrottled(
            CreatePartitionsResponse,
            results=tuple(
                CreatePartitionsTopicResult(
                    name=name, error_code=error.error_code, error_message=error.message
                )
                for name in dict.fromkeys(topic.name for topic in part.topics)
            ),
        )
    return refused_topics(part, error)

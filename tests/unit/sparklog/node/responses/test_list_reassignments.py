"""ListPartitionReassignments, of an image made by hand."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.list_partition_reassignments.v0.request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import PartitionRecord, TopicRecord
from sparklog.node.responses.list_reassignments import list_reassignments_response
from sparklog.protocol.codec.steps import in_one_go

MOVING = {"replicas": (3, 1, 2), "adding_replicas": (3,), "removing_replicas": (2,)}
STAYING = {"replicas": (1, 2)}


def image() -> MetadataImage:
    """Topics a and b with partitions 0 that stay; a's partition 1 is being moved."""
    records: list[Any] = []
    for number, (name, partitions) in enumerate([("a", (STAYING, MOVING)), ("b", (STAYING,))]):
        records.append(TopicRecord(name=name, topic_id=UUID(int=number + 1)))
        records += [
            PartitionRecord(
                partition_id=index,
                topic_id=UUID(int=number + 1),
                isr=(1, 2),
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=(),
                **fields,
            )
            for index, fields in enumerate(partitions)
        ]
    return replay_records(EMPTY_IMAGE, records, len(records), 1)[0]


@pytest.mark.parametrize(
    ("asked", "listed"),
    [
        (None, [("a", [1])]),
        ((), []),
        ((("a", (0, 1, 1, 9)), ("b", (0,)), ("nobody", (0,))), [("a", [1])]),
        ((("a", (0,)),), []),
    ],
)
def test_reassignments_are_listed_of_what_is_asked_for_and_only_while_they_go_on(
    asked: tuple[tuple[str, tuple[int, ...]], ...] | None, listed: list[tuple[str, list[int]]]
) -> None:
    """Kafka's tools take what is not listed for finished."""
    topics = None
    if asked is not None:
        topics = tuple(
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers) for name, numbers in asked
        )
    response = in_one_go(
        list_reassignments_response(image(), ListPartitionReassignmentsRequest(topics=topics))
    )
    found = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics]
    assert found == listed
    for topic in response.topics:
        for each in topic.partitions:
            assert (each.replicas, each.adding_replicas, each.removing_replicas) == ((3, 1, 2), (3,), (2,))

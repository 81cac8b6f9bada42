"""Partitions without a leader: lists wait for those that may have one soon."""

from uuid import UUID

import pytest

from sparklog.executor.coordinators.machine.missing_leaders import awaits_leader
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import PartitionRecord, RegisterBrokerRecord, TopicRecord

TOPIC_ID = UUID(int=1)


def image_with(leader: int, replicas: tuple[int, ...]) -> MetadataImage:
    """Return an image with broker 0 live, broker 1 fenced, and a topic of one partition."""
    records = [
        *(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=UUID(int=10 + broker_id),
                broker_epoch=broker_id,
                end_points=(),
                features=(),
                rack=None,
                fenced=broker_id == 1,
                log_dirs=(),
            )
            for broker_id in (0, 1)
        ),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=replicas,
            isr=(replicas[0],),
            leader=leader,
            leader_epoch=0,
            partition_epoch=0,
            directories=(),
        ),
    ]
    return replay_records(EMPTY_IMAGE, records, len(records) - 1, 1)[0]


@pytest.mark.parametrize(
    ("leader", "replicas", "awaited"),
    [(0, (0, 1), False), (-1, (0, 1), True), (-1, (1,), False), (-1, (1, 7), False)],
)
def test_leader_is_awaited_while_a_live_broker_has_a_replica(
    leader: int, replicas: tuple[int, ...], awaited: bool
) -> None:
    """A partition whose replicas are all away must not keep every other group from being listed."""
    assert awaits_leader(image_with(leader, replicas), "t") is awaited
    assert not awaits_leader(image_with(leader, replicas), "no-topic")

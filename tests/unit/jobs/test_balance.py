"""The command that shows what balancing would move."""

import json
from typing import Any
from uuid import UUID

from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from sparklog.jobs.balance import as_json, lines, planned
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_size import ConfiguredSize


def metadata(replicas: list[tuple[int, ...]], *, brokers: range) -> Any:
    """Return the answer of a cluster with one topic, whose first live replicas lead."""
    return unthrottled(
        MetadataResponse,
        brokers=tuple(
            MetadataResponseBroker(node_id=each, host="h", port=1, rack=f"rack-{each}") for each in brokers
        ),
        cluster_id="c",
        controller_id=0,
        topics=(
            MetadataResponseTopic(
                error_code=ErrorCode.none,
                name="t",
                topic_id=UUID(int=1),
                is_internal=False,
                partitions=tuple(
                    MetadataResponsePartition(
                        error_code=ErrorCode.none,
                        partition_index=number,
                        leader_id=next((each for each in nodes if each in brokers), -1),
                        leader_epoch=0,
                        replica_nodes=nodes,
                        isr_nodes=nodes,
                        offline_replicas=(),
                    )
                    for number, nodes in enumerate(replicas)
                ),
                topic_authorized_operations=0,
            ),
        ),
    )


def test_plan_for_a_broker_that_is_away_is_a_file_for_kafkas_tool() -> None:
    """With balancing off, the plan is carried out by a human."""
    moves, names = planned(
        metadata([(3, 0), (0, 1), (1, 2)], brokers=range(3)), frozenset(), ConfiguredSize()
    )
    assert json.loads(as_json(moves, names)) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 0]}],
    }
    assert lines(moves, names) == [
        "t-0: 3,0 -> 2,0 (replicas on brokers that stay)",
        "1 partitions would change, 1 replicas would be copied.",
    ]


def test_plan_leaves_partitions_alone_that_are_reassigned_or_have_no_leader() -> None:
    """They do not move by themselves either."""
    response = metadata([(3, 0), (3, 4)], brokers=range(3))
    moves, names = planned(response, frozenset({TopicPartition("t", 0)}), ConfiguredSize())
    assert moves == []
    assert lines(moves, names) == ["The cluster is balanced: nothing would move."]


def test_plan_moves_nothing_to_or_off_brokers_that_leave_the_cluster() -> None:
    """The cluster drains these itself, and would take back what was moved there."""
    response = metadata([(0, 1), (0, 1), (0, 1), (0, 1), (2, 3)], brokers=range(4))
    moves, _ = planned(response, frozenset(), ConfiguredSize(racks=3))
    assert moves
    assert not any(3 in move.before or 3 in move.after for move in moves)

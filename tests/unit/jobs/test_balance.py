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

from sparklog.driver.controller.machine.balancing.disks import DiskVolume, MeasuredDisks
from sparklog.jobs.balance import as_json, lines, planned
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, TopicPartition
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
    found = planned(metadata([(3, 0), (0, 1), (1, 2)], brokers=range(3)), frozenset(), ConfiguredSize(), {})
    assert json.loads(as_json(found)) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 0]}],
    }
    assert lines(found) == [
        "t-0: 3,0 -> 2,0 (replicas on brokers that stay)",
        "1 partitions would change, 1 replicas would be copied.",
        "",
        "broker  disk in use  replicas  preferred leader of",
        "     0            –         2                    1",
        "     1            –         2                    1",
        "     2            –    1 -> 2               0 -> 1",
        "     3            –    1 -> 0               1 -> 0",
        "Disks are not looked at: brokers 0, 1, 2 have not described theirs.",
    ]


def test_plan_leaves_partitions_alone_that_are_reassigned_or_have_no_leader() -> None:
    """They do not move by themselves either."""
    response = metadata([(3, 0), (3, 4)], brokers=range(3))
    found = planned(response, frozenset({TopicPartition("t", 0)}), ConfiguredSize(), {})
    assert found.moves == []
    assert lines(found) == [
        "The cluster is balanced: nothing would move.",
        "Disks are not looked at: brokers 0, 1, 2 have not described theirs.",
    ]


def test_plan_moves_nothing_to_or_off_brokers_that_leave_the_cluster() -> None:
    """The cluster drains these itself, and would take back what was moved there."""
    response = metadata([(0, 1), (0, 1), (0, 1), (0, 1), (2, 3)], brokers=range(4))
    moves = planned(response, frozenset(), ConfiguredSize(racks=3), {}).moves
    assert moves
    assert not any(3 in move.before or 3 in move.after for move in moves)


def test_plan_of_disks_shows_the_share_of_each_before_and_after() -> None:
    """A move of 300 MiB has to be worth it."""
    sizes = {0: 300, 1: 260, 2: 10, 3: 5}
    replicas = [(0,), (0,), (0,), (1,)]
    response = metadata(replicas, brokers=range(2))
    disks = {each: _disk(each, sizes, replicas, capacity=1_000) for each in range(2)}
    found = planned(response, frozenset(), ConfiguredSize(), disks)
    assert lines(found) == [
        "t-0: 0 -> 1 (disks equally full, 300.0 MiB)",
        "1 partitions would change, 1 replicas would be copied, 300.0 MiB.",
        "",
        "broker     disk in use  replicas  preferred leader of",
        "     0  57.0% -> 27.0%    3 -> 2               3 -> 2",
        "     1   0.5% -> 30.5%    1 -> 2               1 -> 2",
    ]


def _disk(
    broker_id: BrokerId, sizes_mib: dict[int, int], replicas: list[tuple[int, ...]], *, capacity: int
) -> MeasuredDisks:
    held = {
        TopicPartition("t", number): sizes_mib[number] << 20
        for number, nodes in enumerate(replicas)
        if broker_id in nodes
    }
    used = sum(held.values())
    return MeasuredDisks({broker_id: DiskVolume(used, (capacity << 20) - used)}, held, 0)

"""The command `sparklog-balance BOOTSTRAP`: show which replicas the cluster's balancing would move.

A dry run: nothing is changed. Brokers that are away count as lost. Partitions that are being reassigned, have
no leader, or have a replica on a broker beyond the configured size of the cluster stay where they are. With
--json the plan is printed as the file that `kafka-reassign-partitions.sh --execute` takes, for a cluster with
sparklog.balance.enable=false.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest

from sparklog.driver.controller.machine.balancing.moves import Move, Surroundings
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.driver.controller.machine.balancing.plan import plan
from sparklog.jobs.command_config import add_command_config, check_answers, command_client
from sparklog.node.printable import printable
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TopicIdPartition, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.cluster_size import ConfiguredSize, configured_size

_TIMEOUT: Final = timedelta(seconds=10)
_NO_LEADER: Final = -1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparklog-balance", description=__doc__)
    parser.add_argument("bootstrap", metavar="BOOTSTRAP", help="host:port, several with commas")
    parser.add_argument(
        "--json", action="store_true", help="print the file for kafka-reassign-partitions.sh --execute"
    )
    add_command_config(parser)
    options = parser.parse_args(arguments)
    try:
        config = command_client(options.bootstrap, options.command_config)
        check_answers(config)
        with ClusterClient(config) as client:
            moves, names = planned(client.metadata(), _reassigned(client), configured_size(client))
    except (KafkaError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join([as_json(moves, names)] if options.json else lines(moves, names)))
    return 0


def planned(
    metadata: Any, reassigned: frozenset[TopicPartition], size: ConfiguredSize
) -> tuple[list[Move], dict[TopicIdPartition, TopicPartition]]:
    """Return the plan for a cluster's Metadata response, and the partitions' names."""
    racks = {broker.node_id: broker.rack for broker in metadata.brokers}
    surplus = size.surplus(racks)
    placed = PlacedReplicas()
    names: dict[TopicIdPartition, TopicPartition] = {}
    fixed: set[TopicIdPartition] = set()
    for topic in metadata.topics:
        for partition in topic.partitions:
            key = TopicIdPartition(topic.topic_id, partition.partition_index)
            names[key] = TopicPartition(topic.name, partition.partition_index)
            placed.place(key, tuple(partition.replica_nodes))
            leaves = not surplus.isdisjoint(partition.replica_nodes)
            if partition.leader_id == _NO_LEADER or names[key] in reassigned or leaves:
                fixed.add(key)
    away = {broker_id for broker_id, held in placed.held.items() if held} - racks.keys()
    staying = {broker_id: rack for broker_id, rack in racks.items() if broker_id not in surplus}
    return plan(placed, Surroundings(staying, may_move=lambda key: key not in fixed), away), names


def lines(moves: Sequence[Move], names: dict[TopicIdPartition, TopicPartition]) -> list[str]:
    if not moves:
        return ["The cluster is balanced: nothing would move."]
    copied = sum(len(move.added) for move in moves)
    return [
        *(
            f"{printable(str(names[move.partition]))}: {_brokers(move.before)} -> {_brokers(move.after)}"
            f" ({move.goal.value})"
            for move in moves
        ),
        f"{len(moves)} partitions would change, {copied} replicas would be copied.",
    ]


def as_json(moves: Sequence[Move], names: dict[TopicIdPartition, TopicPartition]) -> str:
    """Return the plan as Kafka's reassignment file."""
    partitions = [
        {
            "topic": names[move.partition].topic,
            "partition": move.partition.partition,
            "replicas": list(move.after),
        }
        for move in moves
    ]
    return json.dumps({"version": 1, "partitions": partitions}, indent=1)


def _brokers(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))


def _reassigned(client: ClusterClient) -> frozenset[TopicPartition]:
    response = client.ask_any(ListPartitionReassignmentsRequest(timeout=_TIMEOUT, topics=None))
    if response.error_code != ErrorCode.none:
        raise KafkaError(ErrorCode(response.error_code), f"listing reassignments: {response.error_message}")
    return frozenset(
        TopicPartition(topic.name, partition.partition_index)
        for topic in response.topics
        for partition in topic.partitions
    )


if __name__ == "__main__":
    sys.exit(main())

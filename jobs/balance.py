"""The command `sparklog-balance BOOTSTRAP`: show which replicas the cluster's balancing would move.

A dry run: nothing is changed. Each line has a partition's replicas before and after, and the goal that moves
them. A table has the use of each broker's disks, its replicas and its leaderships before and after. Brokers
that are away count as lost. Partitions that are being reassigned, have no leader, or have a replica on a
broker beyond the configured size of the cluster stay where they are. With --json the plan is printed as the
file that `kafka-reassign-partitions.sh --execute` takes, for a cluster with sparklog.balance.enable=false.

The use of brokers' disks by their answers to DescribeLogDirs (KIP-113, KIP-827).

The answers do not name file systems. Directories of one host count as in one file system if its size is the
same and its free space nearly so, and if all of their logs fit into the space that is used.
"""

import argparse
import json
import sys
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest

from sparklog.driver.controller.machine.balancing.disks import DiskVolume, MeasuredDisks
from sparklog.driver.controller.machine.balancing.moves import Move, Surroundings
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.driver.controller.machine.balancing.plan import plan
from sparklog.driver.ui.pages.number_formats import NONE, size
from sparklog.jobs.command_config import add_command_config, check_answers, command_client
from sparklog.node.printable import printable
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, TopicIdPartition, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.cluster_size import ConfiguredSize, configured_size
from sparklog.user.client.log_dirs import BrokerDirectories, OnlineDirectory, describe_log_dirs

_SAME_FREE_PART: Final = 0.001
"""The difference of free space, as a part of the size, that may come about between two answers."""


@dataclass(slots=True, eq=False)
class _FileSystem:
    host: str
    total_bytes: int
    free_bytes: int
    log_bytes: int = 0
    """The logs of all directories that it is known to hold."""

    def may_hold(self, host: str, directory: OnlineDirectory) -> bool:
        total, free = directory.total_bytes, directory.usable_bytes
        if (host, total) != (self.host, self.total_bytes) or free is None:
            return False
        is_as_free = abs(free - self.free_bytes) <= _SAME_FREE_PART * self.total_bytes
        return is_as_free and self.log_bytes + directory.log_bytes <= self.total_bytes - self.free_bytes


def described_disks(
    directories: Mapping[BrokerId, BrokerDirectories], hosts: Mapping[BrokerId, str]
) -> dict[BrokerId, MeasuredDisks]:
    """Return the disks of those brokers that have described them in full; `hosts` are their addresses."""
    found: list[_FileSystem] = []
    disks: dict[BrokerId, MeasuredDisks] = {}
    for broker_id, described in sorted(directories.items()):
        volumes: dict[Hashable, DiskVolume] = {}
        for directory in described.online:
            total, free = directory.total_bytes, directory.usable_bytes
            if total is None or free is None:
                break
            holding = [each for each in found if each.may_hold(hosts[broker_id], directory)]
            if not holding:
                holding = [_FileSystem(hosts[broker_id], total, free)]
                found += holding
            file_system = holding[0]
            file_system.log_bytes += directory.log_bytes
            volume = found.index(file_system)
            others = volumes.get(volume, DiskVolume(0, 0))
            volumes[volume] = DiskVolume(others.log_bytes + directory.log_bytes, file_system.free_bytes)
        else:
            if volumes:
                disks[broker_id] = MeasuredDisks(volumes, described.sizes, 0)
    return disks


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
            metadata = client.metadata()
            hosts = {broker.node_id: broker.host for broker in metadata.brokers}
            disks = described_disks(describe_log_dirs(client, hosts, None), hosts)
            found = planned(metadata, _reassigned(client), configured_size(client), disks)
    except (KafkaError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join([as_json(found)] if options.json else lines(found)))
    return 0


class BrokerUse(NamedTuple):
    disk_share: float | None
    """The part of the space for logs that logs take; None if that of some broker is not known."""
    held: int
    """The number of replicas."""
    led: int
    """The number of partitions of which it is the preferred leader."""


class Planned(NamedTuple):
    moves: list[Move]
    names: Mapping[TopicIdPartition, TopicPartition]
    sizes: Mapping[TopicIdPartition, int]
    """The bytes of a replica of each moved partition, 0 if not known."""
    before: Mapping[BrokerId, BrokerUse]
    after: Mapping[BrokerId, BrokerUse]
    unknown: Sequence[BrokerId]
    """The brokers whose disks are not known."""


def planned(
    metadata: Any,
    reassigned: frozenset[TopicPartition],
    configured: ConfiguredSize,
    disks: Mapping[BrokerId, MeasuredDisks],
) -> Planned:
    racks = {broker.node_id: broker.rack for broker in metadata.brokers}
    surplus = configured.surplus(racks)
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
    topic_ids: dict[str, UUID] = {topic.name: topic.topic_id for topic in metadata.topics}
    placed.disks.note_time(0, 0)
    for broker_id, measured in disks.items():
        placed.disks.reported(broker_id, measured.report(topic_ids.get, len(placed.held.get(broker_id, ()))))
    away = {broker_id for broker_id, held in placed.held.items() if held} - racks.keys()
    staying = {broker_id: rack for broker_id, rack in racks.items() if broker_id not in surplus}
    before = _uses(placed, staying, away)
    moves = plan(placed, Surroundings(staying, may_move=lambda key: key not in fixed), away)
    return Planned(
        moves,
        names,
        {move.partition: placed.disks.size_of(move.partition, move.before) for move in moves},
        before,
        _uses(placed, staying, away),
        sorted(staying.keys() - disks.keys()),
    )


def _uses(
    placed: PlacedReplicas, staying: Collection[BrokerId], away: Collection[BrokerId]
) -> dict[BrokerId, BrokerUse]:
    limits = placed.disks.limits(staying)
    return {
        each: BrokerUse(
            None if limits is None or each in away else limits.share_of(each),
            len(placed.held.get(each, ())),
            placed.led[each],
        )
        for each in sorted({*staying, *away})
    }


def lines(planned: Planned) -> list[str]:
    unknown = ", ".join(map(str, planned.unknown))
    notes = [f"Disks are not looked at: brokers {unknown} have not described theirs."] if unknown else []
    if not planned.moves:
        return ["The cluster is balanced: nothing would move.", *notes]
    copies = [planned.sizes[move.partition] for move in planned.moves for _ in move.added]
    return [
        *(_line(planned, move) for move in planned.moves),
        f"{len(planned.moves)} partitions would change, {len(copies)} replicas would be copied"
        f"{_size(sum(copies))}.",
        "",
        *_table(planned),
        *notes,
    ]


def _line(planned: Planned, move: Move) -> str:
    name = printable(str(planned.names[move.partition]))
    size_bytes = planned.sizes[move.partition] if move.added else 0
    return f"{name}: {_brokers(move.before)} -> {_brokers(move.after)} ({move.goal.value}{_size(size_bytes)})"


def _size(size_bytes: int) -> str:
    return f", {size(size_bytes)}" if size_bytes else ""


def _table(planned: Planned) -> list[str]:
    """Return a line for each broker, with what it has before and after; one number where that is the same."""
    rows = [("broker", "disk in use", "replicas", "preferred leader of")]
    for broker_id, before in planned.before.items():
        after = planned.after[broker_id]
        rows.append(
            (
                str(broker_id),
                _change(_percent(before.disk_share), _percent(after.disk_share)),
                _change(str(before.held), str(after.held)),
                _change(str(before.led), str(after.led)),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)) for row in rows]


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{share:.1%}"


def as_json(planned: Planned) -> str:
    """Return the plan as Kafka's reassignment file."""
    partitions = [
        {
            "topic": planned.names[move.partition].topic,
            "partition": move.partition.partition,
            "replicas": list(move.after),
        }
        for move in planned.moves
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

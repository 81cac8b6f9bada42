"""What it means that a cluster is well again: everybody there, in sync, acknowledged and read."""

from typing import TYPE_CHECKING

from sparklog.node.metadata.image import PartitionRegistration
from sparklog.node.metadata.partition_for import coordinator_partition
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.types import TopicIdPartition
from tests.simulation.balancing import unbalanced
from tests.simulation.clients import Consumer, Producer

if TYPE_CHECKING:
    from tests.simulation.cluster import World


def unsettled(world: "World") -> tuple[str, TopicIdPartition | None] | None:
    """Say what is not well yet, and which partition it is about; None when all is."""
    if world.controller.active_controller is None:
        return "nobody leads the metadata log", None
    image = world.metadata.image
    for broker_id in world.disks:
        registration = image.brokers.get(broker_id)
        if registration is None or registration.fenced:
            return f"broker {broker_id} is not unfenced", None
        broker = world.brokers.get(broker_id)
        if broker is None or broker.image.offset != image.offset:
            return f"broker {broker_id} is behind with the metadata log", None
    for name in world.topics:
        topic = image.topics.by_name.get(name)
        if topic is None:
            return f"there is no {name}", None
        if len(topic.partitions) < world.topics[name].partitions:
            return f"{name} has {len(topic.partitions)} partitions", None
        for number, partition in topic.partitions.items():
            key = TopicIdPartition(topic.topic_id, number)
            if _is_gone(world, partition):
                continue
            if partition.leader is None or set(partition.isr) != set(partition.replicas):
                return f"{name}-{number} has leader {partition.leader}, ISR {partition.isr}", key
            if partition.is_reassigning:
                return f"{name}-{number} adds {partition.adding_replicas} for ever", key
            for broker_id in partition.replicas:
                replica = world.replica(broker_id, key)
                ends = (replica.high_watermark, replica.log.log_end_offset)
                leader = world.replica(partition.leader, key)
                if ends != (leader.log.log_end_offset,) * 2:
                    return f"broker {broker_id} has {name}-{number} up to {ends}", key
    clients: list[Producer | Consumer] = [*world.producers, *world.consumers]
    for client in clients:
        topic = image.topics.by_name[client.topic]
        key = TopicIdPartition(topic.topic_id, client.partition)
        if _is_gone(world, topic.partitions[client.partition]):
            continue
        if isinstance(client, Producer) and not client.is_idle:
            return f"a producer of {client.topic}-{client.partition} waits", key
        leader_id = topic.partitions[client.partition].leader
        assert leader_id is not None
        end_offset = world.replica(leader_id, key).log.log_end_offset
        if isinstance(client, Consumer) and client.position(key) < end_offset:
            return f"the consumer of {client.topic}-{client.partition} is behind", key
    for group in world.group_clients:
        if not group.has_settled and not _has_no_coordinator(world, group.group_id):
            return f"{group.group_id} has not read what it committed", group.key
    for members in world.member_groups:
        stamp = members.stamp()
        problem = members.unsettled()
        if problem is not None and not _has_no_coordinator(world, members.group_id):
            return problem, None if stamp is None else stamp[0]
    return _unsettled_transactions(world) or (unbalanced(world) if world.balances_alone else None)


def _has_no_coordinator(world: "World", group_id: str) -> bool:
    """Whether the partition of a group's coordinator waits for ever, be it that nobody has ever found it."""
    found = coordinator_partition(world.metadata.image, CONSUMER_OFFSETS_TOPIC, group_id)
    return found is not None and _is_gone(world, found[1])


def _unsettled_transactions(world: "World") -> tuple[str, TopicIdPartition | None] | None:
    """Say whose transaction may be open, or is not read; nothing if a coordinator may have lost it."""
    if world.has_lost:
        return None
    for client in world.transaction_clients:
        if not client.has_settled:
            return f"a client of {client.transactional_id} is not done", None
    if world.sinks is not None and (problem := world.sinks.unsettled()) is not None:
        return problem, None
    for reader in world.committed_readers:
        registration = world.decided(reader.key)
        assert registration is not None
        assert registration.leader is not None
        end_offset = world.replica(registration.leader, reader.key).log.log_end_offset
        if reader.position < end_offset:
            return f"a reader of what is committed has read up to {reader.position}", reader.key
    return None


def _is_gone(world: "World", partition: PartitionRegistration) -> bool:
    """Whether no disk is left that may have anything of a partition, so that it waits for ever."""
    return partition.leader is None and not any(
        partition.directory_of(broker_id) == world.disks[broker_id].directory_id
        for broker_id in partition.replicas
    )


def waits_for_the_lost(world: "World", partition: PartitionRegistration) -> bool:
    """Whether a partition waits for brokers that come back with other disks only."""
    return partition.leader is None and not any(
        partition.directory_of(broker_id) == world.disks[broker_id].directory_id
        for broker_id in (*partition.isr, *partition.elr, *partition.last_known_elr)
        if broker_id in partition.replicas
    )

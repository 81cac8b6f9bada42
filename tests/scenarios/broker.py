"""One broker of a story: what is left of it when it is down, and what it is while it is up."""

from dataclasses import dataclass, field
from uuid import UUID

from kio.schema.alter_partition.v3 import AlterPartitionRequest
from kio.schema.alter_partition.v3.request import BrokerState as IsrMember
from kio.schema.alter_partition.v3.request import PartitionData, TopicData

from sparklog.executor.control.machine.broker_lifecycle import BrokerIdentity, BrokerLifecycle
from sparklog.executor.partitions.machine.events import ProposeIsr
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.features import SUPPORTED_FEATURES
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.registrations import FeatureRange
from sparklog.protocol.types import BrokerEpoch, BrokerId, TopicIdPartition
from tests.scenarios.replica import Log, Replica
from tests.unit.driver.controller.conversation import CLUSTER_ID


@dataclass
class Disk:
    """What is left of a broker while it is down."""

    directory_id: UUID
    logs: dict[TopicIdPartition, Log] = field(default_factory=dict)
    previous_broker_epoch: BrokerEpoch | None = None
    """Under which it has all that it had acknowledged; None once the machine has crashed (KIP-966)."""


@dataclass
class Broker:
    """A process: its lifecycle, what it knows, and its replica."""

    broker_id: BrokerId
    disk: Disk
    lifecycle: BrokerLifecycle
    image: MetadataImage
    replicas: dict[TopicIdPartition, Replica] = field(default_factory=dict)
    is_cut_off: bool = False
    hears_metadata: bool = True
    held_lease: bool = True


def new_lifecycle(broker_id: BrokerId, disk: Disk, image: MetadataImage, now_ms: int) -> BrokerLifecycle:
    """Return the life of the next incarnation of a broker over its disk."""
    identity = BrokerIdentity(
        cluster_id=CLUSTER_ID,
        node_id=broker_id,
        incarnation_id=UUID(int=1 + image.end_offset),
        rack=f"rack-{broker_id}",
        listeners=(Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
        features=tuple((name, FeatureRange(*levels)) for name, levels in SUPPORTED_FEATURES.items()),
        log_directories=(disk.directory_id,),
        previous_broker_epoch=disk.previous_broker_epoch,
    )
    disk.previous_broker_epoch = None
    return BrokerLifecycle(
        identity,
        heartbeat_interval_ms=500,
        session_timeout_ms=3_000,
        registration_timeout_ms=60_000,
        controlled_shutdown_timeout_ms=10_000,
        now_ms=now_ms,
    )


def role(broker: Broker | None, key: TopicIdPartition) -> str:
    """Return what a broker does in a partition."""
    if broker is None:
        return "down"
    replica = broker.replicas.get(key)
    if replica is None:
        return "knows nothing of it"
    if replica.leader is not None:
        return f"leads in epoch {replica.leader_epoch}" + ("" if broker.held_lease else ", without a lease")
    leader_id = None if replica.follower is None else replica.follower.leader_id
    leader = "nobody" if leader_id is None else f"broker {leader_id}"
    return f"follows {leader} in epoch {replica.leader_epoch}"


def alter_partition_request(
    broker: Broker, key: TopicIdPartition, proposal: ProposeIsr
) -> AlterPartitionRequest:
    """Return the request that takes a leader's proposal to the controller."""
    members = tuple(
        IsrMember(broker_id=broker_id, broker_epoch=-1 if epoch is None else epoch)
        for broker_id, epoch in proposal.new_isr
    )
    assert broker.lifecycle.broker_epoch is not None
    return AlterPartitionRequest(
        broker_id=broker.broker_id,
        broker_epoch=broker.lifecycle.broker_epoch,
        topics=(
            TopicData(
                topic_id=key.topic_id,
                partitions=(
                    PartitionData(
                        partition_index=key.partition,
                        leader_epoch=proposal.leader_epoch,
                        new_isr_with_epochs=members,
                        partition_epoch=proposal.partition_epoch,
                    ),
                ),
            ),
        ),
    )

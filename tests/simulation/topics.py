"""What a simulation's topics are given, and what administrators ask for."""

from datetime import timedelta
from typing import Any, Final, NamedTuple

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from sparklog.node.metadata.image import ResourceType
from sparklog.node.metadata.topic_names import is_internal_topic
from sparklog.protocol.types import BrokerId
from sparklog.user.sink.decisions_topic import DECISIONS_TOPIC

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
_UNCLEAN: Final = 1


class TopicPlan(NamedTuple):
    """How a topic is created."""

    name: str
    partitions: int
    replicas: int
    min_insync_replicas: int
    unclean_elections: bool

    def creation(self) -> Any:
        """Return the request that creates it."""
        configs = {
            MIN_INSYNC_REPLICAS: str(self.min_insync_replicas),
            UNCLEAN_ELECTION: str(self.unclean_elections).lower(),
        }
        if is_internal_topic(self.name) or self.name == DECISIONS_TOPIC:
            configs["cleanup.policy"] = "compact"
        topic = CreatableTopic(
            name=self.name,
            num_partitions=self.partitions,
            replication_factor=self.replicas,
            assignments=(),
            configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
        )
        return CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=1))


def deletion(name: str) -> Any:
    """Return the request that deletes a topic."""
    return DeleteTopicsRequest(
        topics=(DeleteTopicState(name=name, topic_id=None),), timeout=timedelta(seconds=1)
    )


def growth(name: str, partitions: int) -> Any:
    """Return the request that gives a topic as many partitions."""
    topic = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    return CreatePartitionsRequest(topics=(topic,), timeout=timedelta(seconds=1), validate_only=False)


def configuration(name: str, key: str, value: str) -> Any:
    """Return the request that changes one key of a topic's configuration."""
    config = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(
        resource_type=int(ResourceType.TOPIC), resource_name=name, configs=(config,)
    )
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def unclean_election(topic: str, partition: int) -> Any:
    """Return the request that prefers any leader to none."""
    partitions = TopicPartitions(topic=topic, partitions=(partition,))
    return ElectLeadersRequest(
        election_type=_UNCLEAN, topic_partitions=(partitions,), timeout=timedelta(seconds=1)
    )


def reassignment(topic: str, partition: int, target: tuple[BrokerId, ...] | None) -> Any:
    """Return the request that moves a partition; to None it calls off what another has begun."""
    partitions = (ReassignablePartition(partition_index=partition, replicas=target),)
    return AlterPartitionReassignmentsRequest(
        timeout=timedelta(seconds=1), topics=(ReassignableTopic(name=topic, partitions=partitions),)
    )

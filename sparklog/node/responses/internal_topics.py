"""Configuration of the coordinators' internal topics: compacted, with their own partition counts.

Source: Kafka's AutoTopicCreationManager, GroupCoordinatorService.groupMetadataTopicConfigs,
TransactionStateManager.transactionTopicConfigs.
"""

from collections.abc import Mapping

from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig

from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

_CLEANUP_POLICY = "cleanup.policy"
_COMPACT = "compact"


def creatable_internal_topic(name: str, config: BrokerConfig) -> CreatableTopic | None:
    """Return the creation parameters of a coordinator's topic; None for other topics."""
    if name == CONSUMER_OFFSETS_TOPIC:
        return _creatable(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {"compression.type": "producer", "segment.bytes": str(config.offsets_topic_segment_bytes)},
        )
    if name == TRANSACTION_STATE_TOPIC:
        return _creatable(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    return None


def is_as_its_owner_makes_it(topic: CreatableTopic) -> bool:
    """Whether a topic is requested as its coordinator would: other clients do not set compaction."""
    configs = {config.name: config.value for config in topic.configs}
    return (
        topic.name in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)
        and configs.get(_CLEANUP_POLICY) == _COMPACT
    )


def _creatable(
    name: str, partition_count: int, replication_factor: int, configs: Mapping[str, str]
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        assignments=(),
        configs=tuple(
            CreatableTopicConfig(name=key, value=value)
            for key, value in {_CLEANUP_POLICY: _COMPACT, **configs}.items()
        ),
    )

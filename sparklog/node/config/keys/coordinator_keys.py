"""The broker keys of the coordinators' own topics: their partitions, loading and writes."""

from dataclasses import dataclass

from sparklog.node.config.key_table import broker_key


@dataclass(frozen=True, kw_only=True)
class CoordinatorKeys:
    offsets_topic_num_partitions: int = broker_key("offsets.topic.num.partitions")
    offsets_topic_replication_factor: int = broker_key("offsets.topic.replication.factor")
    offsets_topic_segment_bytes: int = broker_key("offsets.topic.segment.bytes")
    offsets_topic_compression_codec: int = broker_key("offsets.topic.compression.codec")
    offsets_load_buffer_size: int = broker_key("offsets.load.buffer.size")
    offsets_commit_timeout_ms: int = broker_key("offsets.commit.timeout.ms")
    transaction_state_log_num_partitions: int = broker_key("transaction.state.log.num.partitions")
    transaction_state_log_replication_factor: int = broker_key("transaction.state.log.replication.factor")
    transaction_state_log_min_isr: int = broker_key("transaction.state.log.min.isr")
    transaction_state_log_segment_bytes: int = broker_key("transaction.state.log.segment.bytes")
    transaction_state_log_load_buffer_size: int = broker_key("transaction.state.log.load.buffer.size")

"""The broker keys of the coordinators' own topics: their partitions, loading and writes."""

from dataclasses import dataclass

from sparklog.node.config.definition import INT, SHORT, at_least, between, config_key


@dataclass(frozen=True, kw_only=True)
class CoordinatorKeys:
    offsets_topic_num_partitions: int = config_key(
        INT,
        50,
        "How many partitions __consumer_offsets gets when it is created; must not change afterwards.",
        at_least(1),
    )
    offsets_topic_replication_factor: int = config_key(
        SHORT,
        3,
        "The replicas of each partition of __consumer_offsets: the number of racks, at most 3, if not set.",
        at_least(1),
    )
    offsets_topic_segment_bytes: int = config_key(
        INT,
        104857600,
        "The segment.bytes of __consumer_offsets: small, so that it is compacted early and loaded fast.",
        at_least(1),
    )
    offsets_topic_compression_codec: int = config_key(
        INT,
        0,
        "The number of the codec with which the group coordinator compresses its records.",
        between(0, 4),
    )
    offsets_load_buffer_size: int = config_key(
        INT,
        5242880,
        "How many bytes of __consumer_offsets are read at a time when a partition is loaded.",
        at_least(1),
    )
    offsets_commit_timeout_ms: int = config_key(
        INT,
        5000,
        "How long records of the group coordinator may take to be replicated before the client gets a"
        " retriable error.",
        at_least(1),
    )
    transaction_state_log_num_partitions: int = config_key(
        INT,
        50,
        "How many partitions __transaction_state gets when it is created; must not change afterwards.",
        at_least(1),
    )
    transaction_state_log_replication_factor: int = config_key(
        SHORT,
        3,
        "The replicas of each partition of __transaction_state: the number of racks, at most 3, if not set.",
        at_least(1),
    )
    transaction_state_log_min_isr: int = config_key(
        INT,
        2,
        "The min.insync.replicas of __transaction_state; never more than a partition has replicas.",
        at_least(1),
    )
    transaction_state_log_segment_bytes: int = config_key(
        INT, 104857600, "The segment.bytes of __transaction_state.", at_least(1)
    )
    transaction_state_log_load_buffer_size: int = config_key(
        INT,
        5242880,
        "How many bytes of __transaction_state are read at a time when a partition is loaded.",
        at_least(1),
    )

"""A topic's configuration, over the broker's."""

import pytest

from sparklog.node.config import TOPIC_KEYS, BrokerConfig, ConfigError, checked_topic_config, topic_config
from sparklog.node.config.topic import TOPIC_ATTRIBUTES, TopicConfig
from sparklog.node.storage.log_config import LogConfig

DEFAULTS = BrokerConfig.from_mapping({})


def test_topic_config_of_nothing_equals_its_defaults() -> None:
    """The dataclass and a cluster without configuration say the same."""
    config = topic_config(DEFAULTS, {})
    assert config == TopicConfig()
    assert (config.retention_ms, config.retention_bytes, config.segment_ms) == (604800000, None, 604800000)
    assert (config.max_message_bytes, config.min_insync_replicas) == (1048588, 1)


@pytest.mark.parametrize(
    ("broker", "attribute", "expected"),
    [
        ({"log.retention.hours": "2"}, "retention_ms", 7200000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention_ms", 180000),
        (
            {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"},
            "retention_ms",
            4,
        ),
        ({"log.retention.hours": "2", "log.retention.ms": "-1"}, "retention_ms", None),
        ({"log.retention.minutes": "-1"}, "retention_ms", None),
        ({"log.retention.bytes": "5"}, "retention_bytes", 5),
        ({"log.roll.hours": "1"}, "segment_ms", 3600000),
        ({"log.roll.hours": "1", "log.roll.ms": "7"}, "segment_ms", 7),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", 3600000),
        ({"message.max.bytes": "5"}, "max_message_bytes", 5),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush_ms", 9),
        ({"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"}, "flush_ms", 8),
        ({"log.index.size.max.bytes": "64"}, "segment_index_bytes", 64),
        ({"log.segment.delete.delay.ms": "1"}, "file_delete_delay_ms", 1),
        ({"log.message.timestamp.type": "LogAppendTime"}, "message_timestamp_type", "LogAppendTime"),
        ({"min.insync.replicas": "2"}, "min_insync_replicas", 2),
        ({"unclean.leader.election.enable": "true"}, "unclean_leader_election_enable", True),
        ({"producer.id.expiration.ms": "5"}, "producer_id_expiration_ms", 5),
    ],
)
def test_topic_config_without_own_value_follows_the_broker(
    broker: dict[str, str], attribute: str, expected: object
) -> None:
    """Of several broker keys for the same thing, the finest unit wins."""
    assert getattr(topic_config(BrokerConfig.from_mapping(broker), {}), attribute) == expected


def test_topic_config_of_own_values_overrides_the_broker() -> None:
    """And -1 means for ever, whatever the broker says."""
    broker = BrokerConfig.from_mapping({"log.retention.ms": "5", "log.cleanup.policy": "compact"})
    config = topic_config(broker, {"retention.ms": "-1", "cleanup.policy": "delete", "retention.bytes": "10"})
    assert (config.retention_ms, config.cleanup_policy, config.retention_bytes) == (None, ("delete",), 10)
    assert config.raw == {"retention.ms": "-1", "cleanup.policy": "delete", "retention.bytes": "10"}
    assert config.value("retention.bytes") == 10


def test_topic_config_makes_the_log_config() -> None:
    """The log obeys the topic."""
    overrides = {
        "segment.bytes": "1048576",
        "segment.ms": "1",
        "segment.jitter.ms": "2",
        "segment.index.bytes": "80",
        "index.interval.bytes": "3",
        "retention.ms": "4",
        "retention.bytes": "5",
        "cleanup.policy": "compact",
        "max.message.bytes": "6",
        "file.delete.delay.ms": "7",
        "message.timestamp.type": "LogAppendTime",
        "flush.messages": "8",
    }
    assert topic_config(DEFAULTS, overrides).log_config() == LogConfig(
        segment_bytes=1048576,
        segment_ms=1,
        segment_jitter_ms=2,
        segment_index_bytes=80,
        index_interval_bytes=3,
        retention_ms=4,
        retention_bytes=5,
        local_retention_ms=4,
        local_retention_bytes=5,
        deletes=False,
        compacts=True,
        max_message_bytes=6,
        file_delete_delay_ms=7,
        log_append_time=True,
        flush_messages=8,
    )
    assert topic_config(DEFAULTS, {}).log_config() == LogConfig()


def test_topic_config_with_internal_segment_bytes_makes_tiny_segments() -> None:
    """Tests roll segments without writing a mebibyte."""
    assert topic_config(DEFAULTS, {"internal.segment.bytes": "100"}).log_config().segment_bytes == 100


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, None),
        ({"compression.type": "zstd"}, 3),
        ({"compression.type": "gzip"}, None),
        ({"compression.type": "gzip", "compression.gzip.level": "4"}, 4),
        ({"compression.type": "lz4"}, 9),
        ({"compression.type": "snappy"}, None),
    ],
)
def test_compression_level_belongs_to_the_codec(overrides: dict[str, str], expected: int | None) -> None:
    """A codec without levels, or at its own, is given none."""
    assert topic_config(DEFAULTS, overrides).compression_level == expected


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("retention.mss", "1", "no such topic configuration; did you mean retention.ms?"),
        ("remote.storage.enable", "yes", "expected a boolean"),
        ("retention.ms", "-2", "expected a long, at least -1"),
        ("cleanup.policy", "shred", "a list of compact, delete"),
        ("segment.bytes", "10", "at least 1048576"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("max.message.bytes", "1k", "expected an int"),
        ("min.cleanable.dirty.ratio", "1.5", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "from 0 to 1"),
    ],
)
def test_topic_config_of_a_bad_value_is_refused_by_name(name: str, value: str, said: str) -> None:
    """A client that creates or alters a topic gets this message back."""
    with pytest.raises(ConfigError, match=said) as caught:
        topic_config(DEFAULTS, {name: value})
    assert caught.value.error_code.name == "invalid_config"


def test_topic_config_with_contradicting_compaction_lags_is_refused() -> None:
    """As in Kafka: a record could otherwise be due before it may be touched."""
    with pytest.raises(ConfigError, match=r"max.compaction.lag.ms \(5\)"):
        checked_topic_config(DEFAULTS, {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_every_key_is_the_attribute_of_its_name() -> None:
    """Whoever knows Kafka's key knows the attribute."""
    assert {name: name.replace(".", "_") for name in TOPIC_KEYS} == TOPIC_ATTRIBUTES


def test_every_default_is_allowed_by_its_own_key() -> None:
    """What DescribeConfigs shows can be written back."""
    for key in TOPIC_KEYS.values():
        text = key.format(key.default)
        if text is not None:
            assert key.parse(text) == key.default, key.name


@pytest.mark.parametrize(
    ("policy", "expected_ms"), [("compact", 1000), ("compact,delete", 1000), ("delete", 604800000)]
)
def test_segment_of_compacted_topic_is_sealed_within_the_longest_lag(policy: str, expected_ms: int) -> None:
    """Nothing is cleaned of the active segment: what is due after an hour must not lie there for a week."""
    config = topic_config(DEFAULTS, {"cleanup.policy": policy, "max.compaction.lag.ms": "1000"})
    assert config.log_config().segment_ms == expected_ms


def test_topic_of_a_coordinator_is_compacted_and_keeps_what_is_current() -> None:
    """What groups have committed must outlive any retention: such topics are made with these three keys."""
    config = topic_config(
        DEFAULTS,
        {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    )
    log_config = config.log_config()
    assert (log_config.compacts, log_config.deletes) == (True, False)
    assert (log_config.segment_bytes, log_config.segment_ms) == (104857600, 604800000)
    assert (log_config.min_cleanable_dirty_ratio, log_config.delete_retention_ms) == (0.5, 86400000)
    assert (log_config.min_compaction_lag_ms, log_config.max_compaction_lag_ms) == (0, None)

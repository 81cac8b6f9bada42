"""A topic's configuration: its own values over the broker's, over the defaults.

Each field of `TopicConfig` is one key, named after it with `_` for `.`. A topic that sets nothing follows the
broker's keys (`log.retention.ms` before `.minutes` before `.hours`, and so on), as in Kafka. "No limit",
which Kafka writes as -1, is None. So `keys/topic_defaults.toml` has for each key, in this order: the broker's
keys, the factors of their units, other limits than the broker's, and the number for "no limit".

Some keys that Kafka's tools set on topics as a matter of course, such as `preallocate`, are checked, kept and
described, and have no effect; their documentation says so.

Source: Kafka 4.3's LogConfig and ServerTopicConfigSynonyms.

A topic's values have to go together: those of a tiered topic by Kafka's rules, but compacted topics may be
tiered (LogConfig.validateTopicLogConfigValues and its parts); and those of a table, also with other keys.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sparklog.node.config.broker import BROKER_KEYS, BrokerConfig
from sparklog.node.config.definition import ConfigError, ConfigKey, find_key
from sparklog.node.config.key_table import documentation_of, parse_rule, read_data, topic_key
from sparklog.node.config.keys.kafka_keys import KAFKA_TOPIC_KEYS
from sparklog.node.config.keys.remote_log_keys import RETENTION_AS_A_WHOLE
from sparklog.node.config.keys.table_keys import (
    CATALOG_PREFIX,
    TABLE_ENABLE,
    TABLE_NAME,
    TABLE_PARTITION_BY,
    TABLE_RETENTION,
    TABLE_VALUE_SCHEMA,
    TableTopicKeys,
)
from sparklog.node.config.throttled_replicas import THROTTLED_REPLICAS_RULE
from sparklog.node.remote_log.machine.periods import PERIODS_MS
from sparklog.node.remote_log.machine.value_schema import ValueSchemaError, check_change, parse_value_schema
from sparklog.node.storage.log_config import LogConfig


class BrokerSynonym(NamedTuple):
    """A broker key that a topic key falls back to; its value times `factor` is the topic key's."""

    name: str
    factor: int = 1


_ROWS: Final = tomllib.loads(read_data("topic_defaults.toml"))
"""Keys of topics with the broker keys that they fall back to, further limits, and their documentation."""


def _key(name: str) -> Any:
    """A topic key with the type and default of its first broker key, and with its rule if it has none."""
    row = _ROWS[name]
    falls_back_to = tuple(BrokerSynonym(synonym, factor) for synonym, factor in row["synonyms"].items())
    first = BROKER_KEYS[falls_back_to[0].name]
    unlimited = row.get("unlimited")
    rule = parse_rule(row["allowed"]) if "allowed" in row else first.rule
    default = _fallback(falls_back_to, unlimited, {name: key.default for name, key in BROKER_KEYS.items()})
    key = ConfigKey(name, first.type, default, documentation_of(row["documentation"]), rule, unlimited)
    return field(default=default, metadata={"key": key, "synonyms": falls_back_to})


def _fallback(synonyms: tuple[BrokerSynonym, ...], unlimited: int | None, values: Mapping[str, Any]) -> Any:
    for synonym in synonyms:
        value = values[synonym.name]
        if value is not None:
            if unlimited == -1 and value < 0:
                return None
            value = value if synonym.factor == 1 else value * synonym.factor
            return None if unlimited is not None and value == unlimited else value
    raise AssertionError(f"none of {synonyms} has a default")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(TableTopicKeys):
    """The configuration of one topic; `raw` holds the topic's own values."""

    raw: Mapping[str, str] = field(default_factory=dict)

    cleanup_policy: tuple[str, ...] = _key("cleanup.policy")
    compression_gzip_level: int | None = _key("compression.gzip.level")
    compression_lz4_level: int = _key("compression.lz4.level")
    compression_type: str = _key("compression.type")
    compression_zstd_level: int = _key("compression.zstd.level")
    delete_retention_ms: int = _key("delete.retention.ms")
    file_delete_delay_ms: int = _key("file.delete.delay.ms")
    flush_messages: int | None = _key("flush.messages")
    flush_ms: int | None = _key("flush.ms")
    follower_replication_throttled_replicas: tuple[str, ...] = topic_key(
        "follower.replication.throttled.replicas", THROTTLED_REPLICAS_RULE
    )
    index_interval_bytes: int = _key("index.interval.bytes")
    internal_segment_bytes: int | None = topic_key("internal.segment.bytes")
    leader_replication_throttled_replicas: tuple[str, ...] = topic_key(
        "leader.replication.throttled.replicas", THROTTLED_REPLICAS_RULE
    )
    local_retention_bytes: int = _key("local.retention.bytes")
    local_retention_ms: int = _key("local.retention.ms")
    max_compaction_lag_ms: int | None = _key("max.compaction.lag.ms")
    max_message_bytes: int = _key("max.message.bytes")
    message_timestamp_after_max_ms: int = _key("message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = _key("message.timestamp.before.max.ms")
    message_timestamp_type: str = _key("message.timestamp.type")
    min_cleanable_dirty_ratio: float = _key("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _key("min.compaction.lag.ms")
    min_insync_replicas: int = _key("min.insync.replicas")
    preallocate: bool = topic_key("preallocate")
    remote_log_copy_disable: bool = topic_key("remote.log.copy.disable")
    remote_log_delete_on_disable: bool = topic_key("remote.log.delete.on.disable")
    remote_storage_enable: bool = _key("remote.storage.enable")
    retention_bytes: int | None = _key("retention.bytes")
    retention_ms: int | None = _key("retention.ms")
    segment_bytes: int = _key("segment.bytes")
    segment_index_bytes: int = _key("segment.index.bytes")
    segment_jitter_ms: int = _key("segment.jitter.ms")
    segment_ms: int = _key("segment.ms")
    unclean_leader_election_enable: bool = _key("unclean.leader.election.enable")

    producer_id_expiration_ms: int = 86400000
    transaction_partition_verification: bool = True
    """The broker's; logs need both values, and topics cannot set them."""

    @property
    def compression_level(self) -> int | None:
        """The level for `compression_type`, `None` for the codec's own or where it has none."""
        match self.compression_type:
            case "gzip":
                return self.compression_gzip_level
            case "lz4":
                return self.compression_lz4_level
            case "zstd":
                return self.compression_zstd_level
        return None

    def value(self, name: str) -> Any:
        """Return the value of the key with Kafka's name.

        Raises:
            KeyError: this system does not honour the key.
        """
        return getattr(self, TOPIC_ATTRIBUTES[name])

    def _longest_segment_ms(self) -> int:
        """Return the longest time a segment is active: records are compacted in closed segments."""
        if "compact" in self.cleanup_policy and self.max_compaction_lag_ms is not None:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    def log_config(self) -> LogConfig:
        return LogConfig(
            segment_bytes=self.internal_segment_bytes or self.segment_bytes,
            segment_ms=self._longest_segment_ms(),
            segment_jitter_ms=self.segment_jitter_ms,
            segment_index_bytes=self.segment_index_bytes,
            index_interval_bytes=self.index_interval_bytes,
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            remote_storage_enable=self.remote_storage_enable,
            local_retention_ms=_local(self.local_retention_ms, self.retention_ms),
            local_retention_bytes=_local(self.local_retention_bytes, self.retention_bytes),
            remote_copy_disable=self.remote_log_copy_disable,
            remote_delete_on_disable=self.remote_log_delete_on_disable,
            table_keeps_segments=self.sparklog_table_enable or self.sparklog_table_retention == "forever",
            table_period_ms=PERIODS_MS.get(self.sparklog_table_partition_by)
            if self.sparklog_table_enable
            else None,
            table_value_schema=self.sparklog_table_value_schema if self.sparklog_table_enable else "",
            deletes="delete" in self.cleanup_policy,
            compacts="compact" in self.cleanup_policy,
            delete_retention_ms=self.delete_retention_ms,
            min_cleanable_dirty_ratio=self.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=self.min_compaction_lag_ms,
            max_compaction_lag_ms=self.max_compaction_lag_ms,
            max_message_bytes=self.max_message_bytes,
            file_delete_delay_ms=self.file_delete_delay_ms,
            log_append_time=self.message_timestamp_type == "LogAppendTime",
            flush_messages=self.flush_messages,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            transaction_partition_verification=self.transaction_partition_verification,
        )


def _local(local: int, whole: int | None) -> int | None:
    """Return a local retention, `None` for no limit."""
    if local == RETENTION_AS_A_WHOLE:
        return whole
    return None if local == -1 else local


def topic_config(broker_config: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Return the configuration of a topic with these overrides.

    They may contradict the broker's values, which change while topics exist (`checked_topic_config`).

    Raises:
        ConfigError: an unknown key, or a malformed value.
    """
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        key = find_key(TOPIC_KEYS, name, KAFKA_TOPIC_KEYS, "topic")
        values[TOPIC_ATTRIBUTES[name]] = key.parse(text)
    broker_values = {name: broker_config.value(name) for name in _SYNONYM_NAMES}
    for name, synonyms in TOPIC_SYNONYMS.items():
        if synonyms and TOPIC_ATTRIBUTES[name] not in values:
            values[TOPIC_ATTRIBUTES[name]] = _fallback(synonyms, TOPIC_KEYS[name].unlimited, broker_values)
    return TopicConfig(
        raw=dict(overrides),
        producer_id_expiration_ms=broker_config.producer_id_expiration_ms,
        transaction_partition_verification=broker_config.transaction_partition_verification_enable,
        **values,
    )


def checked_topic_config(
    broker_config: BrokerConfig, overrides: Mapping[str, str], old: Mapping[str, str] | None = None
) -> TopicConfig:
    """Return the configuration of a topic with these new overrides, if they are consistent.

    `old` has the overrides that they replace, `None` for a new topic.

    Raises:
        ConfigError: as `topic_config`, or values that contradict each other.
    """
    config = topic_config(broker_config, overrides)
    max_compaction_lag_ms = config.max_compaction_lag_ms
    if max_compaction_lag_ms is not None and config.min_compaction_lag_ms > max_compaction_lag_ms:
        raise ConfigError(
            "min.compaction.lag.ms",
            str(config.min_compaction_lag_ms),
            f"must not exceed max.compaction.lag.ms ({max_compaction_lag_ms})",
        )
    replaced = None if old is None else topic_config(broker_config, old)
    _check_remote_storage(config, replaced, has_tier=broker_config.remote_uri is not None)
    _check_table(config, replaced, has_catalog=bool(broker_config.table_catalog))
    return config


_KEY_FIELDS: Final = tuple(item for item in fields(TopicConfig) if "key" in item.metadata)

TOPIC_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {item.metadata["key"].name: item.metadata["key"] for item in _KEY_FIELDS}
)

TOPIC_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType(
    {item.metadata["key"].name: item.name for item in _KEY_FIELDS}
)

TOPIC_SYNONYMS: Final[Mapping[str, tuple[BrokerSynonym, ...]]] = MappingProxyType(
    {item.metadata["key"].name: item.metadata.get("synonyms", ()) for item in _KEY_FIELDS}
)
"""The broker keys that each topic key falls back to, in order of precedence."""

_SYNONYM_NAMES: Final = frozenset(
    synonym.name for synonyms in TOPIC_SYNONYMS.values() for synonym in synonyms
)


def _check_table(config: TopicConfig, old: TopicConfig | None, *, has_catalog: bool) -> None:
    """Refuse contradicting values; `old` is the topic's previous configuration, `None` for a new topic.

    Raises:
        ConfigError: the values contradict each other, or the cluster has no catalogue.
    """
    _check_value_schema(config, old)
    _check_retention(config, old)
    if not config.sparklog_table_enable:
        return
    if not has_catalog:
        raise ConfigError(
            TABLE_ENABLE, "true", f"the cluster has no catalogue of tables: give it {CATALOG_PREFIX}*"
        )
    if not config.remote_storage_enable:
        raise ConfigError(
            TABLE_ENABLE,
            "true",
            "a table is made of the topic's files in the store: needs remote.storage.enable=true",
        )
    if "compact" in config.cleanup_policy:
        raise ConfigError(
            TABLE_ENABLE,
            "true",
            f"a compacted topic has no table (cleanup.policy={','.join(config.cleanup_policy)}): records that"
            " later ones replace would stay in it",
        )
    if old is None or not old.sparklog_table_enable:
        return
    if old.sparklog_table_name != config.sparklog_table_name:
        raise ConfigError(
            TABLE_NAME,
            config.sparklog_table_name,
            "the topic is a table under its present name, and files may be named by that one alone: put"
            f" {TABLE_ENABLE}=false first",
        )
    if old.sparklog_table_partition_by != config.sparklog_table_partition_by:
        raise ConfigError(
            TABLE_PARTITION_BY,
            config.sparklog_table_partition_by,
            f"the table has files by {old.sparklog_table_partition_by}: its partitioning does not change;"
            f" another table can have another one, for which {TABLE_ENABLE}=false has to come first",
        )


def _check_retention(config: TopicConfig, old: TopicConfig | None) -> None:
    """Refuse to keep the files of a topic that is no table, and was none: no table would name them."""
    if config.sparklog_table_enable or config.sparklog_table_retention != "forever":
        return
    if old is None or not (old.sparklog_table_enable or old.sparklog_table_retention == "forever"):
        raise ConfigError(
            TABLE_RETENTION,
            "forever",
            f"the topic is no table, and its files would be kept for none: put {TABLE_ENABLE}=true with it",
        )


def _check_value_schema(config: TopicConfig, old: TopicConfig | None) -> None:
    text = config.sparklog_table_value_schema
    try:
        columns = parse_value_schema(text)
        if old is not None and old.sparklog_table_enable and config.sparklog_table_enable:
            check_change(parse_value_schema(old.sparklog_table_value_schema), columns)
    except ValueSchemaError as error:
        raise ConfigError(TABLE_VALUE_SCHEMA, text, str(error)) from None


def _check_remote_storage(config: TopicConfig, old: TopicConfig | None, *, has_tier: bool) -> None:
    """Refuse contradicting values; `old` is the topic's previous configuration, `None` for a new topic.

    Raises:
        ConfigError: the values contradict each other, or the cluster has no tier.
    """
    if not config.remote_storage_enable:
        if old is not None and old.remote_storage_enable and not config.remote_log_delete_on_disable:
            raise ConfigError(
                "remote.storage.enable",
                "false",
                "It is invalid to disable remote storage without deleting remote data: set"
                " remote.log.delete.on.disable=true too, or keep the data for readers with"
                " remote.storage.enable=true and remote.log.copy.disable=true",
            )
        return
    if not has_tier:
        raise ConfigError(
            "remote.storage.enable",
            "true",
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote"
            " log storage: the cluster has no sparklog.remote.uri",
        )
    for name, local, whole in (
        ("retention.bytes", config.local_retention_bytes, config.retention_bytes),
        ("retention.ms", config.local_retention_ms, config.retention_ms),
    ):
        if local == RETENTION_AS_A_WHOLE:
            continue
        if whole is not None and local == -1:
            raise ConfigError(
                f"local.{name}", "-1", f"Value must not be -1 as {name} value is set as {whole}."
            )
        if whole is not None and local > whole:
            raise ConfigError(
                f"local.{name}", str(local), f"Value must not be more than {name} property value: {whole}"
            )
        if config.remote_log_copy_disable and local != (-1 if whole is None else whole):
            raise ConfigError(
                f"local.{name}",
                str(local),
                f"with remote.log.copy.disable=true it must equal {name}, or be -2: nothing more is copied",
            )

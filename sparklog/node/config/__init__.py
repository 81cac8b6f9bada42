"""Configuration under Kafka's own keys: the keys honoured, their limits, and properties files."""

from sparklog.node.config.broker import BROKER_KEYS, BrokerConfig
from sparklog.node.config.definition import ConfigError, ConfigKey, ConfigType
from sparklog.node.config.keys.controller_keys import SnapshotLimits
from sparklog.node.config.listeners import HostPort
from sparklog.node.config.properties import PropertiesError, read_properties
from sparklog.node.config.topic import TOPIC_KEYS, TopicConfig, checked_topic_config, topic_config

__all__ = [
    "BROKER_KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "ConfigError",
    "ConfigKey",
    "ConfigType",
    "HostPort",
    "PropertiesError",
    "SnapshotLimits",
    "TopicConfig",
    "checked_topic_config",
    "read_properties",
    "topic_config",
]

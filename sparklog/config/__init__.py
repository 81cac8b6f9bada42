"""Configuration under Kafka's own keys: the keys honoured, their limits, and properties files."""

from sparklog.config.broker import BROKER_KEYS, BrokerConfig
from sparklog.config.controller_keys import SnapshotLimits
from sparklog.config.definition import ConfigError, ConfigKey, ConfigType
from sparklog.config.listeners import HostPort
from sparklog.config.properties import PropertiesError, read_properties
from sparklog.config.topic import TOPIC_KEYS, TopicConfig, checked_topic_config, topic_config

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

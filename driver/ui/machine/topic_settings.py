"""The configuration in force for a topic: its own values over those of all brokers, over the defaults."""

from typing import NamedTuple

from sparklog.node.config import TOPIC_KEYS, BrokerConfig
from sparklog.node.config.dynamic import with_dynamic
from sparklog.node.config.topic import topic_config
from sparklog.node.metadata.image import MetadataImage


class Setting(NamedTuple):
    """A topic's configuration key: its value, and whether the topic sets it itself."""

    name: str
    value: str
    is_own: bool


def topic_settings(config: BrokerConfig, image: MetadataImage, topic: str) -> list[Setting]:
    """Return all settings of a topic, its own first; `config` is the brokers' at their start."""
    own = image.topic_configs(topic)
    values = topic_config(with_dynamic(config, image.broker_configs(None), {}), own)
    return [
        Setting(key.name, key.format(values.value(key.name)) or "", key.name in own)
        for key in sorted(TOPIC_KEYS.values(), key=lambda key: (key.name not in own, key.name))
        if not key.name.startswith("internal.")
    ]

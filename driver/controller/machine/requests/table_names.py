"""The names of the topics' tables: no two topics have one table."""

from typing import Final

from sparklog.node.config import BrokerConfig, ConfigError, TopicConfig, topic_config
from sparklog.node.config.keys.table_keys import TABLE_ENABLE, TABLE_NAME, table_config
from sparklog.node.metadata.image import MetadataImage


class TableNames:
    """The names of all tables, and of those of one request; topics are looked through for the first table."""

    def __init__(self, config: BrokerConfig, image: MetadataImage) -> None:
        self._config: Final = config
        self._image: Final = image
        self._topics: dict[str, str] | None = None

    def take(self, topic: str, config: TopicConfig) -> None:
        """Take the name for the topic, if that is a table.

        Raises:
            ConfigError: another topic has it.
        """
        name = _name(topic, config)
        if name is None:
            return
        if self._topics is None:
            self._topics = self._of_image()
        other = self._topics.setdefault(name, topic)
        if other != topic:
            raise ConfigError(TABLE_NAME, name, f"the topic {other} is this table")

    def _of_image(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for topic in self._image.topics.by_name:
            own = self._image.topic_configs(topic)
            if TABLE_ENABLE in own:
                name = _name(topic, topic_config(self._config, own))
                if name is not None:
                    found[name] = topic
        return found


def _name(topic: str, config: TopicConfig) -> str | None:
    """Return the name of a topic's table, in the case in which catalogues compare names."""
    table = table_config(config, topic)
    return None if table is None else ".".join(table.identifier).lower()

"""The keys of topics that are tables, and of the catalogue in which they are.

The catalogue's options are pyiceberg's properties below `sparklog.table.catalog.`. They may be secrets:
nothing describes them. None of these keys is Kafka's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.node.config.definition import ConfigError, Rule
from sparklog.node.config.key_table import broker_key, topic_key
from sparklog.node.remote_log.uri import URI_KEY

TABLE_ENABLE: Final = "sparklog.table.enable"
TABLE_NAME: Final = "sparklog.table.name"
TABLE_PARTITION_BY: Final = "sparklog.table.partition.by"
TABLE_RETENTION: Final = "sparklog.table.retention"
TABLE_VALUE_SCHEMA: Final = "sparklog.table.value.schema"
CATALOG_PREFIX: Final = "sparklog.table.catalog."

_TABLE_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")


def is_catalog_option(name: str) -> bool:
    return name.startswith(CATALOG_PREFIX) and len(name) > len(CATALOG_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTopicKeys:
    sparklog_table_enable: bool = topic_key(TABLE_ENABLE)
    sparklog_table_name: str = topic_key(
        TABLE_NAME,
        Rule(
            "namespace.table of letters, digits, _ and -",
            lambda name: not name or _TABLE_NAME.fullmatch(name) is not None,
        ),
    )
    sparklog_table_partition_by: str = topic_key(TABLE_PARTITION_BY)
    sparklog_table_retention: str = topic_key(TABLE_RETENTION)
    sparklog_table_value_schema: str = topic_key(TABLE_VALUE_SCHEMA)


@dataclass(frozen=True, slots=True)
class TableConfig:
    """The table of a topic that has one."""

    identifier: tuple[str, ...]
    """Namespaces and name."""
    partition_by: str
    """none, partition, day or hour."""
    keeps_rows: bool
    """Whether rows stay when the topic's records are deleted."""
    value_schema: str
    """The schema of typed columns in Spark's notation; empty for none."""


def table_config(keys: TableTopicKeys, topic: str) -> TableConfig | None:
    """Return the table of the topic, `None` if the topic is none.

    Topics of a cluster do not differ by dots and underscores alone, so default names are unique.
    """
    if not keys.sparklog_table_enable:
        return None
    name = keys.sparklog_table_name or f"topics.{topic.replace('.', '_')}"
    return TableConfig(
        tuple(name.split(".")),
        keys.sparklog_table_partition_by,
        keys.sparklog_table_retention == "forever",
        keys.sparklog_table_value_schema,
    )


@dataclass(frozen=True, kw_only=True)
class TableBrokerKeys:
    raw: Mapping[str, str]

    table_catalog: Mapping[str, str] = field(init=False, repr=False)
    """The values of `sparklog.table.catalog.<name>` by <name>: pyiceberg's properties."""
    sparklog_table_commit_interval_ms: int = broker_key("sparklog.table.commit.interval.ms")
    sparklog_table_snapshot_retention_ms: int = broker_key("sparklog.table.snapshot.retention.ms")

    def __post_init__(self) -> None:
        options = {
            name.removeprefix(CATALOG_PREFIX): text
            for name, text in self.raw.items()
            if is_catalog_option(name)
        }
        object.__setattr__(self, "table_catalog", options)
        if options and not self.raw.get(URI_KEY, "").strip():
            first = f"{CATALOG_PREFIX}{min(options)}"
            raise ConfigError(first, None, f"tables are made of files in a store: set {URI_KEY}")

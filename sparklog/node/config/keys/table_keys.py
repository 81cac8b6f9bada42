"""The keys of topics that are tables, and of the catalogue in which they are.

The catalogue's options are pyiceberg's properties below `sparklog.table.catalog.`. They may be secrets:
nothing describes them. None of these keys is Kafka's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.node.config.definition import (
    BOOLEAN,
    LONG,
    STRING,
    ConfigError,
    Rule,
    at_least,
    config_key,
    one_of,
)
from sparklog.node.config.keys.remote_log_keys import REMOTE_URI

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
    sparklog_table_enable: bool = config_key(
        BOOLEAN,
        False,
        "Whether the topic is an Iceberg table, too, made of its files in the object store.",
        name=TABLE_ENABLE,
    )
    sparklog_table_name: str = config_key(
        STRING,
        "",
        "The table's name, as namespace.table; topics.<topic> if empty, with _ for each dot of the topic's.",
        Rule(
            "namespace.table of letters, digits, _ and -",
            lambda name: not name or _TABLE_NAME.fullmatch(name) is not None,
        ),
        name=TABLE_NAME,
    )
    sparklog_table_partition_by: str = config_key(
        STRING,
        "none",
        "The partitions of the table: none, the topic's (partition), or the day or hour of the timestamp.",
        one_of("none", "partition", "day", "hour"),
        name=TABLE_PARTITION_BY,
    )
    sparklog_table_retention: str = config_key(
        STRING,
        "topic",
        "Whether rows leave the table with the topic's records (topic), or stay (forever).",
        one_of("topic", "forever"),
        name=TABLE_RETENTION,
    )
    sparklog_table_value_schema: str = config_key(
        STRING,
        "",
        "The columns that JSON values have in the table beside the raw value, as Spark writes schemas:"
        " id BIGINT, name STRING.",
        name=TABLE_VALUE_SCHEMA,
    )


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
    sparklog_table_commit_interval_ms: int = config_key(
        LONG,
        60000,
        "The shortest time between two commits of a table. Not a key of Kafka's.",
        at_least(1),
    )
    sparklog_table_snapshot_retention_ms: int = config_key(
        LONG,
        600000,
        "How long a table's old snapshots, and the files that only they have, can be read. Not a key of"
        " Kafka's.",
        at_least(0),
    )

    def __post_init__(self) -> None:
        options = {
            name.removeprefix(CATALOG_PREFIX): text
            for name, text in self.raw.items()
            if is_catalog_option(name)
        }
        object.__setattr__(self, "table_catalog", options)
        if options and not self.raw.get(REMOTE_URI, "").strip():
            first = f"{CATALOG_PREFIX}{min(options)}"
            raise ConfigError(first, None, f"tables are made of files in a store: set {REMOTE_URI}")

    @property
    def table_commit_interval_ms(self) -> int:
        return self.sparklog_table_commit_interval_ms

    @property
    def table_snapshot_retention_ms(self) -> int:
        return self.sparklog_table_snapshot_retention_ms

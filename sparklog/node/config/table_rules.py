"""The values of a table's keys that go together, and with the topic's other keys."""

from sparklog.node.config.definition import ConfigError
from sparklog.node.config.keys.table_keys import (
    CATALOG_PREFIX,
    TABLE_ENABLE,
    TABLE_NAME,
    TABLE_PARTITION_BY,
    TABLE_RETENTION,
    TABLE_VALUE_SCHEMA,
    TableTopicKeys,
)
from sparklog.node.remote_log.machine.value_schema import ValueSchemaError, check_change, parse_value_schema


def check_table(
    config: TableTopicKeys,
    old: TableTopicKeys | None,
    *,
    cleanup_policy: tuple[str, ...],
    is_tiered: bool,
    has_catalog: bool,
) -> None:
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
    if not is_tiered:
        raise ConfigError(
            TABLE_ENABLE,
            "true",
            "a table is made of the topic's files in the store: needs remote.storage.enable=true",
        )
    if "compact" in cleanup_policy:
        raise ConfigError(
            TABLE_ENABLE,
            "true",
            f"a compacted topic has no table (cleanup.policy={','.join(cleanup_policy)}): records that"
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


def _check_retention(config: TableTopicKeys, old: TableTopicKeys | None) -> None:
    """Refuse to keep the files of a topic that is no table, and was none: no table would name them."""
    if config.sparklog_table_enable or config.sparklog_table_retention != "forever":
        return
    if old is None or not (old.sparklog_table_enable or old.sparklog_table_retention == "forever"):
        raise ConfigError(
            TABLE_RETENTION,
            "forever",
            f"the topic is no table, and its files would be kept for none: put {TABLE_ENABLE}=true with it",
        )


def _check_value_schema(config: TableTopicKeys, old: TableTopicKeys | None) -> None:
    text = config.sparklog_table_value_schema
    try:
        columns = parse_value_schema(text)
        if old is not None and old.sparklog_table_enable and config.sparklog_table_enable:
            check_change(parse_value_schema(old.sparklog_table_value_schema), columns)
    except ValueSchemaError as error:
        raise ConfigError(TABLE_VALUE_SCHEMA, text, str(error)) from None

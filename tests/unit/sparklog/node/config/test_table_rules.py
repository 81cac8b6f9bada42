"""Which configurations of tables are refused."""

import pytest

from sparklog.node.config import BrokerConfig, ConfigError, checked_topic_config

STORE = {"sparklog.remote.uri": "s3://bucket/prefix"}
WITH_CATALOG = BrokerConfig.from_mapping({**STORE, "sparklog.table.catalog.uri": "http://c"})
TABLE = {"sparklog.table.enable": "true"}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"remote.storage.enable": "false"}, "needs remote.storage.enable=true"),
        ({"cleanup.policy": "compact"}, "cleanup.policy=compact"),
        ({"cleanup.policy": "compact,delete"}, "a compacted topic has no table"),
    ],
)
def test_table_of_a_topic_that_has_no_complete_copy_is_refused(overrides: dict[str, str], said: str) -> None:
    """Its rows would not be the topic's records."""
    checked_topic_config(WITH_CATALOG, TABLE)
    checked_topic_config(WITH_CATALOG, {"sparklog.table.enable": "false", **overrides})
    with pytest.raises(ConfigError, match=said):
        checked_topic_config(WITH_CATALOG, {**TABLE, **overrides})


def test_table_of_a_cluster_without_catalogue_is_refused() -> None:
    """The table would stay empty in silence."""
    with pytest.raises(ConfigError, match=r"no catalogue of tables: give it sparklog.table.catalog.\*"):
        checked_topic_config(BrokerConfig.from_mapping(STORE), TABLE)


def test_partitioning_of_a_table_does_not_change_while_the_topic_is_one() -> None:
    """Its files were cut for the old one."""
    by_day = {**TABLE, "sparklog.table.partition.by": "day"}
    by_hour = {**TABLE, "sparklog.table.partition.by": "hour"}
    with pytest.raises(ConfigError, match="the table has files by day"):
        checked_topic_config(WITH_CATALOG, by_hour, by_day)
    checked_topic_config(WITH_CATALOG, by_hour, {"sparklog.table.partition.by": "day"})
    checked_topic_config(WITH_CATALOG, by_day, by_day)


def test_name_of_a_table_does_not_change_while_the_topic_is_one() -> None:
    """Rows that it keeps for ever would be in a table that sparklog does not look for."""
    named, renamed = ({**TABLE, "sparklog.table.name": name} for name in ("a.b", "a.c"))
    with pytest.raises(ConfigError, match=r"put sparklog\.table\.enable=false first"):
        checked_topic_config(WITH_CATALOG, renamed, named)
    checked_topic_config(WITH_CATALOG, renamed, {**named, "sparklog.table.enable": "false"})
    checked_topic_config(WITH_CATALOG, named, named)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id BIGINT, name", "sparklog.table.value.schema=id BIGINT, name: the end where a type"),
        ("value STRING", "value is a column of every record"),
        ("id STRING", "id is INT and cannot become STRING"),
    ],
)
def test_schema_of_values_that_the_table_cannot_have_is_refused(schema: str, said: str) -> None:
    """Not by copies that fail later."""
    before = {**TABLE, "sparklog.table.value.schema": "id INT"}
    with pytest.raises(ConfigError, match=said):
        checked_topic_config(WITH_CATALOG, {**before, "sparklog.table.value.schema": schema}, before)
    checked_topic_config(WITH_CATALOG, {**before, "sparklog.table.value.schema": "id BIGINT"}, before)
    not_a_table = {"sparklog.table.value.schema": "id INT"}
    checked_topic_config(WITH_CATALOG, {"sparklog.table.value.schema": "id STRING"}, not_a_table)


def test_files_of_a_topic_that_never_was_a_table_are_not_kept_for_ever() -> None:
    """No table would name them; a topic that was one leaves its table with all rows."""
    forever = {"sparklog.table.retention": "forever"}
    with pytest.raises(ConfigError, match=r"kept for none: put sparklog\.table\.enable=true with it"):
        checked_topic_config(WITH_CATALOG, forever)
    with pytest.raises(ConfigError, match="kept for none"):
        checked_topic_config(WITH_CATALOG, forever, {"sparklog.table.retention": "topic"})
    checked_topic_config(WITH_CATALOG, {**TABLE, **forever}, TABLE)
    checked_topic_config(WITH_CATALOG, forever, {**TABLE, **forever})
    checked_topic_config(WITH_CATALOG, forever, forever)

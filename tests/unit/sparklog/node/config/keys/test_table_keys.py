"""The keys of topics that are tables."""

import pytest

from sparklog.node.config import BrokerConfig, ConfigError, topic_config
from sparklog.node.config.keys.table_keys import TableConfig, table_config

STORE = {"sparklog.remote.uri": "s3://bucket/prefix"}


def test_options_of_the_catalogue_are_pyicebergs_and_not_shown() -> None:
    """Some are secrets."""
    given = {**STORE, "sparklog.table.catalog.uri": "http://c", "sparklog.table.catalog.s3.region": "eu"}
    config = BrokerConfig.from_mapping(given)
    assert config.table_catalog == {"uri": "http://c", "s3.region": "eu"}
    assert "http://c" not in repr(config)
    assert (config.sparklog_table_commit_interval_ms, config.sparklog_table_snapshot_retention_ms) == (
        60000,
        600000,
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sparklog.table.catalog.uri": "http://c"}, "sparklog.table.catalog.uri: .*set sparklog.remote.uri"),
        ({**STORE, "sparklog.table.catalog.": "x"}, "no such broker configuration"),
        ({**STORE, "sparklog.table.commit.interval.ms": "0"}, "at least 1"),
    ],
)
def test_keys_of_tables_that_cannot_work_are_refused_by_name(given: dict[str, str], said: str) -> None:
    """A misspelt catalogue must not be found out by a table that stays empty."""
    with pytest.raises(ConfigError, match=said):
        BrokerConfig.from_mapping(given)


def test_table_has_the_topics_name_unless_it_has_one_of_its_own() -> None:
    """Dots separate namespaces; Kafka keeps topics from differing by dots and underscores alone."""
    broker_config = BrokerConfig.from_mapping({})
    enabled = {"sparklog.table.enable": "true"}
    assert table_config(topic_config(broker_config, {}), "a.b") is None
    assert table_config(topic_config(broker_config, enabled), "a.b") == TableConfig(
        ("topics", "a_b"), "none", keeps_rows=False, value_schema=""
    )
    own = {
        **enabled,
        "sparklog.table.name": "sales.eu.orders",
        "sparklog.table.partition.by": "day",
        "sparklog.table.retention": "forever",
        "sparklog.table.value.schema": "id BIGINT",
    }
    assert table_config(topic_config(broker_config, own), "a.b") == TableConfig(
        ("sales", "eu", "orders"), "day", keeps_rows=True, value_schema="id BIGINT"
    )


@pytest.mark.parametrize("name", ["orders", "a..b", ".b", "a.b c", "a.b/c"])
def test_table_name_without_a_namespace_is_refused(name: str) -> None:
    """Catalogues have tables in namespaces only."""
    with pytest.raises(ConfigError, match=r"namespace\.table"):
        topic_config(BrokerConfig.from_mapping({}), {"sparklog.table.name": name})

"""Which configurations of tiered topics are refused: Kafka's rules."""

import pytest

from sparklog.node.config import BrokerConfig, ConfigError, checked_topic_config, topic_config

TIERED = BrokerConfig.from_mapping({"sparklog.remote.uri": "s3://bucket/prefix"})
UNTIERED = BrokerConfig.from_mapping({})


def test_topic_of_a_cluster_with_a_store_is_tiered_by_default() -> None:
    """Nothing else would outlive the application; a topic can still say no."""
    assert checked_topic_config(TIERED, {}).log_config().remote_storage_enable
    assert checked_topic_config(TIERED, {"cleanup.policy": "compact"}).log_config().remote_storage_enable
    assert not checked_topic_config(TIERED, {"remote.storage.enable": "false"}).remote_storage_enable
    assert not checked_topic_config(UNTIERED, {}).remote_storage_enable


def test_tiered_topic_of_a_cluster_without_store_is_refused() -> None:
    """As by Kafka, or retention would wait for copies that nobody makes."""
    with pytest.raises(ConfigError, match="Tiered Storage functionality is disabled in the broker"):
        checked_topic_config(UNTIERED, {"remote.storage.enable": "true"})


@pytest.mark.parametrize(
    ("overrides", "refused"),
    [
        ({"retention.ms": "10", "local.retention.ms": "11"}, "local.retention.ms=11"),
        ({"retention.ms": "10", "local.retention.ms": "-1"}, "local.retention.ms=-1"),
        ({"retention.ms": "10", "local.retention.ms": "10"}, None),
        ({"retention.ms": "-1", "local.retention.ms": "11"}, None),
        ({"retention.ms": "-1", "local.retention.ms": "-1"}, None),
        ({"retention.ms": "10"}, None),
        ({"retention.bytes": "10", "local.retention.bytes": "11"}, "local.retention.bytes=11"),
        ({"retention.bytes": "10", "local.retention.bytes": "-1"}, "local.retention.bytes=-1"),
        ({"retention.bytes": "10", "local.retention.bytes": "3"}, None),
        ({"remote.log.copy.disable": "true"}, None),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "1"}, "local.retention.ms=1"),
        ({"remote.log.copy.disable": "true", "local.retention.bytes": "1"}, "local.retention.bytes=1"),
        ({"remote.log.copy.disable": "true", "local.retention.bytes": "-1"}, None),
        ({"remote.storage.enable": "false", "retention.ms": "10", "local.retention.ms": "11"}, None),
    ],
)
def test_tiered_topic_with_contradicting_retention_is_refused(
    overrides: dict[str, str], refused: str | None
) -> None:
    """A local part cannot outlive the whole, nor end while nothing else keeps it."""
    if refused is None:
        checked_topic_config(TIERED, overrides)
        return
    with pytest.raises(ConfigError, match=refused):
        checked_topic_config(TIERED, overrides)


def test_topic_is_untiered_only_together_with_the_deletion_of_its_copy() -> None:
    """Records that nothing reads or deletes would stay in the store for ever."""
    with pytest.raises(ConfigError, match="without deleting remote data"):
        checked_topic_config(TIERED, {"remote.storage.enable": "false"}, {})
    wanted = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    assert checked_topic_config(TIERED, wanted, {}).log_config().remote_delete_on_disable
    checked_topic_config(TIERED, {"remote.storage.enable": "false"}, {"remote.storage.enable": "false"})


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"retention.ms": "10", "retention.bytes": "20"}, (10, 20)),
        ({"retention.ms": "-1", "retention.bytes": "-1"}, (None, None)),
        ({"local.retention.ms": "3", "local.retention.bytes": "4"}, (3, 4)),
        ({"retention.ms": "-1", "local.retention.ms": "-1", "local.retention.bytes": "-1"}, (None, None)),
    ],
)
def test_local_retention_of_minus_two_is_that_of_the_whole_log(
    overrides: dict[str, str], expected: tuple[int | None, int | None]
) -> None:
    """Kafka's default: without local values disks keep what retention keeps."""
    config = topic_config(TIERED, overrides).log_config()
    assert (config.local_retention_ms, config.local_retention_bytes) == expected

"""The broker's keys of the tier."""

import pytest

from sparklog.node.config import BrokerConfig, ConfigError

URI = {"sparklog.remote.uri": "s3://bucket/prefix"}


def test_remote_uri_enables_the_tier_under_kafkas_key() -> None:
    """Tools look at Kafka's key, and the topics follow it."""
    config = BrokerConfig.from_mapping(URI)
    assert (config.remote_uri, config.remote_log_storage_system_enable) == ("s3://bucket/prefix", True)
    assert config.raw["remote.log.storage.system.enable"] == "true"
    without = BrokerConfig.from_mapping({"sparklog.remote.uri": ""})
    assert (without.remote_uri, without.remote_log_storage_system_enable) == (None, False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"remote.log.storage.system.enable": "true"}, "set sparklog.remote.uri"),
        ({**URI, "remote.log.storage.system.enable": "false"}, "remove one of the two"),
        (
            {"sparklog.remote.option.region": "eu"},
            r"sparklog.remote.option.region: .*set sparklog.remote.uri",
        ),
        ({**URI, "sparklog.remote.option.": "eu"}, "no such broker configuration"),
        ({**URI, "sparklog.remote.max.lag.ms": "0"}, "at least 1"),
    ],
)
def test_contradicting_keys_of_the_tier_are_refused_by_name(given: dict[str, str], said: str) -> None:
    """A cluster that its user believes to be safe must not start without its store."""
    with pytest.raises(ConfigError, match=said):
        BrokerConfig.from_mapping(given)


def test_options_of_the_store_are_not_shown() -> None:
    """Some are secrets."""
    config = BrokerConfig.from_mapping({**URI, "sparklog.remote.option.secret_access_key": "hush"})
    assert config.remote_options == {"secret_access_key": "hush"}
    assert "hush" not in repr(config)
    assert config.of_listener(config.listeners[0].name).remote_uri == "s3://bucket/prefix"


def test_limits_of_the_tier_are_none_unless_set() -> None:
    """Kafka's Long.MAX_VALUE is no limit."""
    config = BrokerConfig.from_mapping({**URI, "remote.log.manager.fetch.max.bytes.per.second": "7"})
    assert config.remote_log_copy_max_bytes_per_second is None
    assert config.remote_log_fetch_max_bytes_per_second == 7

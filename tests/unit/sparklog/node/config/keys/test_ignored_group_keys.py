"""A server.properties that names keys of Kafka's group coordinator which make no difference here is taken."""

import pytest

from sparklog.node.config import BROKER_KEYS, BrokerConfig, ConfigError
from sparklog.node.config.dynamic import check_dynamic
from sparklog.node.config.keys.ignored_group_keys import IGNORED_GROUP_KEYS
from sparklog.node.config.keys.kafka_keys import KAFKA_BROKER_KEYS
from sparklog.protocol.errors import ErrorCode, KafkaError


def test_every_group_key_and_offset_key_of_kafka_is_taken() -> None:
    """None of them may keep a cluster from starting that ran with it under Kafka."""
    taken = {**BROKER_KEYS, **IGNORED_GROUP_KEYS}
    names = [name for name in KAFKA_BROKER_KEYS if name.startswith(("group.", "offset.", "offsets."))]
    values = {name: taken[name].format(taken[name].default) or "" for name in names}
    assert BrokerConfig.from_mapping(values).raw == values


@pytest.mark.parametrize("name", sorted(IGNORED_GROUP_KEYS))
def test_kept_group_key_changes_nothing(name: str) -> None:
    """Its default can be written, and what a broker obeys is as without it."""
    key = IGNORED_GROUP_KEYS[name]
    text = key.format(key.default)
    assert text is not None
    assert key.parse(text) == key.default
    given, without = BrokerConfig.from_mapping({name: text}), BrokerConfig.from_mapping({})
    assert {**vars(given), "raw": {}} == {**vars(without), "raw": {}}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("group.coordinator.threads", "0", "expected an int, at least 1"),
        ("group.coordinator.background.threads", "few", "expected an int, at least 1"),
        ("group.coordinator.append.linger.ms", "-2", "at least -1"),
        ("group.coordinator.cached.buffer.max.bytes", "1000", "at least 524288"),
        ("group.consumer.assignor.offload.enable", "yes", "expected a boolean"),
        ("group.share.max.size", "1001", "from 1 to 1000"),
        ("group.share.assignors", "", "at least one"),
        ("group.streams.num.standby.replicas", "-1", "at least 0"),
    ],
)
def test_kept_group_key_with_a_value_that_kafka_refuses_is_refused(name: str, value: str, said: str) -> None:
    """A slip must not wait for the day on which the key has an effect."""
    with pytest.raises(ConfigError, match=said) as caught:
        BrokerConfig.from_mapping({name: value})
    assert caught.value.key == name


@pytest.mark.parametrize(
    "protocols", ["classic,consumer", "consumer, classic, streams", "classic,consumer,share"]
)
def test_rebalance_protocols_with_what_is_served_are_taken(protocols: str) -> None:
    """Kafka's default names streams groups, which its brokers have off as well until their feature is on."""
    BrokerConfig.from_mapping({"group.coordinator.rebalance.protocols": protocols})


@pytest.mark.parametrize(
    "protocols", ["classic", "consumer", "", "classic,consumer,classic", "classic,consumer,x"]
)
def test_rebalance_protocols_without_what_is_served_are_refused(protocols: str) -> None:
    """Who turns a protocol off would find it served all the same."""
    with pytest.raises(ConfigError, match="with classic and consumer, which are always served"):
        BrokerConfig.from_mapping({"group.coordinator.rebalance.protocols": protocols})


def test_kept_group_key_that_kafka_does_not_change_is_not_changed_while_brokers_run() -> None:
    """The key as such is known, and not said to be none."""
    config = BrokerConfig.from_mapping({})
    with pytest.raises(KafkaError, match="Cannot update these configs dynamically") as caught:
        check_dynamic(config, config, {"group.coordinator.threads": "2"}, of_all_brokers=True)
    assert caught.value.error_code == ErrorCode.invalid_request

"""The broker's configuration: Kafka's keys, its notation, and errors that say what to do."""

import pickle
from dataclasses import fields

import pytest

from sparklog.node.config import BROKER_KEYS, BrokerConfig, ConfigError
from sparklog.node.config.broker import BROKER_ATTRIBUTES
from sparklog.node.endpoints import Endpoint
from sparklog.node.serving.socket_settings import SocketSettings


def test_broker_config_of_nothing_has_loopback_and_kafkas_defaults() -> None:
    """Nothing listens beyond the machine unless somebody asked."""
    config = BrokerConfig.from_mapping({})
    assert config.listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 0),)
    assert config.controller_quorum_bootstrap_servers == (("PLAINTEXT", ("127.0.0.1", 0)),)
    assert (config.broker_heartbeat_interval_ms, config.broker_session_timeout_ms) == (500, 9000)
    assert (config.num_partitions, config.min_insync_replicas, config.default_replication_factor) == (1, 1, 1)
    assert (config.replica_lag_time_max_ms, config.socket_request_max_bytes) == (30000, 104857600)
    assert config.data_directories == ()
    assert config.raw == {}


def test_broker_config_gives_the_controller_half_a_session_to_answer_or_what_was_set_if_longer() -> None:
    """Kafka's two seconds for the quorum are less than a starved controller takes."""
    key = "controller.quorum.request.timeout.ms"
    assert BrokerConfig.from_mapping({}).broker_request_timeout_ms == 4_500
    assert BrokerConfig.from_mapping({key: "6000"}).broker_request_timeout_ms == 6_000


@pytest.mark.parametrize(("racks", "expected"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_broker_config_without_a_replication_factor_takes_one_replica_a_rack(
    racks: int, expected: int
) -> None:
    """More replicas than racks could not be kept apart; what the user says stands."""
    assert BrokerConfig.from_mapping({}, racks=racks).default_replication_factor == expected
    given = {"default.replication.factor": "2"}
    assert BrokerConfig.from_mapping(given, racks=racks).default_replication_factor == 2


def test_broker_config_values_are_read_in_kafkas_notation() -> None:
    """Files written for Kafka mean the same here."""
    config = BrokerConfig.from_mapping(
        {
            "num.partitions": " 12 ",
            "auto.create.topics.enable": "FALSE",
            "log.dirs": "/data/1, /data/2",
            "log.cleanup.policy": "compact,delete",
            "log.retention.ms": "-1",
        }
    )
    assert config.num_partitions == 12
    assert config.auto_create_topics_enable is False
    assert config.data_directories == ("/data/1", "/data/2")
    assert config.log_cleanup_policy == ("compact", "delete")
    assert config.log_retention_ms == -1
    assert config.value("num.partitions") == 12


def test_every_key_is_the_attribute_of_its_name() -> None:
    """Whoever knows Kafka's key knows the attribute; three are values that parsed ones are made from."""
    made_from = {"listeners", "advertised.listeners", "controller.quorum.bootstrap.servers"}
    expected = {
        name: name.replace(".", "_") + ("_value" if name in made_from else "") for name in BROKER_KEYS
    }
    assert expected == BROKER_ATTRIBUTES
    assert set(expected.values()) <= {item.name for item in fields(BrokerConfig)}


def test_every_default_is_allowed_by_its_own_key() -> None:
    """A default that a user could not write would be refused when a file repeats it."""
    for key in BROKER_KEYS.values():
        text = key.format(key.default)
        if text is not None:
            assert key.parse(text) == key.default, key.name


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("log.retention.hour", "1", "no such broker configuration; did you mean log.retention.hours?"),
        ("Num.Partitions", "1", "did you mean num.partitions?"),
        ("num_partitions", "1", "did you mean num.partitions?"),
        ("autoCreateTopicsEnable", "true", "did you mean auto.create.topics.enable?"),
        ("xyzzy", "1", "no such broker configuration$"),
        ("zookeeper.connect", "localhost", "no such broker configuration$"),
        ("bootstrap.servers", "localhost:9092", "no such broker configuration$"),
        ("ssl.provider", "x", "Kafka has this broker configuration, this system does not"),
        ("log.preallocate", "true", "Kafka has this broker configuration, this system does not"),
        ("metadata.max.idle.interval.ms", "1", "Kafka has this broker configuration, this system does not"),
        ("process.roles", "broker", "Kafka has this broker configuration, this system does not"),
        ("node.id", "1", "the cluster sets this"),
        ("broker.rack", "a", "the cluster sets this"),
        ("num.partitions", "0", "num.partitions=0: expected an int, at least 1"),
        ("num.partitions", "many", "expected an int"),
        ("num.partitions", "1_000", "expected an int"),
        ("num.partitions", "2147483648", "expected an int"),
        ("num.partitions", "", "expected an int"),
        ("log.retention.bytes", "9223372036854775808", "expected a long"),
        ("auto.create.topics.enable", "yes", "expected a boolean"),
        ("log.cleanup.policy", "delete,delete", "none of them twice"),
        ("log.cleanup.policy", "remove", "a list of compact, delete"),
        ("compression.type", "brotli", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "-1, or from 1 to 9"),
        ("log.retention.ms", "0", "-1, or at least 1"),
        ("log.segment.bytes", "100", "at least 1048576"),
        ("connections.max.idle.ms", "0", "-1, or at least 1"),
        ("socket.send.buffer.bytes", "-2", "-1, or at least 1"),
        ("replica.fetch.wait.max.ms", "30001", "replica.socket.timeout.ms"),
        ("replica.lag.time.max.ms", "100", "replica.lag.time.max.ms"),
        ("broker.heartbeat.interval.ms", "5000", "half of broker.session.timeout.ms"),
        ("listeners", "PLAINTEXT://:9092", "0.0.0.0 for every interface"),
        ("listeners", "", "at least one"),
        ("listeners", "127.0.0.1:9092", "expected NAME://host:port"),
        ("listeners", "PLAINTEXT://127.0.0.1", "expected a port"),
        ("listeners", "PLAINTEXT://127.0.0.1:70000", "expected a port"),
        ("listeners", "PLAINTEXT://::1:9092", "brackets"),
        ("listeners", "OUTSIDE://127.0.0.1:9092", "has no protocol for OUTSIDE"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2", "used twice"),
        ("listeners", "PLAINTEXT://a:1,CONTROLLER://b:2", "has no protocol for CONTROLLER"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "clients cannot connect"),
        ("advertised.listeners", "PLAINTEXT://[0::0]:9092", "clients cannot connect"),
        ("ssl.client.auth", "want", "one of required, requested, none"),
        ("ssl.enabled.protocols", "TLSv1.1", "a list of TLSv1.2, TLSv1.3"),
        ("listener.security.protocol.map", "A:TLS", "NAME:PROTOCOL pairs"),
        ("inter.broker.listener.name", "INSIDE", "no listener has this name"),
        ("controller.quorum.bootstrap.servers", "driver", "expected a port"),
        ("listeners", "PLAINTEXT://a..b:9092", "parts of 1 to 63 characters"),
        ("controller.quorum.bootstrap.servers", f"{'x' * 64}:9093", "parts of 1 to 63 characters"),
        ("advertised.listeners", "PLAINTEXT://a\0b:9092", "no unprintable characters"),
        ("listeners", f"PLAINTEXT://127.0.0.1:{'9' * 5000}", "expected a port"),
        ("controller.quorum.bootstrap.servers", ":9093", "host is missing"),
        ("controller.quorum.bootstrap.servers", "0.0.0.0:9093", "name the driver's host"),
        ("controller.quorum.bootstrap.servers", "0:9093", "name the driver's host"),
        ("controller.quorum.bootstrap.servers", "[::]:9093", "name the driver's host"),
        ("controller.quorum.bootstrap.servers", "[::ffff:0.0.0.0]:9093", "name the driver's host"),
    ],
)
def test_broker_config_of_a_bad_value_names_key_value_and_remedy(name: str, value: str, said: str) -> None:
    """It fails before a job is submitted, so the message is all the user has."""
    with pytest.raises(ConfigError, match=said) as caught:
        BrokerConfig.from_mapping({name: value})
    assert caught.value.key in str(caught.value)


def test_broker_config_leaves_the_name_of_the_quorums_listener_free() -> None:
    """Two listeners of one name could not be told apart."""
    with pytest.raises(ConfigError, match="for the metadata quorum"):
        BrokerConfig.from_mapping(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            }
        )


def test_broker_config_makes_the_socket_settings() -> None:
    """Listeners obey the broker's keys; -1 leaves a buffer to the system and idle connections alone."""
    given = {
        "socket.send.buffer.bytes": "1",
        "socket.receive.buffer.bytes": "2",
        "socket.listen.backlog.size": "3",
        "socket.request.max.bytes": "4",
        "connections.max.idle.ms": "5",
        "replica.socket.receive.buffer.bytes": "6",
    }
    config = BrokerConfig.from_mapping(given)
    assert config.socket_settings() == SocketSettings(
        send_buffer_bytes=1,
        receive_buffer_bytes=2,
        listen_backlog_size=3,
        request_max_bytes=4,
        connections_max_idle_ms=5,
    )
    assert config.replica_receive_buffer_bytes == 6
    defaults = BrokerConfig.from_mapping({})
    assert defaults.socket_settings() == SocketSettings()
    assert defaults.replica_receive_buffer_bytes is None
    unlimited = BrokerConfig.from_mapping({"connections.max.idle.ms": "-1"})
    assert unlimited.socket_settings().connections_max_idle_ms is None


def test_broker_config_looks_for_logs_to_flush_every_second_unless_told() -> None:
    """A topic's flush.ms must have its effect without a broker key that nobody knows."""
    assert BrokerConfig.from_mapping({}).flush_check_interval_ms == 1000
    given = BrokerConfig.from_mapping({"log.flush.scheduler.interval.ms": "70"})
    assert given.flush_check_interval_ms == 70


def test_broker_config_listeners_take_names_ports_and_ipv6() -> None:
    """One listener for the outside, one for the brokers among themselves."""
    config = BrokerConfig.from_mapping(
        {
            "listeners": "OUTSIDE://0.0.0.0:9092, INSIDE://[::1]:0",
            "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert config.listeners == (Endpoint("OUTSIDE", "0.0.0.0", 9092), Endpoint("INSIDE", "::1", 0))
    assert config.inter_broker_listener == "INSIDE"
    assert BrokerConfig.from_mapping({}).inter_broker_listener == "PLAINTEXT"


def test_advertised_endpoints_are_what_clients_can_reach() -> None:
    """Explicit ones win; a wildcard becomes the host's name; port 0 becomes the bound port."""
    config = BrokerConfig.from_mapping(
        {
            "listeners": "A://0.0.0.0:0,B://127.0.0.1:0,C://0.0.0.0:0",
            "advertised.listeners": "C://gateway:0",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
        }
    )
    bound = (Endpoint("A", "0.0.0.0", 1), Endpoint("B", "127.0.0.1", 2), Endpoint("C", "0.0.0.0", 3))
    assert config.advertised_endpoints(bound, "worker-1") == (
        Endpoint("A", "worker-1", 1),
        Endpoint("B", "127.0.0.1", 2),
        Endpoint("C", "gateway", 3),
    )


def test_broker_config_advertising_an_unknown_listener_is_refused() -> None:
    """It is a typing mistake that would hide a listener from its clients."""
    with pytest.raises(ConfigError, match="no listener has this name"):
        BrokerConfig.from_mapping(
            {"advertised.listeners": "A://h:1", "listener.security.protocol.map": "A:PLAINTEXT"}
        )


def test_broker_config_with_identity_survives_pickling() -> None:
    """The driver ships it to the broker tasks."""
    config = BrokerConfig.from_mapping({"num.partitions": "3"}).with_identity(4, "rack-1")
    assert (config.node_id, config.broker_rack, config.num_partitions) == (4, "rack-1", 3)
    assert config.raw == {"num.partitions": "3", "node.id": "4", "broker.rack": "rack-1"}
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.9, "0.9"), (1.7976931348623157e308, "1.7976931348623157E308"), (1e-07, "1E-7"), (100.0, "100.0")],
)
def test_double_is_written_as_java_writes_it(value: float, written: str) -> None:
    """Who describes a broker compares what it says with Kafka's documentation."""
    assert BROKER_KEYS["log.cleaner.io.max.bytes.per.second"].format(value) == written


def test_listener_has_its_own_values_before_those_of_all() -> None:
    """One listener may be open to more connections than another, and have a certificate of its own."""
    config = BrokerConfig.from_mapping(
        {
            "listeners": "IN://127.0.0.1:0,Out://127.0.0.1:0",
            "listener.security.protocol.map": "in:PLAINTEXT,OUT:PLAINTEXT",
            "max.connections": "5",
            "listener.name.out.max.connections": "7",
        }
    )
    assert config.of_listener("OUT").max_connections == 7
    assert config.of_listener("IN").max_connections == config.max_connections == 5
    assert BrokerConfig.from_mapping(config.raw) == config


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("listener.name.out.max.connections", "1", "no listener has the name OUT"),
        ("listener.name.plaintext.num.partitions", "1", "one value for all listeners"),
        ("listener.name.plaintext.max.connection", "1", "did you mean max.connections?"),
        (
            "listener.name.plaintext.max.connections",
            "-1",
            "listener.name.plaintext.max.connections=-1: expected",
        ),
    ],
)
def test_listener_of_a_bad_value_is_refused_by_its_whole_name(name: str, value: str, said: str) -> None:
    """A limit that is written for a listener and holds for none is worse than none."""
    with pytest.raises(ConfigError, match=said):
        BrokerConfig.from_mapping({name: value})


def test_driver_listens_for_the_clients_of_several_listeners() -> None:
    """Whoever comes over one of them has to be told its addresses, and nobody else's."""
    config = BrokerConfig.from_mapping(
        {
            "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "inter.broker.listener.name": "in",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9092, out://[::1]:9093",
        }
    )
    assert config.controller_quorum_bootstrap_servers == (("IN", ("127.0.0.1", 9092)), ("OUT", ("::1", 9093)))
    assert config.inter_broker_listener == "IN"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"controller.quorum.bootstrap.servers": "OUT://a:1"}, "no listener of the name OUT"),
        ({"controller.quorum.bootstrap.servers": "a:1,a:1"}, "same address"),
        ({"security.inter.broker.protocol": "SSL"}, "no listener has this name"),
        (
            {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
            "inter.broker.listener.name says it already",
        ),
    ],
)
def test_listeners_that_contradict_each_other_are_refused(keys: dict[str, str], said: str) -> None:
    """Two ways to say one thing may say two things."""
    with pytest.raises(ConfigError, match=said):
        BrokerConfig.from_mapping(keys)


def test_idle_followers_wait_for_longer_unless_a_wait_lag_or_silence_is_configured() -> None:
    """A configured wait is one that was chosen, be it Kafka's default."""
    wait, lag, silence = "replica.fetch.wait.max.ms", "replica.lag.time.max.ms", "replica.socket.timeout.ms"
    for given, idle_wait_ms in (
        ({}, 3_000),
        ({wait: "500"}, 500),
        ({wait: "10000"}, 10_000),
        ({lag: "1000"}, 1_000),
        ({silence: "2000"}, 2_000),
    ):
        config = BrokerConfig.from_mapping(given).with_identity(1, None)
        assert config.idle_fetch_wait_ms == idle_wait_ms, given

"""Whom a cluster that is reached from other hosts lets in, and through which ports."""

import re

import pytest

from sparklog.driver.spark import open_network
from sparklog.hosting import OpenNetworkError
from sparklog.node.config import BrokerConfig
from tests.unit.driver.spark.java_virtual_machine import context_of

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"ssl.client.auth": "requested"},
        {"ssl.client.auth": "required", "listener.name.ssl.ssl.client.auth": "requested"},
        {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"},
        {**AUTHORIZER, "super.users": "User:admin;User:ANONYMOUS"},
    ],
)
@pytest.mark.parametrize(
    "where",
    [
        {"listeners": "SSL://0.0.0.0:9093"},
        {"listeners": "SSL://127.0.0.1:0", "controller.quorum.bootstrap.servers": "SSL://10.0.0.1:9092"},
    ],
)
def test_listener_of_ssl_that_lets_in_whoever_has_no_certificate_is_refused_beyond_loopback(
    where: dict[str, str], keys: dict[str, str]
) -> None:
    """It is encrypted, and anybody there would be anonymous, and might do everything."""
    with pytest.raises(OpenNetworkError, match=r"SASL_SSL.*listener\.name\.ssl\.ssl\.client\.auth=required"):
        open_network.check_listeners(BrokerConfig.from_mapping({**where, **keys}))


def test_listener_of_ssl_that_takes_certificates_of_any_public_authority_is_refused_beyond_loopback() -> None:
    """Without a trust store it is the system's, as in Java: who has a domain has a certificate of those."""
    keys = {
        "listeners": "SSL://0.0.0.0:9093",
        "ssl.client.auth": "required",
        "ssl.keystore.location": "/etc/server.p12",
    }
    with pytest.raises(OpenNetworkError, match=r"trust store.*name\.ssl\.ssl\.truststore\.location"):
        open_network.check_listeners(BrokerConfig.from_mapping(keys))
    open_network.check_listeners(BrokerConfig.from_mapping({**keys, **AUTHORIZER}))
    for trusted in ("ssl.truststore.location", "listener.name.ssl.ssl.truststore.location"):
        open_network.check_listeners(BrokerConfig.from_mapping({**keys, trusted: "/etc/clients.p12"}))


@pytest.mark.parametrize(
    "keys",
    [
        {"ssl.client.auth": "required"},
        {"listener.name.ssl.ssl.client.auth": "required"},
        AUTHORIZER,
        {"sparklog.trusted.network": "true"},
        {"listener.security.protocol.map": "SSL:SASL_SSL"},
    ],
)
def test_listener_of_ssl_that_knows_who_comes_or_asks_an_authorizer_is_let_be(keys: dict[str, str]) -> None:
    """Who has no certificate does not get in, or may do nothing that no ACL says."""
    open_network.check_listeners(BrokerConfig.from_mapping({"listeners": "SSL://0.0.0.0:9093", **keys}))


def warned(keys: dict[str, str], settings: dict[str, str], log: pytest.LogCaptureFixture) -> bool:
    """Whether a start with these keys, in a Spark with these settings, warns of Spark's ports."""
    context = context_of(None)
    context.getConf.return_value = settings
    log.clear()
    open_network.check_spark_authenticates(context, BrokerConfig.from_mapping(keys))
    assert all("Set spark.authenticate=true" in record.getMessage() for record in log.records)
    return bool(log.records)


@pytest.mark.parametrize(
    "keys",
    [
        {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"},
        {"listeners": "SSL://127.0.0.1:0", "ssl.client.auth": "required"},
        AUTHORIZER,
    ],
)
def test_cluster_that_asks_who_comes_in_a_spark_that_asks_nobody_warns_of_it(
    keys: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """What is shut at the listeners would stand open at Spark's RPC."""
    assert warned(keys, {}, caplog)
    assert warned(keys, {"spark.authenticate": "false"}, caplog)
    assert not warned(keys, {"spark.authenticate": "true"}, caplog)
    assert not warned({**keys, "sparklog.trusted.network": "true"}, {}, caplog)


@pytest.mark.parametrize("master", ["local[4]", "spark://driver:7077"])
def test_cluster_that_other_hosts_reach_in_a_spark_that_asks_nobody_is_refused(master: str) -> None:
    """Whoever is kept out at the listener would come in by the port beside it."""
    context = context_of(None)
    context.master = master
    for keys in (
        {"listeners": "SASL_SSL://0.0.0.0:9093"},
        {
            "listeners": "SASL_SSL://127.0.0.1:0",
            "controller.quorum.bootstrap.servers": "driver.example.com:9092",
        },
    ):
        config = BrokerConfig.from_mapping(keys)
        for settings in ({}, {"spark.authenticate": "false"}):
            context.getConf.return_value = settings
            with pytest.raises(OpenNetworkError, match=r"SASL_SSL://.* Set spark\.authenticate=true"):
                open_network.check_spark_authenticates(context, config)
            trusting = BrokerConfig.from_mapping({**keys, "sparklog.trusted.network": "true"})
            open_network.check_spark_authenticates(context, trusting)
        context.getConf.return_value = {"spark.authenticate": "true"}
        open_network.check_spark_authenticates(context, config)


BEYOND_LOOPBACK = {"listeners": "SASL_SSL://0.0.0.0:9093"}
SOCKET_FILES = {"spark.python.unix.domain.socket.enabled": "true"}


@pytest.mark.parametrize(
    ("version", "settings", "remedy"),
    [
        ("4.0.1", {}, r"use Spark 4\.1 or later"),
        ("4.0.1", SOCKET_FILES, r"use Spark 4\.1 or later"),
        ("4.1.0", {}, r"spark\.python\.unix\.domain\.socket\.enabled=true"),
        ("4.3.0", dict.fromkeys(SOCKET_FILES, "false"), r"spark\.python\.unix\.domain\.socket\.enabled=true"),
    ],
)
def test_cluster_that_other_hosts_reach_is_refused_where_barrier_tasks_have_ports(
    version: str, settings: dict[str, str], remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is kept out at the listener would end all brokers by a port scan of their hosts."""
    context = context_of(None)
    context.version, context.master = version, "spark://driver:7077"
    context.getConf.return_value = settings
    with pytest.raises(OpenNetworkError, match=rf"SASL_SSL://.*port of its barrier task.*{remedy}"):
        open_network.check_barrier_tasks(context, BrokerConfig.from_mapping(BEYOND_LOOPBACK))
    trusting = BrokerConfig.from_mapping({**BEYOND_LOOPBACK, "sparklog.trusted.network": "true"})
    open_network.check_barrier_tasks(context, trusting)
    open_network.check_barrier_tasks(context, BrokerConfig.from_mapping({}))
    assert not caplog.records
    on_loopback = BrokerConfig.from_mapping({"listeners": "SASL_SSL://127.0.0.1:0"})
    open_network.check_barrier_tasks(context, on_loopback)
    assert re.search(remedy, caplog.records[0].getMessage())
    # The driver in local mode has no handler that ends it.
    context.master = "local[4]"
    open_network.check_barrier_tasks(context, BrokerConfig.from_mapping(BEYOND_LOOPBACK))


@pytest.mark.parametrize("version", ["4.1.0", "4.3.0"])
def test_cluster_that_other_hosts_reach_is_let_be_where_barrier_tasks_have_socket_files(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is what the message asks for."""
    context = context_of(None)
    context.version, context.master = version, "local-cluster[3,2,1024]"
    context.getConf.return_value = SOCKET_FILES
    open_network.check_barrier_tasks(context, BrokerConfig.from_mapping(BEYOND_LOOPBACK))
    assert not caplog.records


def test_encrypted_cluster_in_a_spark_that_encrypts_nothing_warns_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who reads what goes between the hosts would have the secret of driver and brokers."""
    context = context_of(None)
    for listener, settings, warnings in (
        ("SASL_SSL", {}, 1),
        ("SSL", {"spark.authenticate": "true", "spark.network.crypto.enabled": "false"}, 1),
        ("SASL_PLAINTEXT", {}, 0),
        ("SASL_SSL", {"spark.network.crypto.enabled": "true"}, 0),
        ("SASL_SSL", {"spark.ssl.rpc.enabled": "true"}, 0),
    ):
        context.getConf.return_value = settings
        caplog.clear()
        open_network.warn_of_readable_spark(
            context, BrokerConfig.from_mapping({"listeners": f"{listener}://0.0.0.0:9093"})
        )
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == warnings and all("spark.network.crypto.enabled=true" in each for each in told)


def test_cluster_that_asks_nobody_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Everybody on the machine may do everything, and whoever starts it so knows."""
    assert not warned({}, {}, caplog)

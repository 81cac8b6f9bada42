"""What is checked before a job is submitted."""

import os
import stat
from pathlib import Path

import pytest

from driver.spark import preflight
from sparklog.config import BrokerConfig
from sparklog.config.definition import ConfigError
from sparklog.hosting import NoWritableDirectoryError, OpenNetworkError, StartError
from tests.certificates import Authority, server_keys
from tests.unit.driver.spark.java_virtual_machine import context_of

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def with_keys(keys: dict[str, str]) -> BrokerConfig:
    """A configuration whose second listener is one of TLS, for brokers alone."""
    return BrokerConfig.from_mapping(
        {
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
            **{f"listener.name.outside.{key}": value for key, value in keys.items()},
        }
    )


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "ssl.keystore.location: a listener of SSL or SASL_SSL needs a private key"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "name all three"),
        ({"ssl.principal.mapping.rules": "nonsense"}, "is no rule"),
    ],
)
def test_certificates_of_brokers_that_are_of_no_use_are_refused_by_the_driver(
    keys: dict[str, str], said: str, tmp_path: Path
) -> None:
    """Else each broker would end, be started anew, and end again, with its reason in a log of its own."""
    given = server_keys(Authority().certify(), tmp_path) | keys if keys else {}
    with pytest.raises(ConfigError, match=said):
        preflight.check_certificates(with_keys(given))


def test_certificates_that_are_on_the_brokers_hosts_alone_are_left_to_them(tmp_path: Path) -> None:
    """The driver does not listen there, and may not have been given their keys."""
    keys = server_keys(Authority().certify(), tmp_path)
    preflight.check_certificates(with_keys(keys))
    Path(keys["ssl.keystore.location"]).unlink()
    preflight.check_certificates(with_keys(keys))


def test_configuration_that_spark_would_write_into_files_is_refused_by_its_longest_key() -> None:
    """The secret of driver and brokers travels with it, and is to be in no file."""
    context = context_of(None)
    context._jvm.PythonUtils.getBroadcastThreshold.return_value = 1 << 20
    inline = BrokerConfig.from_mapping({"ssl.truststore.certificates": "x" * 900_000, "num.partitions": "1"})
    preflight.check_size(context, inline)
    inline = BrokerConfig.from_mapping({"ssl.truststore.certificates": "x" * (1 << 20)})
    with pytest.raises(StartError, match=r"Instead of what is in ssl\.truststore\.certificates"):
        preflight.check_size(context, inline)


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
        preflight.check_listeners(BrokerConfig.from_mapping({**where, **keys}))


def test_listener_of_ssl_that_takes_certificates_of_any_public_authority_is_refused_beyond_loopback() -> None:
    """Without a trust store it is the system's, as in Java: who has a domain has a certificate of those."""
    keys = {
        "listeners": "SSL://0.0.0.0:9093",
        "ssl.client.auth": "required",
        "ssl.keystore.location": "/etc/server.p12",
    }
    with pytest.raises(OpenNetworkError, match=r"trust store.*name\.ssl\.ssl\.truststore\.location"):
        preflight.check_listeners(BrokerConfig.from_mapping(keys))
    preflight.check_listeners(BrokerConfig.from_mapping({**keys, **AUTHORIZER}))
    for trusted in ("ssl.truststore.location", "listener.name.ssl.ssl.truststore.location"):
        preflight.check_listeners(BrokerConfig.from_mapping({**keys, trusted: "/etc/clients.p12"}))


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
    preflight.check_listeners(BrokerConfig.from_mapping({"listeners": "SSL://0.0.0.0:9093", **keys}))


def test_temporary_directory_that_another_user_has_made_is_refused_and_one_that_is_named_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He could read what lies there, and change it; in /tmp everybody may take a name first."""
    theirs = tmp_path / "theirs"
    theirs.mkdir(0o777)
    preflight.check_directories([theirs], temporary=True)
    owner = theirs.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(NoWritableDirectoryError, match=rf"id {owner}, .* log_directories or log\.dirs"):
        preflight.check_directories([theirs], temporary=True)
    link = tmp_path / "link"
    link.symlink_to("/")
    with pytest.raises(NoWritableDirectoryError, match="link belongs to"):
        preflight.check_directories([link], temporary=True)
    preflight.check_directories([theirs])


def test_directories_for_logs_are_made_for_this_user_alone_and_those_that_are_there_are_let_be(
    tmp_path: Path,
) -> None:
    """Nobody else reads records from the disk; what a user has made for a group of his stays so."""
    own, shared = tmp_path / "a" / "b", tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    preflight.check_directories([own, shared])
    modes = [stat.S_IMODE(directory.stat().st_mode) for directory in (own.parent, own, shared)]
    assert modes == [0o700, 0o700, 0o775]


def warned(keys: dict[str, str], settings: dict[str, str], log: pytest.LogCaptureFixture) -> bool:
    """Whether a start with these keys, in a Spark with these settings, warns of Spark's ports."""
    context = context_of(None)
    context.getConf.return_value = settings
    log.clear()
    preflight.check_spark(context, BrokerConfig.from_mapping(keys))
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
                preflight.check_spark(context, config)
            trusting = BrokerConfig.from_mapping({**keys, "sparklog.trusted.network": "true"})
            preflight.check_spark(context, trusting)
        context.getConf.return_value = {"spark.authenticate": "true"}
        preflight.check_spark(context, config)


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
        preflight.warn_of_readable_spark(
            context, BrokerConfig.from_mapping({"listeners": f"{listener}://0.0.0.0:9093"})
        )
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == warnings and all("spark.network.crypto.enabled=true" in each for each in told)


def test_cluster_that_asks_nobody_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Everybody on the machine may do everything, and whoever starts it so knows."""
    assert not warned({}, {}, caplog)

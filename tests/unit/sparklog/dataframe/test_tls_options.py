"""The `kafka.ssl.*` options: the connector's, and never shown."""

import asyncio
import pickle
from pathlib import Path

from sparklog.config import BrokerConfig
from sparklog.config.listener_tls import listener_tls
from sparklog.dataframe.application_cluster import ApplicationAddress
from sparklog.dataframe.kafka_options import KafkaOptions
from sparklog.dataframe.tls_options import inside_settings
from sparklog.endpoints import SecurityProtocol
from sparklog.security.inside import ApplicationSecret
from sparklog.security.tls.inside import InsideTls
from sparklog.security.tls.settings import StoreSettings, TlsSettings
from sparklog.wire.blocking import BlockingChannel
from tests.certificates import Authority, server_keys
from tests.unit.sparklog.wire.serving import HEARTBEAT_ONLY, heartbeat, heartbeat_response, run, serving

GIVEN = {
    "bootstrap.servers": "a:1",
    "security.protocol": "ssl",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/etc/kafka/ca.pem",
    "ssl.keystore.type": "PKCS12",
    "ssl.keystore.location": "/etc/kafka/me.p12",
    "ssl.keystore.password": "p4ssw0rd",
    "ssl.key.password": "k3y",
    "ssl.endpoint.identification.algorithm": "",
    "ssl.cipher.suites": "A, B",
    "ssl.protocol": "TLSv1.3",
}


def test_tls_options_mean_what_they_mean_to_kafkas_clients_and_show_no_secret() -> None:
    """A job that moves over from the connector brings them along."""
    reported: list[str] = []
    client = KafkaOptions(GIVEN, None, report=reported.append).client()
    assert client.tls == TlsSettings(
        keystore=StoreSettings(
            type="PKCS12", location="/etc/kafka/me.p12", password="p4ssw0rd", key_password="k3y"
        ),
        truststore=StoreSettings(type="PEM", location="/etc/kafka/ca.pem"),
        endpoint_identification_algorithm="",
        cipher_suites=("A", "B"),
        prefix="kafka.ssl.",
    )
    assert "p4ssw0rd" not in repr(client) and "k3y" not in repr(client)
    assert [each.split("'")[1] for each in reported] == ["kafka.ssl.protocol"]


def test_tls_options_without_the_protocol_encrypt_nothing() -> None:
    """As with Kafka's clients: it is security.protocol that says it."""
    given = {name: value for name, value in GIVEN.items() if name != "security.protocol"}
    assert KafkaOptions(given, None, report=lambda _: None).client().tls is None


def test_session_of_the_application_trusts_its_own_cluster_without_options() -> None:
    """It needs nothing to be told: where Spark puts a broker, no certificate of a user's could say."""
    authority_pem = InsideTls(ApplicationSecret.new().tls_seed).authority_pem
    own = pickle.loads(pickle.dumps(ApplicationAddress("127.0.0.1:1", authority_pem)))
    client = KafkaOptions({}, own, report=lambda _: None).client()
    assert client.tls == inside_settings(authority_pem)
    assert KafkaOptions({}, ApplicationAddress("127.0.0.1:1"), report=lambda _: None).client().tls is None
    other = {"bootstrap.servers": "127.0.0.1:2"}
    assert KafkaOptions(other, own, report=lambda _: None).client().tls is None
    given = {"security.protocol": "SSL", "ssl.truststore.location": "/ca.pem"}
    named = KafkaOptions(given, own, report=lambda _: None).client().tls
    assert isinstance(named, TlsSettings) and named.truststore.location == "/ca.pem"


def test_session_of_the_application_reaches_a_listener_whose_certificate_names_another_host(
    tmp_path: Path,
) -> None:
    """With nothing but what the driver has announced."""
    secret, authority = ApplicationSecret.new(), Authority()
    keys = server_keys(authority.certify(hosts=["elsewhere.example"]), tmp_path)
    config = BrokerConfig.from_mapping({"listeners": "SSL://127.0.0.1:0", **keys})

    async def scenario() -> None:
        tls = listener_tls(config, "SSL", SecurityProtocol.SSL, secret)
        async with serving(HEARTBEAT_ONLY, tls=tls) as listener:
            settings = inside_settings(InsideTls(secret.tls_seed).authority_pem)

            def ask() -> object:
                with BlockingChannel("127.0.0.1", listener.port, "test", tls=settings) as channel:
                    return channel.request(heartbeat(1))

            assert await asyncio.to_thread(ask) == heartbeat_response(1)

    run(scenario())

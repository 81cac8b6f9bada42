"""The `kafka.ssl.*` options: the connector's, and never shown."""

from sparklog.node.security.tls.settings import StoreSettings, TlsSettings
from sparklog.user.dataframe.kafka_options import KafkaOptions

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

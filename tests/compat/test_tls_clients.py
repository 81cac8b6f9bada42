"""Real clients over TLS, with certificates of their own: they come in, and those who must not do not."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from kafka import KafkaConsumer, KafkaProducer

from tests.certificates import Authority
from tests.cluster import LocalCluster, wait_for
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import create_topic

VALUES: Final = [b"%d" % number for number in range(200)] + [bytes(range(256)) * 3_000]
"""Small ones, and one of many TLS records."""


class Tls(NamedTuple):
    """A cluster whose listener of TLS requires certificates of clients, and is the brokers' own, too."""

    cluster: LocalCluster
    bootstrap: str
    authority: Authority
    ca: str
    """Files: whom to trust, a client's key and its certificate, and both of it."""
    key: str
    certificate: str
    both: str


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority()
    ann, server = authority.certify("ann", hosts=[]), authority.certify()
    files = {
        "ca": authority.pem,
        "key": ann.key_pem,
        "certificate": ann.certificate_pem,
        "both": ann.key_pem + ann.certificate_pem,
        "server": server.key_pem + server.certificate_pem,
    }
    for name, content in files.items():
        (directory / name).write_text(content)
    config = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "advertised.listeners": "SSL://localhost:0,PLAINTEXT://127.0.0.1:0",
        "controller.quorum.bootstrap.servers": "127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "server"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca"),
        "listener.name.ssl.ssl.client.auth": "required",
        "min.insync.replicas": "2",
    }
    with LocalCluster(brokers=2, config=config) as cluster:
        bootstrap = cluster.controller.bootstrap_servers.replace("127.0.0.1", "localhost")
        paths = [str(directory / name) for name in ("ca", "key", "certificate", "both")]
        yield Tls(cluster, bootstrap, authority, *paths)


@pytest.fixture
def topic(tls: Tls, new_topic_name: Callable[[str], str]) -> str:
    name = new_topic_name("tls")
    plain = tls.cluster.controller.bootstrap_servers_by_listener["PLAINTEXT"]
    create_topic(plain, name, replication_factor=2)
    return name


def librdkafka(tls: Tls, **other: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": tls.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": tls.ca,
        "ssl.key.location": tls.key,
        "ssl.certificate.location": tls.certificate,
        **other,
    }


def test_librdkafka_writes_and_reads_by_tls(tls: Tls, topic: str) -> None:
    """OpenSSL at both ends."""
    producer = Producer(librdkafka(tls, **{"enable.idempotence": True}))
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    consumer = Consumer(librdkafka(tls, **{"group.id": topic, "enable.auto.commit": False}))
    consumer.assign([Assigned(topic, 0, 0)])
    read: list[bytes | None] = []
    wait_for(lambda: read.extend(m.value() for m in consumer.consume(500, 0.2)) or len(read) >= 201, "all")
    consumer.close()
    assert read == VALUES


def test_kafka_python_writes_and_reads_by_tls(tls: Tls, topic: str) -> None:
    """Python's ssl over plain sockets."""
    given: dict[str, Any] = {
        "bootstrap_servers": tls.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": tls.ca,
        "ssl_certfile": tls.certificate,
        "ssl_keyfile": tls.key,
    }
    producer = KafkaProducer(**given, acks="all")
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(20)
    producer.close()
    consumer = KafkaConsumer(
        topic, **given, auto_offset_reset="earliest", group_id=None, consumer_timeout_ms=20_000
    )
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()


def test_aiokafka_writes_and_reads_by_tls(tls: Tls, topic: str) -> None:
    """asyncio's own transports."""
    context = ssl.create_default_context(cafile=tls.ca)
    context.load_cert_chain(tls.both)
    given: dict[str, Any] = {
        "bootstrap_servers": tls.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def round_trip() -> list[bytes | None]:
        async with AIOKafkaProducer(**given) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        consumer = AIOKafkaConsumer(**given, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, 0)])
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in VALUES]

    assert asyncio.run(round_trip()) == VALUES


def test_javas_clients_write_and_read_by_tls(
    tls: Tls, topic: str, kafka_program: KafkaProgram, tmp_path: Path
) -> None:
    """Java's own implementation of TLS, with the same keys that Kafka's clients have."""
    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={tls.ca}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={tls.both}\n"
    )
    given = ("--bootstrap-server", tls.bootstrap, "--topic", topic)
    written = kafka_program(
        "org.apache.kafka.tools.ProducerPerformance",
        *(*given, "--throughput", "-1", "--num-records", "2000", "--record-size", "1000"),
        *("--command-config", str(settings)),
    ).stdout
    assert "2000 records sent" in written
    read = kafka_program(
        "org.apache.kafka.tools.ConsumerPerformance",
        *(*given, "--num-records", "2000", "--command-config", str(settings), "--timeout", "20000"),
    ).stdout
    assert ", 2000, " in read


def test_librdkafka_that_trusts_another_or_shows_nothing_stays_outside(
    tls: Tls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both are told so by the handshake, and the broker's log says who it was."""
    stranger = tmp_path / "ca.pem"
    stranger.write_text(Authority().pem)
    for other in (
        {"ssl.ca.location": str(stranger)},
        {"ssl.key.location": "", "ssl.certificate.location": ""},
    ):
        errors: list[str] = []
        given = librdkafka(tls, **other, error_cb=lambda error, to=errors: to.append(str(error)))
        given = {name: value for name, value in given.items() if value != ""}
        with caplog.at_level(logging.CRITICAL):
            producer = Producer(given)
            wait_for(lambda of=producer, to=errors: of.poll(0.02) or to, "an error")  # type: ignore[misc]
        assert any("SSL" in error for error in errors), errors

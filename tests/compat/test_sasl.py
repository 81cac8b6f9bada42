"""SASL with clients as they come: who has the password, who has not, and who has to say it again."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import abc as aiokafka_abc
from aiokafka.errors import KafkaError as AsyncKafkaError
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError
from kafka.net.sasl import oauth as kafka_oauth

from sparklog.jobs.command_config import command_client
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.security.sasl.password_login import PasswordLogin
from sparklog.protocol.errors import KafkaError as OurKafkaError
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.sink.client import SinkClient
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client, create_topic
from tests.identity_provider import IdentityProvider

PASSWORD = "an interesting s3cret, isn't=it"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROVIDER = IdentityProvider()
REAUTHENTICATION_MS = 1_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One broker with a listener of SASL beside that of the brokers; ann is known by every mechanism."""
    keys = tmp_path_factory.mktemp("provider") / "keys.json"
    keys.write_bytes(PROVIDER.key_set())
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_ann="{PASSWORD}" user_admin="admin";'
        ),
        "connections.max.reauth.ms": str(REAUTHENTICATION_MS),
        "connection.failed.authentication.delay.ms": "10",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann;User:ANONYMOUS",
    }
    with LocalCluster(brokers=1, config=config) as running:
        set_password(admin_client(inside(running)), "ann", PASSWORD)
        create_topic(inside(running), "topic", 1, 1)
        yield running


def set_password(admin: AdminClient, user: str, password: str) -> None:
    upsertions = [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    for upsertion in upsertions:
        for future in admin.alter_user_scram_credentials([upsertion]).values():
            future.result(TIMEOUT_S)


def inside(cluster: LocalCluster) -> str:
    """Return where nobody is asked who he is."""
    host, port = cluster.address(0)
    return f"{host}:{port}"


def address(cluster: LocalCluster) -> str:
    """Return where SASL is spoken."""
    (endpoint,) = (each for each in cluster.image.brokers[0].listeners if each.name == "SASL_PLAINTEXT")
    return f"{endpoint.host}:{endpoint.port}"


def librdkafka(cluster: LocalCluster, mechanism: str, password: str, user: str = "ann") -> dict[str, Any]:
    config = {
        "bootstrap.servers": address(cluster),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism != "OAUTHBEARER":
        return {**config, "sasl.username": user, "sasl.password": password}
    return {**config, "oauth_cb": lambda _: (bearer_token(password, user), time.time() + 3600)}


def bearer_token(password: str, user: str = "ann") -> str:
    """Return a token for whoever has the password, from the provider; for others it is from somebody else."""
    is_known = (user, password) == ("ann", PASSWORD)
    provider = PROVIDER if is_known else IdentityProvider("somebody else's")
    return provider.token(sub=user, aud="kafka", headers={"kid": PROVIDER.key_id})


class Kafkas(IdentityProvider):
    """Grants tokens for this cluster."""

    def token(self, **said: Any) -> str:
        return super().token(aud="kafka", **said)


class BearerToken(kafka_oauth.AbstractTokenProvider, aiokafka_abc.AbstractTokenProvider):  # type: ignore[misc]
    """Gives kafka-python and aiokafka the token of a password."""

    def __init__(self, password: str) -> None:
        self.password = password

    def extensions(self) -> dict[str, str]:
        return {"traceId": "7"}


class KafkaPythonToken(BearerToken):
    def token(self) -> str:
        return bearer_token(self.password)


class AioKafkaToken(BearerToken):
    async def token(self) -> str:
        return bearer_token(self.password)


def produced(config: dict[str, Any]) -> None:
    """Produce a record, acknowledged.

    Raises:
        KafkaException: why it was not.
    """
    failures: list[KafkaError] = []
    delivered: list[KafkaError | None] = []
    producer = Producer({**config, "error_cb": failures.append, "message.timeout.ms": 20_000})
    producer.produce("topic", b"x", on_delivery=lambda error, _: delivered.append(error))

    def is_over() -> bool:
        producer.poll(0.05)
        refused = any(each.code() == KafkaError._AUTHENTICATION for each in failures)
        return bool(delivered) or refused

    wait_for(is_over, "the record is delivered, or the client refused", TIMEOUT_S)
    if delivered == [None]:
        return
    producer.purge()
    raise KafkaException(failures[0])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_with_the_password_produces_and_without_it_is_refused(
    cluster: LocalCluster, mechanism: str
) -> None:
    """A client that is refused says why, and does not go on for ever."""
    produced(librdkafka(cluster, mechanism, PASSWORD))
    for user, password in (("ann", "another"), ("eve", PASSWORD)):
        with pytest.raises(KafkaException, match=r"[Aa]uthentication"):
            produced(librdkafka(cluster, mechanism, password, user))


def test_librdkafka_goes_on_beyond_the_end_of_its_session(cluster: LocalCluster) -> None:
    """KIP-368: it says again who it is, on the same connection, and loses no record."""
    errors: list[KafkaError | None] = []
    lost: list[KafkaError] = []
    producer = Producer({**librdkafka(cluster, "SCRAM-SHA-512", PASSWORD), "error_cb": lost.append})
    loop = asyncio.new_event_loop()
    ends_s = loop.time() + 1.5 * REAUTHENTICATION_MS / 1000
    while loop.time() < ends_s:
        producer.produce("topic", b"x", on_delivery=lambda error, _: errors.append(error))
        producer.poll(0.05)
    loop.close()
    assert producer.flush(TIMEOUT_S) == 0
    assert set(errors) == {None} and lost == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_with_the_password_produces_and_without_it_is_refused(
    cluster: LocalCluster, mechanism: str
) -> None:
    """A client that has SCRAM written out for itself."""

    def settings(password: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": address(cluster),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "ann",
            "sasl_plain_password": password,
            "sasl_oauth_token_provider": KafkaPythonToken(password),
            "bootstrap_timeout_ms": 1_000,
        }

    producer = KafkaProducer(**{**settings(PASSWORD), "bootstrap_timeout_ms": 30_000})
    assert producer.send("topic", b"x").get(TIMEOUT_S).offset >= 0
    producer.close()
    with pytest.raises(PythonKafkaError):
        refused = KafkaProducer(**settings("another"), max_block_ms=3_000)
        refused.send("topic", b"x").get(TIMEOUT_S)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_with_the_password_produces_and_without_it_is_refused(
    cluster: LocalCluster, mechanism: str
) -> None:
    """And a third one."""

    async def produce(password: str) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=address(cluster),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="ann",
            sasl_plain_password=password,
            sasl_oauth_token_provider=AioKafkaToken(password),
        )
        try:
            await producer.start()
            return int((await producer.send_and_wait("topic", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(produce(PASSWORD)) >= 0
    with pytest.raises(AsyncKafkaError):
        asyncio.run(produce("another"))


def test_librdkafka_has_its_token_from_the_provider(cluster: LocalCluster) -> None:
    """Client credentials, as it asks for them by itself."""
    provider = Kafkas()
    with provider.serving() as url:
        produced(
            {
                "bootstrap.servers": address(cluster),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "ann",
                "sasl.oauthbearer.client.secret": PASSWORD,
                "sasl.oauthbearer.token.endpoint.url": f"{url}/token",
            }
        )
    assert {path for path, _ in provider.asked} == {"/token"}


def test_commands_take_a_clients_settings_as_kafkas_tools_do(cluster: LocalCluster, tmp_path: Path) -> None:
    """Where everybody has to say who he is, a file says it, the one for Kafka's tools."""
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        f'  username="ann" password="{PASSWORD}";\n'
    )
    with ClusterClient(command_client(address(cluster), path)) as client:
        assert SinkClient(client).open_transactions() == []


def test_credentials_are_told_replaced_and_removed(cluster: LocalCluster) -> None:
    """What is changed while the cluster runs holds for the next connection."""
    admin = admin_client(inside(cluster))
    set_password(admin, "bob", "first")
    (telling,) = admin.describe_user_scram_credentials(["bob"]).values()
    described = telling.result(TIMEOUT_S)
    assert [(info.mechanism, info.iterations) for info in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096),
        (ScramMechanism.SCRAM_SHA_512, 4096),
    ]

    host, _, port = address(cluster).rpartition(":")

    def may(password: str) -> bool:
        login = PasswordLogin("SCRAM-SHA-256", "bob", password)
        try:
            BlockingChannel(host, int(port), "test", login=login).close()
        except OurKafkaError as error:
            assert error.error_code.name == "sasl_authentication_failed"
            return False
        return True

    wait_for(lambda: may("first"), "the broker hears of the password", TIMEOUT_S)
    set_password(admin, "bob", "second")
    wait_for(lambda: may("second") and not may("first"), "the broker hears of the other one", TIMEOUT_S)
    (removed,) = admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)]
    ).values()
    removed.result(TIMEOUT_S)
    wait_for(lambda: not may("second"), "the broker hears that it is removed", TIMEOUT_S)

"""What it costs that strangers are kept out: records over TLS, connections that log in, and ACLs.

The clusters of these cases have listeners of SSL and SASL_SSL beside the plain one, on which nobody is asked
who he is, and an authorizer with a thousand ACLs; TLS ends at brokers' clients, brokers talk in plain as in
the other cases.
"""

import contextlib
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from benchmarks import clients
from benchmarks.case import OURS, PARTITIONS, RATIO, TOPICS, Case, Figure, Round
from benchmarks.clusters import ClusterUnderTest, apache_kafka_cluster, sparklog_cluster
from benchmarks.java_libraries import maven_at_hand
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.security.sasl.password_login import PasswordLogin
from sparklog.node.serving.tls.tls_stream import ClientTls
from sparklog.protocol.errors import KafkaError
from tests.certificates import Authority, server_keys

RECORD_BYTES: Final = 1_000
RECORDS: Final = 300_000
CONSUME_PASSES: Final = 6
ACLS: Final = 1_000
ACLS_A_REQUEST: Final = 250
GUARDED_RECORDS: Final = 500_000
GUARDED_RECORD_BYTES: Final = 100
PAIRS: Final = 3
"""How often in a round both are measured whose ratio is a figure."""
CONNECTIONS: Final = 150
MECHANISM: Final = "SCRAM-SHA-512"
USER: Final = "ann"
TIMEOUT_S: Final = 60.0


class Security:
    """What the brokers of secured clusters are configured with, and their clients."""

    def __init__(self, directory: Path) -> None:
        """Write certificates and keys into the directory."""
        authority = Authority()
        self.authority = directory / "authority.pem"
        self.authority.write_text(authority.pem)
        mechanisms = f"PLAIN,{MECHANISM}"
        plain = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="admin" password="admin" user_admin="admin";'
        )
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        self.of_brokers: Mapping[str, str] = {
            **server_keys(authority.certify(), directory),
            "sasl.enabled.mechanisms": mechanisms,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
        }
        self.of_kafkas: Mapping[str, str] = {
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
            **{
                f"listener.name.{name}.{key}": value
                for name in ("inside", "controller")
                for key, value in (("sasl.enabled.mechanisms", "PLAIN"), ("plain.sasl.jaas.config", plain))
            },
        }
        """What Apache Kafka needs beside, for its brokers and controllers."""

    @property
    def of_java(self) -> Mapping[str, str]:
        """What a client of Kafka's library is given, to speak TLS."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }

    @property
    def of_librdkafka(self) -> Mapping[str, str]:
        """What a client of librdkafka is given, to speak TLS."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.authority)}

    def admin(self, cluster: ClusterUnderTest) -> AdminClient:
        """Return a client of who may do anything."""
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "admin"}
        return AdminClient(
            {
                **self.of_librdkafka,
                "security.protocol": "SASL_SSL",
                "bootstrap.servers": cluster.secured["SASL_SSL"],
                **login,
            }
        )


@contextlib.contextmanager
def secured_clusters(*, compare: bool) -> Iterator[tuple[Security, list[ClusterUnderTest]]]:
    """Start ours, and Apache Kafka to `compare`."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-security-"))
        security = Security(Path(directory))
        clusters = []
        starts = [(sparklog_cluster, security.of_brokers)]
        if compare:
            starts.append((apache_kafka_cluster, {**security.of_brokers, **security.of_kafkas}))
        for start, settings in starts:
            cluster = stack.enter_context(start(settings))
            _set_up(security, cluster)
            clusters.append(cluster)
        yield security, clusters


def _set_up(security: Security, cluster: ClusterUnderTest) -> None:
    """Make a user, and a thousand ACLs, a few of which let anybody use the topics of benchmarks."""
    admin = security.admin(cluster)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion(USER, credential, USER.encode())
    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(TIMEOUT_S)
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    needed = [
        (ResourceType.BROKER, "kafka-cluster", literal),
        (ResourceType.TOPIC, "benchmark-", prefixed),
        (ResourceType.GROUP, "benchmark", prefixed),
    ]
    acls = [
        AclBinding(kind, name, pattern, "User:ANONYMOUS", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        for kind, name, pattern in needed
    ]
    for number in range(ACLS - len(acls)):
        pattern = prefixed if number % 2 else literal
        who = f"User:user-{number % 50}"
        name = f"orders-{number}"
        acls.append(
            AclBinding(
                ResourceType.TOPIC, name, pattern, who, "*", AclOperation.WRITE, AclPermissionType.ALLOW
            )
        )
    for start in range(0, ACLS, ACLS_A_REQUEST):
        for future in admin.create_acls(acls[start : start + ACLS_A_REQUEST]).values():
            future.result(TIMEOUT_S)


def tls_produce(security: Security) -> Case:
    """Produce over TLS."""

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        def run() -> list[Figure]:
            with TOPICS.one(cluster) as topic:
                rate = clients.producer_performance(
                    cluster, topic, records=RECORDS, record_bytes=RECORD_BYTES, security=security.of_java
                )
            name = f"TLS produce {RECORD_BYTES} B"
            return [
                Figure(name, "records/s", rate.records_per_s, ">= 1.0"),
                Figure(f"{name}, brokers' CPU", "s/GB", rate.brokers_cpu_s_per_gb),
            ]

        yield run

    return prepared


def tls_consume(security: Security) -> Case:
    """Consume over TLS, again and again, what was produced before; and without TLS for the price of it."""

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        with TOPICS.one(cluster) as topic:
            clients.librdkafka_performance(cluster, topic, records=RECORDS, record_bytes=RECORD_BYTES)

            def rate(options: Mapping[str, str]) -> clients.Rate:
                return clients.consume(
                    cluster,
                    topic,
                    partitions=PARTITIONS,
                    records=RECORDS,
                    record_bytes=RECORD_BYTES,
                    passes=CONSUME_PASSES,
                    security=options,
                )

            def run() -> list[Figure]:
                encrypted, plain = rate(security.of_librdkafka), rate({})
                name = f"TLS consume {RECORD_BYTES} B"
                slower = encrypted.records_per_s / plain.records_per_s
                return [
                    Figure(name, "records/s", encrypted.records_per_s, ">= 1.0"),
                    Figure(f"{name}, brokers' CPU", "s/GB", encrypted.brokers_cpu_s_per_gb),
                    Figure(f"consume {RECORD_BYTES} B in plain", "records/s", plain.records_per_s),
                    Figure(f"{name}, to plain", RATIO, slower),
                ]

            yield run

    return prepared


def connect(security: Security) -> Case:
    """Set up connections that prove who they are by SCRAM, over TLS, one after the other."""
    tls = ClientTls(ssl.create_default_context(cafile=security.authority))

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        metadata = security.admin(cluster).list_topics(timeout=10)
        addresses = [(broker.host, broker.port) for broker in metadata.brokers.values()]
        _wait_for_user(addresses, tls)

        def run() -> list[Figure]:
            took_ms = []
            cpu_before_s = cluster.brokers_cpu_s()
            for number in range(CONNECTIONS):
                began_s = time.perf_counter()
                with _connected(addresses[number % len(addresses)], tls):
                    took_ms.append(1000 * (time.perf_counter() - began_s))
            cpu_ms = 1000 * (cluster.brokers_cpu_s() - cpu_before_s) / CONNECTIONS
            name = f"SASL_SSL connection, {MECHANISM}"
            return [
                Figure(f"{name}, p50", "ms", statistics.median(took_ms), "<= 1.0"),
                Figure(f"{name}, brokers' CPU", "ms", cpu_ms),
            ]

        yield run

    return prepared


def _connected(address: tuple[str, int], tls: ClientTls) -> BlockingChannel:
    login = PasswordLogin(MECHANISM, USER, USER)
    return BlockingChannel(*address, "benchmark", TIMEOUT_S, tls=tls, login=login)


def _wait_for_user(addresses: list[tuple[str, int]], tls: ClientTls) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    for address in addresses:
        while True:
            try:
                _connected(address, tls).close()
                break
            except KafkaError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.1)


def authorization(security: Security) -> Case:
    """Produce where a thousand ACLs decide, and to a cluster beside it that asks nobody anything, in turn."""

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        start = sparklog_cluster if cluster.name == OURS else apache_kafka_cluster

        def rate(where: ClusterUnderTest) -> clients.Rate:
            with TOPICS.one(where) as topic:
                return clients.producer_performance(
                    where, topic, records=GUARDED_RECORDS, record_bytes=GUARDED_RECORD_BYTES
                )

        def run() -> list[Figure]:
            pairs: list[tuple[clients.Rate, clients.Rate]] = []
            for number in range(PAIRS):
                pair = (cluster, open_to_all)
                # Each comes first in turn: what the first one left to be written the second one pays for.
                first, second = (rate(each) for each in (pair if number % 2 else pair[::-1]))
                pairs.append((first, second) if number % 2 else (second, first))
            rate_ratio = statistics.median(
                guarded.records_per_s / unguarded.records_per_s for guarded, unguarded in pairs
            )
            cpu_ratio = statistics.median(
                guarded.brokers_cpu_s / unguarded.brokers_cpu_s for guarded, unguarded in pairs
            )
            produce = f"produce {GUARDED_RECORD_BYTES} B"
            name = f"{produce} with {ACLS:,} ACLs, to without authorizer"
            figures = [
                Figure(name, RATIO, rate_ratio, "ours >= 0.97"),
                Figure(f"{name}, brokers' CPU", RATIO, cpu_ratio),
            ]
            for which, rates in zip(
                (f"with {ACLS:,} ACLs", "without authorizer"), zip(*pairs, strict=True), strict=True
            ):
                per_s = statistics.median(each.records_per_s for each in rates)
                cpu_s_per_gb = statistics.median(each.brokers_cpu_s_per_gb for each in rates)
                figures += [
                    Figure(f"{produce} {which}", "records/s", per_s),
                    Figure(f"{produce} {which}, brokers' CPU", "s/GB", cpu_s_per_gb),
                ]
            return figures

        with start() as open_to_all:
            yield run

    return prepared


CASES: Final[Mapping[str, Callable[[Security], Case]]] = {
    # The producers are Kafka's own programs.
    **({"tls-produce": tls_produce, "authorization": authorization} if maven_at_hand() else {}),
    "tls-consume": tls_consume,
    "sasl-ssl-connect": connect,
}

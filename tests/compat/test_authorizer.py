"""ACLs with Kafka's own StandardAuthorizer, and on a running cluster with tools and clients as they come."""

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from hypothesis import HealthCheck, given, seed, settings
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern
from kafka.admin import ResourceType as PythonResourceType

from sparklog.protocol.errors import KafkaError
from sparklog.user.dataframe.worker_process import this_process
from sparklog.user.sink.machine.names import DECISIONS_TOPIC, NAMES_PREFIX
from tests.cluster import LocalCluster, wait_for
from tests.compat.authorizer_cases import Case, StandardAuthorizer, agree, cases
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import TIMEOUT_S, admin_client, consume, create_topic, produce
from tests.compat.sinks import Query
from tests.compat.test_kafka_python import command_line

ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
WHO = "User:ANONYMOUS"


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    """A cluster that asks; what no ACL is about is open, so that its brokers, who are anonymous, may talk."""
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "num.partitions": "1",
    }
    with LocalCluster(brokers=1, config=config) as running:
        yield running


def test_standard_authorizer_decides_alike(kafka_program: KafkaProgram) -> None:
    """A few of the cases that `python -m tests.compat.authorizer_cases` compares by the thousand."""
    with StandardAuthorizer() as kafka:

        @seed(20)
        @settings(max_examples=80, database=None, suppress_health_check=list(HealthCheck))
        @given(cases)
        def compare(case: Case) -> None:
            agree(case, kafka)

        compare()


def test_kafka_acls_adds_lists_and_removes(guarded: LocalCluster, kafka_program: KafkaProgram) -> None:
    """What every operator of Kafka has in his fingers."""

    def tool(*arguments: str) -> str:
        return kafka_program(ACL_COMMAND, "--bootstrap-server", guarded.bootstrap_servers, *arguments).stdout

    about = ("--topic", "orders", "--resource-pattern-type", "prefixed")
    who = ("--allow-principal", "User:ann", "--allow-host", "10.0.0.1")
    added = tool("--add", *about, *who, "--operation", "Read", "--operation", "Describe")
    assert "operation=DESCRIBE, permissionType=ALLOW" in added  # it lists what there is then
    (acl,) = (acl for acl in guarded.image.acls.values() if acl.operation.name == "READ")
    assert (acl.principal, acl.host) == ("User:ann", "10.0.0.1")
    tool("--remove", "--force", *about)
    assert guarded.image.acls == {}


def test_kafka_python_adds_lists_and_removes(guarded: LocalCluster) -> None:
    """By its client and by its command line."""
    admin = KafkaAdminClient(bootstrap_servers=guarded.bootstrap_servers)
    try:
        acl = ACL(
            "User:bob",
            "*",
            ACLOperation.WRITE,
            ACLPermissionType.DENY,
            ResourcePattern(PythonResourceType.TOPIC, "payments"),
        )
        assert admin.create_acls([acl])["failed"] == []
        everything = ACLFilter(
            None,
            None,
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            ResourcePattern(PythonResourceType.TOPIC, "payments"),
        )
        wait_for(lambda: admin.describe_acls(everything)[0] == [acl], "the broker hears of the ACL")
        assert "payments" in command_line(guarded, "acls", "describe", "--resource-name", "payments")
        ((_, deleted, _),) = admin.delete_acls([everything])
        assert deleted == [acl]
    finally:
        admin.close()


def test_librdkafka_is_refused_what_an_acl_denies_and_nothing_else(guarded: LocalCluster) -> None:
    """Everybody is anonymous as yet: what is denied to that name is denied on every connection."""
    servers = guarded.bootstrap_servers
    admin = admin_client(servers)
    for topic in ("open", "closed"):
        create_topic(servers, topic, replication_factor=1)
    denied = AclBinding(
        ResourceType.TOPIC,
        "closed",
        ResourcePatternType.LITERAL,
        WHO,
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    (created,) = admin.create_acls([denied]).values()
    created.result(TIMEOUT_S)

    def is_denied() -> bool:
        # A new one each time: it knows the topic's metadata, which the ACL closes as well, for a while.
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": False})
        told: list[ClientError | None] = []
        try:
            producer.produce("closed", b"x", on_delivery=lambda error, _: told.append(error))
            producer.flush(TIMEOUT_S)
        except KafkaException as error:
            told.append(error.args[0])
        return told[0] is not None and told[0].code() == ClientError.TOPIC_AUTHORIZATION_FAILED

    wait_for(is_denied, "the broker hears of the ACL")
    produce(servers, "open", [{"value": b"x"}])
    start = TopicPartition("open", 0, OFFSET_BEGINNING)
    assert [message.value() for message in consume(servers, [start], 1)] == [b"x"]
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    (removed,) = admin.delete_acls([everything]).values()
    assert list(removed.result(TIMEOUT_S)) == [denied]
    wait_for(lambda: not is_denied(), "the broker hears that it is removed")


def test_sink_needs_what_its_documentation_says_and_nothing_else(guarded: LocalCluster) -> None:
    """Whoever closes a cluster grants what docs/security.md names: without any of it the sink is refused."""
    servers = guarded.bootstrap_servers
    admin = admin_client(servers)
    query = Query(servers, "guarded-target")
    create_topic(servers, "guarded-target", replication_factor=1)
    query.commit(0, query.tasks("r", 0, ["a"]))
    batches = itertools.count(1)
    needed = [
        (ResourceType.TRANSACTIONAL_ID, NAMES_PREFIX, ResourcePatternType.PREFIXED, AclOperation.WRITE),
        (ResourceType.GROUP, NAMES_PREFIX, ResourcePatternType.PREFIXED, AclOperation.READ),
        (ResourceType.TOPIC, DECISIONS_TOPIC, ResourcePatternType.LITERAL, AclOperation.WRITE),
        (ResourceType.TOPIC, DECISIONS_TOPIC, ResourcePatternType.LITERAL, AclOperation.READ),
        (ResourceType.TOPIC, "guarded-target", ResourcePatternType.LITERAL, AclOperation.WRITE),
    ]

    def grant(
        who: str, kind: ResourceType, name: str, pattern: ResourcePatternType, may: AclOperation
    ) -> None:
        acl = AclBinding(kind, name, pattern, who, "*", may, AclPermissionType.ALLOW)
        (created,) = admin.create_acls([acl]).values()
        created.result(TIMEOUT_S)

    def revoke(
        who: str, kind: ResourceType, name: str, pattern: ResourcePatternType, may: AclOperation
    ) -> None:
        acl = AclBindingFilter(kind, name, pattern, who, "*", may, AclPermissionType.ALLOW)
        (removed,) = admin.delete_acls([acl]).values()
        removed.result(TIMEOUT_S)

    def is_written() -> bool:
        run_id = f"r{next(batches)}"
        try:
            query.commit(int(run_id[1:]), query.tasks(run_id, int(run_id[1:]), ["b"]))
        except KafkaError as error:
            assert error.error_code.name.endswith("authorization_failed"), error
            return False
        return True

    for each in needed:
        grant("User:owner", *each)  # closes it for everybody else
    wait_for(lambda: not is_written(), "the broker hears of the ACLs")
    for each in needed:
        grant(WHO, *each)
    wait_for(is_written, "the broker hears of what is granted")
    for each in needed:
        revoke(WHO, *each)
        wait_for(lambda: not is_written(), f"the sink needs {each}")
        grant(WHO, *each)
        wait_for(is_written, "the broker hears of what is granted")
    this_process().drop(query.options.client)
    for each in needed:
        revoke("User:owner", *each)
        revoke(WHO, *each)


def test_cluster_tells_clients_what_they_may_do(guarded: LocalCluster) -> None:
    """DescribeCluster's operations follow the ACLs; the last one is removed by who may still ALTER."""
    servers = guarded.bootstrap_servers
    admin = admin_client(servers)
    allowed = [
        AclBinding(
            ResourceType.BROKER,
            "kafka-cluster",
            ResourcePatternType.LITERAL,
            WHO,
            "127.0.0.1",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.CLUSTER_ACTION, AclOperation.ALTER)
    ]
    for created in admin.create_acls(allowed).values():
        created.result(TIMEOUT_S)

    def operations() -> set[str]:
        described = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
        return {operation.name for operation in described.authorized_operations or ()}

    wait_for(lambda: operations() == {"ALTER", "DESCRIBE", "CLUSTER_ACTION"}, "the broker hears of them")
    wanted = [
        AclBindingFilter(
            binding.restype,
            binding.name,
            binding.resource_pattern_type,
            binding.principal,
            binding.host,
            binding.operation,
            binding.permission_type,
        )
        for binding in allowed
    ]
    # In one request: without the first of them the broker could not forward the second.
    for removed in admin.delete_acls(wanted).values():
        removed.result(TIMEOUT_S)
    assert guarded.image.acls == {}

"""Quotas and dynamic settings with Kafka's own tools and clients, on a running cluster."""

import re
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import ConfigResourceType as PythonConfigResourceType
from kio.schema.alter_client_quotas.v1.request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.metadata.schemas import ResourceType
from sparklog.protocol.errors import ErrorCode
from tests.advertised_metadata import shown_in_time
from tests.cluster import LocalCluster, wait_for
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import TIMEOUT_S, admin_client, consume, create_topic, produce

NewName = Callable[[str], str]
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
RATE = "leader.replication.throttled.rate"


@pytest.fixture
def configs(cluster: LocalCluster, kafka_program: KafkaProgram) -> Iterator[Callable[..., str]]:
    """Return what runs kafka-configs on the cluster; what brokers are told is taken back after the test."""

    def run(*arguments: str) -> str:
        return kafka_program(
            CONFIG_COMMAND, "--bootstrap-server", cluster.bootstrap_servers, *arguments
        ).stdout

    yield run
    told = (("", "log.retention.ms"), ("1", RATE))
    resources = tuple(
        AlterConfigsResource(
            resource_type=ResourceType.BROKER,
            resource_name=name,
            configs=(AlterableConfig(name=key, config_operation=1, value=None),),
        )
        for name, key in told
    )
    with BlockingChannel(*cluster.address(0), "test") as channel:
        channel.request(IncrementalAlterConfigsRequest(resources=resources, validate_only=False))


def test_kafka_configs_sets_shows_and_removes_quotas_of_clients_users_and_addresses(
    cluster: LocalCluster, configs: Callable[..., str]
) -> None:
    """Unmodified, with everything it asks for besides: SCRAM credentials, dynamic values of brokers."""
    loader = (
        "--entity-type",
        "users",
        "--entity-default",
        "--entity-type",
        "clients",
        "--entity-name",
        "loader",
    )
    quotas = "producer_byte_rate=1000000,request_percentage=55.5"
    configs("--alter", *loader, "--add-config", quotas)
    shown = shown_in_time(lambda: configs("--describe", *loader), "producer_byte_rate=1000000.0")
    assert "request_percentage=55.5" in shown
    addresses = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
    configs("--alter", *addresses, "--add-config", "connection_creation_rate=12")
    shown_in_time(lambda: configs("--describe", "--entity-type", "ips"), "connection_creation_rate=12.0")
    configs("--alter", *loader, "--delete-config", "producer_byte_rate,request_percentage")
    configs("--alter", *addresses, "--delete-config", "connection_creation_rate")
    wait_for(lambda: not cluster.image.client_quotas, "no quota is left")


def test_kafka_configs_tells_brokers_what_they_obey_at_once(
    cluster: LocalCluster, new_topic_name: NewName, configs: Callable[..., str]
) -> None:
    """One for all brokers and one for one of them; --all shows where each value comes from."""
    topic = new_topic_name("told")
    create_topic(cluster.bootstrap_servers, topic)
    brokers = ("--alter", "--entity-type", "brokers")
    configs(*brokers, "--entity-default", "--add-config", "log.retention.ms=123456")
    configs(*brokers, "--entity-name", "1", "--add-config", f"{RATE}=1000000")
    shown = shown_in_time(
        lambda: configs("--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"),
        f"{RATE}=1000000 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{RATE}=1000000, DEFAULT",
    )
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=123456" in shown
    described = shown_in_time(
        lambda: configs("--describe", "--entity-type", "topics", "--entity-name", topic, "--all"),
        "retention.ms=123456 ",
    )
    assert re.search(r"retention\.ms=123456 .*DYNAMIC_DEFAULT_BROKER_CONFIG", described)


def test_admin_clients_tell_brokers_and_hear_that_nobody_has_credentials(cluster: LocalCluster) -> None:
    """librdkafka's and kafka-python's, for what of it they know: neither has quotas."""
    admin = admin_client(cluster.bootstrap_servers)
    resource = ConfigResource(ConfigResource.Type.BROKER, "2")

    def tell(operation: AlterConfigOpType, key: str, value: str | None) -> None:
        entry = ConfigEntry(key, value, incremental_operation=operation)
        changed = ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=[entry])
        admin.incremental_alter_configs([changed])[changed].result(TIMEOUT_S)

    def source_of(key: str, value: str) -> int | None:
        entry = admin.describe_configs([resource])[resource].result(TIMEOUT_S).get(key)
        return entry.source if entry is not None and entry.value == value else None

    for key, value in (
        ("follower.replication.throttled.rate", "5000"),
        # Without an effect here, and set by librdkafka's own suite.
        ("background.threads", "9"),
        ("sasl.kerberos.min.time.before.relogin", "58000"),
    ):
        tell(AlterConfigOpType.SET, key, value)
        assert wait_for(partial(source_of, key, value), f"broker 2 says {key}={value}") == 2
        tell(AlterConfigOpType.DELETE, key, None)
    read_only = ConfigEntry("log.dirs", "/x", incremental_operation=AlterConfigOpType.SET)
    refused = ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=[read_only])
    with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
        admin.incremental_alter_configs([refused])[refused].result(TIMEOUT_S)
    assert admin.describe_user_scram_credentials().result(TIMEOUT_S) == {}
    python_admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        (shown,) = python_admin.describe_configs(
            [PythonConfigResource(PythonConfigResourceType.BROKER, "1")]
        ).values()
        assert "1" in shown
        assert python_admin.list_config_resources([PythonConfigResourceType.BROKER])
    finally:
        python_admin.close()


def set_rate(cluster: LocalCluster, client_id: str, rate: float | None) -> None:
    """Set a producer's quota, or take it away, at a broker; every broker knows of it afterwards."""
    operation = OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None)
    entity = (EntityData(entity_type="client-id", entity_name=client_id),)
    with BlockingChannel(*cluster.address(0), "test") as channel:
        answer = channel.request(
            AlterClientQuotasRequest(
                entries=(EntryData(entity=entity, ops=(operation,)),), validate_only=False
            )
        )
    assert answer.entries[0].error_code is ErrorCode.none
    known = [] if rate is None else [rate]
    for broker_id in cluster.broker_ids:
        wait_for(lambda: described_rates(cluster, broker_id, client_id) == known, "a broker obeys")  # noqa: B023


def described_rates(cluster: LocalCluster, broker_id: int, client_id: str) -> list[float]:
    """Return the quotas of a client as a broker describes them."""
    client = ComponentData(entity_type="client-id", match_type=0, match=client_id)
    with BlockingChannel(*cluster.address(broker_id), "test") as channel:
        answer = channel.request(DescribeClientQuotasRequest(components=(client,), strict=True))
    return [value.value for entry in answer.entries or () for value in entry.values]


def test_client_beyond_its_quota_hears_it_and_waits_while_others_go_on(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """librdkafka as it is: it is told for how long, loses nothing, and disturbs nobody."""
    topic = new_topic_name("throttled")
    create_topic(cluster.bootstrap_servers, topic)
    throttled: list[float] = []
    set_rate(cluster, "greedy", 300_000)
    try:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "client.id": "greedy",
                "batch.size": 100_000,
                "throttle_cb": lambda event: throttled.append(event.throttle_time),
            }
        )
        began_s = time.monotonic()
        for _ in range(8):
            producer.produce(topic, bytes(100_000), partition=0)
        produce(cluster.bootstrap_servers, topic, [{"value": b"modest"}])
        modest_s = time.monotonic() - began_s
        assert producer.flush(60) == 0
        greedy_s = time.monotonic() - began_s
    finally:
        set_rate(cluster, "greedy", None)
    # 0.8 MB at 0.3 MB/s, of which 0.3 MB may come at once.
    assert greedy_s > max(1, modest_s)
    assert throttled
    assert len(consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, 0)], 9)) == 9

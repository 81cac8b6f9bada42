"""Unmodified confluent-kafka administering a live cluster through whichever broker it finds."""

from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.advertised_metadata import advertised_leaders, wait_until_all_tell_of
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client, consume, create_topic, produce

NewName = Callable[[str], str]
EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def test_create_and_delete_topic_shows_in_every_brokers_metadata(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """Brokers act on the metadata log alone, so all of them must come to the same answer."""
    topic = new_topic_name("short-lived")
    servers = cluster.bootstrap_servers
    create_topic(servers, topic, partitions=4)
    leaders = {number: cluster.leader(topic, number) for number in range(4)}
    assert advertised_leaders(servers, topic) == dict.fromkeys(servers.split(","), leaders)
    admin = admin_client(servers)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    wait_until_all_tell_of(servers, topic, 0)
    directories = [cluster.broker_directory(broker_id) for broker_id in cluster.broker_ids]
    wait_for(lambda: not any(list(path.glob(f"{topic}-?")) for path in directories), "directories removed")


def test_create_topic_that_exists_or_is_illegal_is_refused_by_name(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """The error is what a user acts on; each cause has its own."""
    topic = new_topic_name("refused")
    create_topic(cluster.bootstrap_servers, topic)
    admin = admin_client(cluster.bootstrap_servers)
    cases = [
        (NewTopic(topic, 1, 3), KafkaError.TOPIC_ALREADY_EXISTS),
        (NewTopic("no/slashes", 1, 3), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 3), KafkaError.TOPIC_EXCEPTION),
        (NewTopic(new_topic_name("factor"), 1, 4), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic(new_topic_name("config"), 1, 3, config={"no.such.key": "1"}), KafkaError.INVALID_CONFIG),
        (
            NewTopic(new_topic_name("config"), 1, 3, config={"retention.ms": "soon"}),
            KafkaError.INVALID_CONFIG,
        ),
    ]
    for new, code in cases:
        with pytest.raises(KafkaException) as raised:
            admin.create_topics([new])[new.topic].result(TIMEOUT_S)
        assert raised.value.args[0].code() == code, raised.value


def test_create_partitions_lets_producers_use_them(cluster: LocalCluster, new_topic_name: NewName) -> None:
    """Growing a topic is the one change of its shape Kafka allows."""
    topic = new_topic_name("growing")
    create_topic(cluster.bootstrap_servers, topic, partitions=1)
    admin = admin_client(cluster.bootstrap_servers)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    wait_until_all_tell_of(cluster.bootstrap_servers, topic, 3)
    produce(cluster.bootstrap_servers, topic, [{"value": b"new", "partition": 2}])
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 2, OFFSET_BEGINNING)], 1)
    assert messages[0].value() == b"new"


def test_describe_and_alter_topic_configs_round_trip(cluster: LocalCluster, new_topic_name: NewName) -> None:
    """What is set is what is described, and deleting a setting brings the default back."""
    topic = new_topic_name("configured")
    create_topic(cluster.bootstrap_servers, topic, config={"retention.ms": "1234567"})
    admin = admin_client(cluster.bootstrap_servers)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def described(key: str) -> str | None:
        entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        value: str | None = entries[key].value
        return value

    assert described("retention.ms") == "1234567"
    change = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "7654321", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(TIMEOUT_S)
    wait_for(lambda: described("retention.ms") == "7654321", "the new retention")
    assert described("max.message.bytes") == "2000"
    removal = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
        ],
    )
    admin.incremental_alter_configs([removal])[removal].result(TIMEOUT_S)
    wait_for(lambda: described("retention.ms") == "604800000", "the default retention")


def test_describe_broker_configs_asks_each_broker_about_itself(cluster: LocalCluster) -> None:
    """A broker's own configuration is only known to itself."""
    admin = admin_client(cluster.bootstrap_servers)
    for broker_id in cluster.broker_ids:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id))
        entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        assert entries["node.id"].value == str(broker_id)
        assert entries["broker.rack"].value == f"rack-{broker_id}"
        # From the properties, and kept as the default of all brokers, as in Kafka (KIP-966).
        minimum = entries["min.insync.replicas"]
        assert (minimum.value, minimum.source) == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value)


def test_describe_cluster_and_topics_tell_brokers_racks_and_replicas(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """Tools and clients draw the cluster from these two answers."""
    topic = new_topic_name("described")
    create_topic(cluster.bootstrap_servers, topic, partitions=3)
    admin = admin_client(cluster.bootstrap_servers)
    described = admin.describe_cluster().result(TIMEOUT_S)
    assert described.cluster_id == cluster.cluster_id
    assert {(node.id, node.rack) for node in described.nodes} == {
        (broker_id, f"rack-{broker_id}") for broker_id in cluster.broker_ids
    }
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    assert len(found.partitions) == 3
    for partition in found.partitions:
        assert {node.id for node in partition.replicas} == set(cluster.broker_ids)
    leaders = {partition.leader.id for partition in found.partitions}
    assert leaders == set(cluster.broker_ids), "leaders are spread evenly"


def test_list_offsets_and_delete_records_move_the_start(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """DeleteRecords must hold on every replica, or a new leader brings deleted records back."""
    topic = new_topic_name("trimmed")
    create_topic(cluster.bootstrap_servers, topic)
    produce(cluster.bootstrap_servers, topic, [{"value": b"%d" % number} for number in range(100)])
    admin = admin_client(cluster.bootstrap_servers)
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        found: int = admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset
        return found

    assert (offset(EARLIEST), offset(LATEST)) == (0, 100)
    deleted = admin.delete_records([TopicPartition(topic, 0, 40)])
    assert [future.result(TIMEOUT_S).low_watermark for future in deleted.values()] == [40]
    assert offset(EARLIEST) == 40
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 60)
    assert messages[0].value() == b"40"


def test_admin_through_the_controllers_listener_works_like_through_a_broker(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """The driver's address is the one that stays the same wherever Spark puts the brokers."""
    topic = new_topic_name("by-the-driver")
    create_topic(cluster.controller.bootstrap_servers, topic)
    produce(cluster.controller.bootstrap_servers, topic, [{"value": b"v"}])
    assert (
        consume(cluster.controller.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 1)[
            0
        ].value()
        == b"v"
    )

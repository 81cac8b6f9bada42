"""Every broker gets SIGKILL at once, and what was acknowledged is there when they are back."""

from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, ElectionType, TopicPartition

from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client, consume, create_topic, produce

PARTITIONS = 6
BROKERS = 3


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of its own, since its brokers die; min.insync.replicas is each topic's."""
    with LocalCluster(brokers=BROKERS, config={"auto.leader.rebalance.enable": "false"}) as running:
        yield running


@pytest.mark.long
def test_all_brokers_killed_every_partition_leads_and_has_its_records_again(cluster: LocalCluster) -> None:
    """A process that dies loses nothing that it had written, and no partition waits for ever for another."""
    servers = cluster.bootstrap_servers
    topics = [f"min-{minimum}" for minimum in range(1, BROKERS + 1)]
    for minimum, topic in enumerate(topics, start=1):
        create_topic(servers, topic, partitions=PARTITIONS, config={"min.insync.replicas": str(minimum)})
        records = [{"value": b"%d" % number, "partition": number} for number in range(PARTITIONS)]
        produce(servers, topic, records, acks="all")
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id)
    for broker_id in cluster.broker_ids:
        cluster.launch(broker_id)
    cluster.wait_until_unfenced(*cluster.broker_ids)
    everything = [(topic, number) for topic in topics for number in range(PARTITIONS)]
    wait_for(
        lambda: all(len(cluster.in_sync(topic, number)) == BROKERS for topic, number in everything),
        "every replica of every partition in sync again",
    )
    servers = cluster.bootstrap_servers
    assignment = [TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in everything]
    messages = consume(servers, assignment, len(assignment))
    found = {(message.topic(), message.partition()): message.value() for message in messages}
    assert found == {(topic, number): b"%d" % number for topic, number in everything}

    # Leaders lie where they came back; an administrator puts them where they belong.
    admin = admin_client(servers)
    answers = admin.elect_leaders(ElectionType.PREFERRED).result(TIMEOUT_S)
    assert [error for error in answers.values() if error is not None] == []
    image = cluster.image
    for topic, number in everything:
        partition = image.topics.by_name[topic].partitions[number]
        assert partition.leader == partition.preferred_leader
    again = admin.elect_leaders(ElectionType.PREFERRED).result(TIMEOUT_S)
    assert again == {}

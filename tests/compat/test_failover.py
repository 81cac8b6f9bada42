"""A leader is killed under load: nothing acknowledged is lost, doubled or out of order."""

import signal
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, Producer, TopicPartition

from benchmarks.probe import Probe
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, consume, create_topic, produce

NewName = Callable[[str], str]
RECORDS = 20_000
LONGEST_LEADER_CHANGE_S = 5.0
"""Many times what it takes here; only a broker that goes before its leaders have moved needs as long."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of its own: these tests kill brokers of it."""
    with LocalCluster(brokers=3, config={"min.insync.replicas": "2"}) as running:
        yield running


def test_killed_leader_under_an_idempotent_producer_loses_doubles_and_disorders_nothing(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """The promise the whole of replication exists for."""
    topic = new_topic_name("killed")
    create_topic(cluster.bootstrap_servers, topic)
    victim = cluster.leader(topic)
    assert victim is not None
    acknowledged: list[int] = []
    failed: list[str] = []

    def delivered(error: object, message: Message) -> None:
        if error is None:
            acknowledged.append(int(message.value() or b""))
        else:
            failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 1,
            "batch.num.messages": 100,
            "queue.buffering.max.messages": 2_000,
        }
    )
    killed = False
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(topic, b"%d" % number, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
        if not killed and len(acknowledged) > RECORDS // 3:
            cluster.kill(victim)
            killed = True
    assert killed
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed
    assert cluster.leader(topic) not in (victim, None)
    assert acknowledged == list(range(RECORDS))
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], RECORDS)
    assert [int(message.value() or b"") for message in messages] == list(range(RECORDS))
    # Somebody else has its port meanwhile: it comes back at another.
    address = cluster.address(victim)
    with socket.create_server(address):
        cluster.restart(victim)
    assert cluster.address(victim) != address
    wait_for(lambda: victim in cluster.in_sync(topic), "the killed broker back in the ISR")


def test_leader_killed_inside_a_transaction_has_it_committed_once_and_whole(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """The producer retries what was not acknowledged; its coordinator may have died with the leader."""
    topic = new_topic_name("killed-inside")
    create_topic(cluster.bootstrap_servers, topic)
    victim = cluster.leader(topic)
    assert victim is not None
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": topic,
            "linger.ms": 1,
            "batch.num.messages": 100,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    for number in range(5_000):
        if number % 1_000 == 0:
            producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.poll(0)
        if number == 2_500:
            cluster.kill(victim)
        if number % 1_000 == 999:
            producer.commit_transaction(TIMEOUT_S)
    messages = consume(
        cluster.bootstrap_servers,
        [TopicPartition(topic, 0, OFFSET_BEGINNING)],
        5_000,
        **{"isolation.level": "read_committed"},
    )
    assert [int(message.value() or b"") for message in messages] == list(range(5_000))
    cluster.restart(victim)
    wait_for(lambda: victim in cluster.in_sync(topic), "the killed broker back in the ISR")


def test_frozen_leader_is_replaced_and_comes_back_without_harm(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """A process that is stopped, not dead, wakes up believing that it leads: epochs must say otherwise."""
    topic = new_topic_name("frozen")
    create_topic(cluster.bootstrap_servers, topic)
    frozen = cluster.leader(topic)
    assert frozen is not None
    produce(cluster.bootstrap_servers, topic, [{"value": b"before"}])
    cluster.signal(frozen, signal.SIGSTOP)
    try:
        wait_for(lambda: cluster.leader(topic) not in (frozen, None), "another leader")
        others = [b for b in cluster.broker_ids if b != frozen]
        addresses = ",".join(":".join(map(str, cluster.address(broker_id))) for broker_id in others)
        produce(addresses, topic, [{"value": b"during"}])
    finally:
        cluster.signal(frozen, signal.SIGCONT)
    wait_for(lambda: frozen in cluster.in_sync(topic), "the frozen broker back in the ISR")
    produce(cluster.bootstrap_servers, topic, [{"value": b"after"}])
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 3)
    assert [message.value() for message in messages] == [b"before", b"during", b"after"]


def test_controlled_shutdown_hands_leaderships_over_without_an_error(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """A broker that is told to leave must not be noticed by producers that cannot retry."""
    topic = new_topic_name("handed-over")
    create_topic(cluster.bootstrap_servers, topic, partitions=3)
    leaver = cluster.leader(topic, 0)
    assert leaver is not None
    assert cluster.stop_broker(leaver) == 0
    assert (cluster.broker_directory(leaver) / ".kafka_cleanshutdown").exists()
    assert all(cluster.leader(topic, partition) not in (leaver, None) for partition in range(3))
    produce(
        cluster.bootstrap_servers, topic, [{"value": b"v", "partition": number % 3} for number in range(30)]
    )
    cluster.restart(leaver)
    wait_for(lambda: leaver in cluster.in_sync(topic, 0), "the leaver back in the ISR")


def test_broker_told_to_leave_while_it_is_written_to_hands_over_before_it_goes(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """Spark takes executors away with a warning to the driver only; writing goes on as at a leader change."""
    topic = new_topic_name("led-out")
    create_topic(cluster.bootstrap_servers, topic, partitions=3)
    leaver = cluster.leader(topic, 0)
    assert leaver is not None
    with Probe(cluster.bootstrap_servers, topic, 3) as probe:
        wait_for(lambda: all(probe.acknowledged_s), "every partition is written to")
        told_s = time.monotonic()
        cluster.controller.shut_down_broker(leaver, "its executor is decommissioned")
        assert cluster.wait_for_exit(leaver) == 0
        assert all(cluster.leader(topic, partition) not in (leaver, None) for partition in range(3))
        left_s = time.monotonic()
        wait_for(
            lambda: all(times[-1] > left_s for times in probe.acknowledged_s), "every partition is written to"
        )
        longest_s = max(probe.longest_gaps_s(told_s))
    assert not probe.failed
    assert longest_s < LONGEST_LEADER_CHANGE_S
    assert (cluster.broker_directory(leaver) / ".kafka_cleanshutdown").exists()
    cluster.restart(leaver)
    wait_for(lambda: leaver in cluster.in_sync(topic, 0), "the leaver back in the ISR")


def test_restarted_follower_catches_up_and_can_lead_with_everything(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """A replica that missed records is worth nothing until it has them all, and then as much as any."""
    topic = new_topic_name("caught-up")
    create_topic(cluster.bootstrap_servers, topic)
    leader = cluster.leader(topic)
    assert leader is not None
    follower = next(broker_id for broker_id in cluster.broker_ids if broker_id != leader)
    cluster.kill(follower)
    records = [{"value": b"%d" % number} for number in range(5_000)]
    produce(cluster.bootstrap_servers, topic, records)
    cluster.restart(follower)
    wait_for(lambda: follower in cluster.in_sync(topic), "the follower in the ISR")
    others = [broker_id for broker_id in cluster.broker_ids if broker_id != follower]
    for broker_id in others:
        cluster.signal(broker_id, signal.SIGTERM)
        cluster.wait_for_exit(broker_id)
    wait_for(lambda: cluster.leader(topic) == follower, "the follower leads")
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 5_000)
    assert [message.value() for message in messages] == [record["value"] for record in records]
    for broker_id in others:
        cluster.restart(broker_id)


def test_whole_cluster_killed_at_once_keeps_what_it_acknowledged_and_is_where_it_was(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """The processes die, the page cache does not: recovery must find every acknowledged record.

    Clients that have only ever heard of brokers find them again.
    """
    topic = new_topic_name("all-killed")
    create_topic(cluster.bootstrap_servers, topic)
    records = [{"value": b"%d" % number} for number in range(3_000)]
    bootstrap_servers = cluster.bootstrap_servers
    produce(bootstrap_servers, topic, records)
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id)
    for broker_id in cluster.broker_ids:
        cluster.launch(broker_id)
    cluster.wait_until_unfenced(*cluster.broker_ids)
    wait_for(lambda: cluster.leader(topic) is not None, "a leader")
    messages = consume(bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 3_000)
    assert [message.value() for message in messages] == [record["value"] for record in records]

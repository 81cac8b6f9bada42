"""A broker whose process may have few file descriptors, and clients that take what there are."""

import socket
import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster import LocalCluster

TIMEOUT_S = 30.0
LIMIT = 300


def send(producer: Producer, topic: str, partitions: int) -> None:
    """Produce a record to each partition, and see it acknowledged."""
    failures: list[KafkaError] = []
    for partition in range(partitions):
        producer.produce(
            topic,
            b"value",
            partition=partition,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def wait_until_free(cluster: LocalCluster, count: int) -> None:
    """Return when broker 0 has so many descriptors left: it looks every second whether there are enough."""
    opened = Path(f"/proc/{cluster.process_id(0)}/fd")
    deadline = time.monotonic() + TIMEOUT_S
    while (free := LIMIT - sum(1 for _ in opened.iterdir())) < count:
        assert time.monotonic() < deadline, f"{free} descriptors are free"
        time.sleep(0.05)


def test_idle_connections_up_to_the_limit_leave_a_broker_the_descriptors_for_its_logs() -> None:
    """Anyone on the network can open connections and say nothing; that had ended the broker."""
    with LocalCluster(brokers=1, descriptor_limit=LIMIT) as cluster, ExitStack() as idle:
        (broker,) = (
            registration.endpoint(cluster.broker_config.inter_broker_listener)
            for registration in cluster.controller.image.brokers.values()
        )
        assert broker is not None
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("before", 1, 1)])["before"].result(TIMEOUT_S)
        send(producer, "before", 1)

        connected = [
            idle.enter_context(socket.create_connection((broker.host, broker.port), TIMEOUT_S))
            for _ in range(2 * LIMIT)
        ]
        for number in range(3):
            # 3 descriptors a partition: together more than were free once connections had all they got.
            wait_until_free(cluster, 70)
            topic = f"topic-{number}"
            admin.create_topics([NewTopic(topic, 20, 1)])[topic].result(TIMEOUT_S)
            send(producer, topic, 20)
        send(producer, "before", 1)

        connected[-1].settimeout(TIMEOUT_S)
        assert connected[-1].recv(1) == b"", "there was no room for the last"
        assert cluster.is_running(0)
        assert cluster.controller.failure is None
        refusals = cluster.log_path(0).read_text().count("refusing 127.0.0.1")
        assert 1 <= refusals <= 3, "one line a minute, not one for each"

"""A client writes on while others send requests that name a million things to its broker and the driver."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import pytest
from confluent_kafka import KafkaError, Message, Producer

from sparklog.node.apis.groups import FIND_COORDINATOR
from sparklog.protocol.codec.allowance import items_allowance_bytes
from sparklog.protocol.codec.apis import ApiKey, request_type
from sparklog.protocol.codec.encoder import encode_varint
from sparklog.protocol.codec.layout import entity_layout, item_memory_bytes
from sparklog.protocol.types import BrokerId
from tests.cluster import LocalCluster
from tests.compat.librdkafka import create_topic
from tests.compat.raw_frames import frame, header, read_one_answer

VERSION: Final = 6
ROUNDS: Final = 4
DEADLINE_S: Final = 60.0
PARTITIONS: Final = 6


def find_coordinators(key_count: int) -> bytes:
    """Return a frame that asks for the coordinators of as many empty keys."""
    keys = encode_varint(key_count + 1) + b"\x01" * key_count
    return frame(header(ApiKey.FIND_COORDINATOR, VERSION, flexible=True) + b"\x00" + keys + b"\x00")


def largest_accepted() -> int:
    """Return how many keys one request may have."""
    (keys,) = (
        field
        for field in entity_layout(request_type(ApiKey.FIND_COORDINATOR, VERSION)).fields
        if field.is_array
    )
    return items_allowance_bytes(FIND_COORDINATOR.memory_times) // item_memory_bytes(keys)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("key_count", "is_answered"),
    [
        (1_500_000, False),
        (2_000_000, False),
        pytest.param(largest_accepted(), True, marks=pytest.mark.long),
    ],
    ids=["1.5 MB", "2 MB", "largest accepted"],
)
def test_writer_is_acknowledged_by_the_same_leaders_while_others_ask_for_a_million_keys(
    cluster: LocalCluster, key_count: int, is_answered: bool
) -> None:
    """Such a request once kept a broker's loop for 12 s: it was fenced, and its leaders moved."""
    topic = f"beside-{key_count}-keys"
    create_topic(cluster.bootstrap_servers, topic, PARTITIONS)
    host, _, port = cluster.controller.bootstrap_servers.rpartition(":")
    attacked = [*(cluster.address(broker_id) for broker_id in cluster.broker_ids), (host, int(port))]
    before = leaderships(cluster, topic)
    attack = find_coordinators(key_count)
    written, failed = 0, list[KafkaError]()
    acknowledged = list[Message]()

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(message)
        else:
            failed.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0})
    with ThreadPoolExecutor(2 * len(attacked)) as threads:
        attacks: list[Future[bytes]] = [
            threads.submit(read_one_answer, address, attack, DEADLINE_S)
            for address in attacked
            for _ in range(ROUNDS)
        ]
        while not all(one.done() for one in attacks):
            producer.produce(topic, b"%d" % written, on_delivery=delivered)
            written += 1
            producer.poll(0.005)
        answers = [one.result() for one in attacks]
    producer.flush(DEADLINE_S)

    assert [bool(answer) for answer in answers] == [is_answered] * len(attacks)
    assert failed == []
    assert len(acknowledged) == written > 0
    assert leaderships(cluster, topic) == before
    assert not any(broker.fenced for broker in cluster.image.brokers.values())


def leaderships(
    cluster: LocalCluster, topic: str
) -> tuple[dict[BrokerId, int], dict[int, tuple[int | None, int]]]:
    """Return the epoch of every broker's registration, and leader and leader epoch of every partition."""
    image = cluster.image
    partitions = image.topics.by_name[topic].partitions
    return (
        {broker_id: broker.broker_epoch for broker_id, broker in image.brokers.items()},
        {index: (partition.leader, partition.leader_epoch) for index, partition in partitions.items()},
    )

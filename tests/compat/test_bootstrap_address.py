"""The controller's address is the only one a user is told: every client must get along with it alone."""

from collections.abc import Callable

from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.cluster import LocalCluster, wait_for


def test_kafka_python_from_the_controllers_address_produces_and_consumes(
    cluster: LocalCluster, new_topic_name: Callable[[str], str]
) -> None:
    """It takes the API versions of the first address for those of every broker."""
    address = cluster.controller.bootstrap_servers
    topic = new_topic_name("bootstrap")
    producer = KafkaProducer(bootstrap_servers=address, acks="all")
    for number in range(50):
        producer.send(topic, str(number).encode(), partition=0)
    producer.flush(20)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values: list[bytes] = []

    def all_read() -> bool:
        values.extend(record.value for record in consumer.poll(200).get(partition, []))
        return len(values) >= 50

    wait_for(all_read, "50 records are consumed")
    consumer.close()
    assert values == [str(number).encode() for number in range(50)]


def test_librdkafka_from_the_controllers_address_produces_idempotently(
    cluster: LocalCluster, new_topic_name: Callable[[str], str]
) -> None:
    """A producer id is asked of any node, the first address included."""
    topic = new_topic_name("bootstrap")
    producer = Producer(
        {"bootstrap.servers": cluster.controller.bootstrap_servers, "enable.idempotence": True}
    )
    refused: list[object] = []
    for number in range(50):
        producer.produce(
            topic, str(number), on_delivery=lambda error, _: refused.append(error) if error else None
        )
    assert producer.flush(20) == 0
    assert refused == []

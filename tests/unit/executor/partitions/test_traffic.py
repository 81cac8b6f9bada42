"""What goes in and out, by topic and in all."""

import pytest

from sparklog.executor.partitions.traffic import (
    CHOICE_INTERVAL_MS,
    REPORTED_TOPICS,
    BrokerTraffic,
    ReaderDistance,
    TrafficMeters,
    reader_distance,
)
from sparklog.node.metrics import server
from sparklog.node.metrics.names import Metric
from sparklog.node.metrics.registry import values_of_samples
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, fetch, produce


@with_brokers(count=2)
async def test_traffic_of_clients_and_followers_is_counted_apart(brokers: Brokers) -> None:
    """Whoever pays for a network wants to know which of the two fills it."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    # A follower fetches the first records of a new log again once its topic id is on the disk.
    brokers.replica(1, topic_id).log.sync_identity()
    channel = await brokers.connect(0)
    records = batch(5)
    await channel.request(produce(topic_id, records))
    await channel.request(fetch(topic_id, {0: 0}))

    def value(metric: Metric, broker_id: int = 0, **tags: str) -> float:
        return brokers.brokers[broker_id].replicas.metrics.snapshot(0)[metric.of(**tags)]

    size = len(records)
    assert value(server.MESSAGES_IN) == value(server.MESSAGES_IN, topic="t") == 5
    assert value(server.BYTES_IN) == value(server.BYTES_IN, topic="t") == size
    assert value(server.BYTES_OUT) == value(server.BYTES_OUT, topic="t") == size
    assert value(server.REPLICATION_BYTES_OUT) == size
    assert value(server.BYTES_OUT_SAME_HOST) == size
    assert value(server.BYTES_OUT_SAME_RACK) == value(server.BYTES_OUT_ELSEWHERE) == 0
    await until(lambda: value(server.REPLICATION_BYTES_IN, 1) == size, "the follower has it")
    assert value(server.PRODUCE_REQUESTS, topic="t") == 1
    assert value(server.FAILED_PRODUCE_REQUESTS) == 0


@with_brokers(config={"message.max.bytes": "100"})
async def test_batches_that_are_refused_are_counted_by_why(brokers: Brokers) -> None:
    """A producer that sends garbage is found on the broker, where nobody reads its log."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    large, damaged = batch(value=b"x" * 200), bytearray(batch())
    damaged[-1] ^= 1
    for records in (large, bytes(damaged)):
        await channel.request(produce(topic_id, records))
    values = brokers.brokers[0].replicas.metrics.snapshot(0)
    assert values[server.BYTES_REJECTED.of(topic="t")] == len(large)
    assert values[server.INVALID_CRC.of()] == 1
    assert values[server.PRODUCE_REQUESTS.of()] == 2
    assert values[server.BYTES_IN.of()] == 0


@pytest.mark.parametrize(
    ("peer", "client_rack", "expected"),
    [
        ("127.0.0.1:40000", "zone-2", ReaderDistance.SAME_HOST),
        ("[::1]:40000", "", ReaderDistance.SAME_HOST),
        ("192.0.2.1:40000", "zone-1", ReaderDistance.SAME_RACK),
        ("192.0.2.1:40000", "zone-2", ReaderDistance.ELSEWHERE),
        ("192.0.2.1:40000", "", ReaderDistance.ELSEWHERE),
    ],
)
def test_consumer_is_near_by_its_address_and_else_by_its_rack(
    peer: str, client_rack: str, expected: ReaderDistance
) -> None:
    """Zones are paid for by the byte, and a loopback device by nothing."""
    assert reader_distance(peer, client_rack, "zone-1") is expected
    assert reader_distance("192.0.2.1:1", "", None) is ReaderDistance.ELSEWHERE


def test_bytes_of_consumers_are_counted_by_their_distance() -> None:
    """The sums of all three are what consumers were sent."""
    traffic = BrokerTraffic()
    meters = TrafficMeters(traffic, lambda topic: True)
    for byte_count, distance in enumerate(ReaderDistance, 1):
        traffic.consumed(byte_count, distance)
    values = values_of_samples(meters.samples(0))
    assert [
        values[metric.of()]
        for metric in (server.BYTES_OUT_SAME_HOST, server.BYTES_OUT_SAME_RACK, server.BYTES_OUT_ELSEWHERE)
    ] == [1, 2, 3]


def test_topics_with_the_most_traffic_are_told_and_the_whole_has_all() -> None:
    """A cluster with ten thousand topics must not send ten thousand series each second."""
    traffic = BrokerTraffic()
    meters = TrafficMeters(traffic, lambda topic: True)
    for number in range(REPORTED_TOPICS + 50):
        traffic.of(f"t{number}").produced(1, 10 + number)
    values_of_samples(meters.samples(0))
    for number in range(REPORTED_TOPICS + 50):
        traffic.of(f"t{number}").produced(1, 10 + number)
    values = values_of_samples(meters.samples(CHOICE_INTERVAL_MS))
    told = {dict(name.tags)["topic"] for name in values if name.tags}
    assert told == {f"t{number}" for number in range(50, REPORTED_TOPICS + 50)}
    assert values[server.MESSAGES_IN.of()] == 2 * (REPORTED_TOPICS + 50)


def test_topics_that_are_gone_are_told_no_more() -> None:
    """Series of topics that were deleted years ago would fill every store of metrics."""
    traffic, there = BrokerTraffic(), {"t", "u"}
    meters = TrafficMeters(traffic, lambda topic: topic in there)
    for topic in there:
        traffic.of(topic).produced(1, 10)
    values_of_samples(meters.samples(0))
    there.remove("u")
    values = values_of_samples(meters.samples(CHOICE_INTERVAL_MS))
    assert {name.tags for name in values} == {(), (("topic", "t"),)}
    assert values[server.BYTES_IN.of()] == 20


def test_topic_that_was_idle_before_it_was_deleted_is_forgotten() -> None:
    """A cluster that makes a topic for each job would hold something of every one of them for ever."""
    traffic, there = BrokerTraffic(), {"t"}
    meters = TrafficMeters(traffic, lambda topic: topic in there)
    first = traffic.of("t")
    first.produced(1, 10)
    values_of_samples(meters.samples(0))
    values_of_samples(meters.samples(CHOICE_INTERVAL_MS))
    assert traffic.of("t") is first
    there.remove("t")
    values_of_samples(meters.samples(2 * CHOICE_INTERVAL_MS))
    assert traffic.of("t") is not first


def test_unusual_errors_count_as_failed_requests() -> None:
    """That a partition has moved is a client's daily bread; a broker at its wits' end is not."""
    traffic = BrokerTraffic()
    topic = traffic.of("t")
    topic.produce_failed(KafkaError(ErrorCode.not_leader_or_follower, ""), 1)
    topic.produce_failed(KafkaError(ErrorCode.unknown_server_error, ""), 1)
    topic.produce_failed(KafkaError(ErrorCode.out_of_order_sequence_number, ""), 1)
    topic.produce_failed(KafkaError(ErrorCode.not_enough_replicas, ""), 1)
    topic.fetched(0, ErrorCode.offset_out_of_range, by_follower=False)
    topic.fetched(0, ErrorCode.unknown_server_error, by_follower=False)
    values = values_of_samples(TrafficMeters(traffic, lambda topic: True).samples(0))
    assert values[server.FAILED_PRODUCE_REQUESTS.of()] == 3
    assert values[server.INVALID_SEQUENCE.of()] == 1
    assert values[server.FAILED_FETCH_REQUESTS.of()] == 1

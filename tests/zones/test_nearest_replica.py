"""A consumer with a client.rack reads from the replica in its zone (KIP-392), by the bytes that cross."""

import pytest
from confluent_kafka import TopicPartition

from tests.cluster import wait_for
from tests.compat.librdkafka import consume, create_topic, produce
from tests.zones.network import Zones
from tests.zones.zoned_cluster import ZonedCluster

TOPIC = "near"
RECORDS = 2_000
RECORD_BYTES = 10_000
MOST_ACROSS = 0.2
CONFIG = {
    "min.insync.replicas": "2",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


@pytest.mark.long
def test_consumer_in_a_followers_zone_gets_hardly_a_byte_from_other_zones(zones: Zones) -> None:
    """Clouds charge for every byte between zones; without a client.rack all of them cross."""
    with ZonedCluster(zones, config=CONFIG) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC)
        records = [{"value": number.to_bytes(4) * (RECORD_BYTES // 4)} for number in range(RECORDS)]
        wait_for(lambda: len(cluster.in_sync(TOPIC)) == 3, "all replicas in sync")
        produce(cluster.bootstrap_servers, TOPIC, records)
        leader = cluster.leader(TOPIC)
        follower = next(broker for broker in cluster.broker_ids if broker != leader)

        def across(**config: str) -> float:
            """Return the bytes that come to the follower's zone for each that a consumer reads there."""
            zone = cluster.zone(follower)
            before = zone.received_bytes()
            with zone.entered():
                read = consume(cluster.bootstrap_servers, [TopicPartition(TOPIC, 0, 0)], RECORDS, **config)
            assert [message.value() for message in read] == [record["value"] for record in records]
            return (zone.received_bytes() - before) / (RECORDS * RECORD_BYTES)

        without, near = across(), across(**{"client.rack": f"rack-{follower}"})
        print(f"bytes from other zones for each that is read: {without:.3f}, with client.rack {near:.4f}")
        assert without > 1
        assert near < MOST_ACROSS

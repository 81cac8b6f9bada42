"""Offsets as leaders list them for the special times of tiered logs, for which librdkafka has no question."""

from datetime import timedelta
from typing import Final

from confluent_kafka.admin import AdminClient
from kio.schema.list_offsets.v10.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from benchmarks.clusters import ClusterUnderTest
from sparklog.node.calling.blocking import BlockingChannel

LATEST: Final = -1
LATEST_TIERED: Final = -5


def listed_offsets(cluster: ClusterUnderTest, topic: str, timestamp: int) -> list[int]:
    """Return the offsets that the leaders of a topic's partitions list for `timestamp`, by partition."""
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(topic, timeout=10)
    found = []
    for number, partition in sorted(metadata.topics[topic].partitions.items()):
        leader = metadata.brokers[partition.leader]
        asked = ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=(ListOffsetsTopic(name=topic, partitions=(asked,)),),
            timeout=timedelta(seconds=10),
        )
        with BlockingChannel(leader.host, leader.port, "benchmark", timeout_s=10) as channel:
            (answer,) = channel.request(request).topics
        found.append(int(answer.partitions[0].offset))
    return found

"""A small blocking client of a Kafka cluster, for Spark's driver and tasks.

`ClusterClient` finds brokers and leaders, `list_offsets` and `PartitionFetcher` read, `Producer` writes. All
of them move whole record batches and do not read records. The client is written for bulk transfer by one
thread, and works with any Kafka since 3.7, not only with the cluster inside this application.
"""

from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig, FetchConfig, ProducerConfig, parse_bootstrap_servers
from sparklog.user.client.fetching import FetchedBatches, PartitionFetcher
from sparklog.user.client.offsets import ListedOffset, SpecialOffset, list_offsets
from sparklog.user.client.producer import Producer
from sparklog.user.client.topics import Leader, Topic

__all__ = [
    "ClientConfig",
    "ClusterClient",
    "FetchConfig",
    "FetchedBatches",
    "Leader",
    "ListedOffset",
    "PartitionFetcher",
    "Producer",
    "ProducerConfig",
    "SpecialOffset",
    "Topic",
    "list_offsets",
    "parse_bootstrap_servers",
]

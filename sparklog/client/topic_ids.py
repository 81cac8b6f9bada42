"""Whether topics are still those that something was done with: names come again, ids do not (KIP-516)."""

from collections.abc import Mapping
from uuid import UUID

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.errors import TopicReplacedError
from sparklog.client.topic_descriptions import described_topic_ids


def check_topic_ids(cluster: ClusterClient, topic_ids: Mapping[str, UUID | None]) -> None:
    """Return if topics still have these ids, asking a broker anew; None is one that the cluster can't tell.

    A broker that has not heard of a new topic yet is asked again.

    Raises:
        TopicReplacedError: one was deleted, and stayed so for `unknown_topic_timeout_ms`.
        ApiTimeoutError: no broker answered within `api_timeout_ms`.
    """
    if not topic_ids:
        return

    def look() -> None:
        found = described_topic_ids(cluster, topic_ids)
        for name, topic_id in topic_ids.items():
            if name not in found or found[name] != topic_id:
                raise TopicReplacedError(name)

    cluster.retry("looking for the topics that were written to", look)

"""Check that topics are the same as before: names can be reused, ids can't (KIP-516)."""

from collections.abc import Mapping
from uuid import UUID

from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.errors import TopicReplacedError
from sparklog.user.client.topic_descriptions import described_topic_ids


def check_topic_ids(cluster: ClusterClient, topic_ids: Mapping[str, UUID | None]) -> None:
    """Check that topics still have these ids; None is an id that the cluster does not report.

    A broker that does not know a new topic yet is asked again.

    Raises:
        TopicReplacedError: one was missing or replaced for `unknown_topic_timeout_ms`.
        ApiTimeoutError: no broker answered within `api_timeout_ms`.
    """
    if not topic_ids:
        return

    def look() -> None:
        found = described_topic_ids(cluster, topic_ids)
        for name, topic_id in topic_ids.items():
            if name not in found or found[name] != topic_id:
                raise TopicReplacedError(name)

    cluster.retry("checking the ids of the written topics", look)

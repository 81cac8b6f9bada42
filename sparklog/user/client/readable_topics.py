"""Topics whose records this client may read, by the authorized operations of topics (KIP-430)."""

from collections.abc import Collection
from typing import Final

from kio.schema.metadata.v11.request import MetadataRequest, MetadataRequestTopic

from sparklog.node.acls.acl import AclOperation
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.user.client.cluster_client import ClusterClient

_READ: Final = 1 << AclOperation.READ
_OMITTED: Final = -(2**31)


def readable_topics(cluster: ClusterClient, topics: Collection[str]) -> frozenset[str]:
    """Return those of `topics` that a broker would let this client fetch; it is asked once.

    Raises:
        KafkaError: it does not answer.
    """
    broker_id, channel = cluster.any_channel()
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=None, name=name) for name in topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    try:
        response = channel.request(request)
    except KafkaError:
        cluster.disconnect(broker_id)
        raise
    return frozenset(
        topic.name
        for topic in response.topics
        if topic.error_code is ErrorCode.none
        and topic.topic_authorized_operations != _OMITTED
        and topic.topic_authorized_operations & _READ
    )

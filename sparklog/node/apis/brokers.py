"""Requests of brokers to the controller, besides those about log directories and the quorum."""

from typing import Final

from sparklog.node.acls.acl import AclOperation
from sparklog.node.apis.parts import PARTITIONS_OF_A_TOPIC, PARTITIONS_PER_PART, Parts, pieces_of_topic
from sparklog.node.apis.row import ApiRow, Offer, always
from sparklog.node.authorization.guards.cluster import of_cluster
from sparklog.protocol.codec.apis import ApiKey

_BROKERS_ALONE: Final = Offer(of_cluster(AclOperation.CLUSTER_ACTION), many=False, cluster_action=always)

ALTER_PARTITION: Final = ApiRow(
    ApiKey.ALTER_PARTITION,
    controller=Offer(of_cluster(AclOperation.CLUSTER_ACTION), cluster_action=always),
    parts=Parts(
        "topics",
        "topics",
        id,
        lambda topic: pieces_of_topic(topic, PARTITIONS_PER_PART),
        lambda topic: 1 + len(topic.partitions) // PARTITIONS_OF_A_TOPIC,
    ),
)

ENVELOPE: Final = ApiRow(ApiKey.ENVELOPE, controller=_BROKERS_ALONE)

BROKER_REGISTRATION: Final = ApiRow(ApiKey.BROKER_REGISTRATION, controller=_BROKERS_ALONE)

BROKER_HEARTBEAT: Final = ApiRow(ApiKey.BROKER_HEARTBEAT, controller=_BROKERS_ALONE)

ALLOCATE_PRODUCER_IDS: Final = ApiRow(ApiKey.ALLOCATE_PRODUCER_IDS, controller=_BROKERS_ALONE)

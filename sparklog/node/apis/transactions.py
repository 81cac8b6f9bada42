"""Transactions and producer ids."""

from typing import Any, Final

from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.apis.refusals import item, items, said
from sparklog.node.apis.row import ApiRow, Offer
from sparklog.node.authorization.guards import transactions as guards
from sparklog.node.authorization.guards.guard import answer_to
from sparklog.node.authorization.guards.topics import of_named
from sparklog.node.serving.requests import Request
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.errors import KafkaError

_FIRST_ADD_PARTITIONS_OF_BROKERS: Final = 4
_WRITE: Final = (AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID)


def _no_producer(body: Any, error: KafkaError) -> Any:
    return answer_to(body, producer_id=-1, producer_epoch=-1, **said(error))


INIT_PRODUCER_ID: Final = ApiRow(
    ApiKey.INIT_PRODUCER_ID,
    SupportedVersions(0, 5),
    broker=Offer(guards.init_producer_id, under_lease=True),
    controller=Offer(guards.init_producer_id, many=False),
    refused=_no_producer,
)


def _adds_for_others(request: Request) -> bool:
    return request.api_version >= _FIRST_ADD_PARTITIONS_OF_BROKERS


def _addition_refused(body: Any, error: KafkaError) -> Any:
    if body.__version__ >= _FIRST_ADD_PARTITIONS_OF_BROKERS:
        return answer_to(body, **said(error))
    field = "results_by_topic_v3_and_below"
    path = (field, "results_by_partition")
    topics = tuple(
        item(
            body,
            field,
            name=topic.name,
            results_by_partition=tuple(
                item(body, *path, partition_index=partition, partition_error_code=error.error_code)
                for partition in topic.partitions
            ),
        )
        for topic in body.v3_and_below_topics
    )
    return answer_to(body, **said(error), **{field: topics})


ADD_PARTITIONS_TO_TXN: Final = ApiRow(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    SupportedVersions(0, 5),
    broker=Offer(guards.add_partitions_to_txn, cluster_action=_adds_for_others, under_lease=True),
    refused=_addition_refused,
    memory_times=6,
)

ADD_OFFSETS_TO_TXN: Final = ApiRow(
    ApiKey.ADD_OFFSETS_TO_TXN,
    SupportedVersions(0, 4),
    broker=Offer(of_named(_WRITE, (AclOperation.READ, AclResourceType.GROUP)), under_lease=True),
)

END_TXN: Final = ApiRow(
    ApiKey.END_TXN, SupportedVersions(0, 5), broker=Offer(of_named(_WRITE), under_lease=True)
)


def _commits(request: Request) -> bool:
    return any(marker.transaction_result for marker in request.body.markers)


def _markers_refused(body: Any, error: KafkaError) -> Any:
    path = ("markers", "topics", "partitions")
    markers = tuple(
        item(
            body,
            "markers",
            producer_id=marker.producer_id,
            topics=tuple(
                item(
                    body,
                    "markers",
                    "topics",
                    name=topic.name,
                    partitions=items(body, path, "partition_index", topic.partition_indexes, error),
                )
                for topic in marker.topics
            ),
        )
        for marker in body.markers
    )
    return answer_to(body, markers=markers)


WRITE_TXN_MARKERS: Final = ApiRow(
    ApiKey.WRITE_TXN_MARKERS,
    SupportedVersions(1, 2),
    # An authorizer says who may write markers, as in Kafka. Without one every client may abort a transaction
    # that hangs, as kafka-transactions does, but commit none.
    broker=Offer(guards.write_txn_markers, cluster_action_unless_authorized=_commits, under_lease=True),
    refused=_markers_refused,
    memory_times=9,
)

DESCRIBE_TRANSACTIONS: Final = ApiRow(
    ApiKey.DESCRIBE_TRANSACTIONS,
    SupportedVersions(0, 0),
    broker=Offer(guards.describe_transactions, under_lease=True),
)

LIST_TRANSACTIONS: Final = ApiRow(
    ApiKey.LIST_TRANSACTIONS,
    SupportedVersions(0, 2),
    broker=Offer(guards.list_transactions, under_lease=True),
)

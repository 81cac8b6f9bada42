"""Which guard stands before which API: what a broker's listeners ask, and what the controller's asks.

`pass_on` says that Kafka asks for nothing, or that it is asked elsewhere: a broker forwards what changes the
cluster, and the controller asks in the name of who sent it; Fetch and DescribeTopicPartitions ask for each
partition that they come to.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.acls.acl import AclOperation
from sparklog.authorization.guards import changes, groups, transactions
from sparklog.authorization.guards.cluster import describe_cluster, describe_cluster_by_controller, of_cluster
from sparklog.authorization.guards.configs import of_altered_resources, of_described_resources
from sparklog.authorization.guards.guard import Guard, pass_on
from sparklog.authorization.guards.metadata import metadata
from sparklog.authorization.guards.topics import TopicItems, of_topics, offset_for_leader_epoch, produce
from sparklog.config import BrokerConfig
from sparklog.wire.apis import ApiKey

_READ: Final = AclOperation.READ
_DELETE: Final = AclOperation.DELETE
_ALTER: Final = AclOperation.ALTER
_DESCRIBE: Final = AclOperation.DESCRIBE
_DESCRIBE_CONFIGS: Final = AclOperation.DESCRIBE_CONFIGS
_ALTER_CONFIGS: Final = AclOperation.ALTER_CONFIGS
_CLUSTER_ACTION: Final = AclOperation.CLUSTER_ACTION

_OF_BOTH: Final[Mapping[ApiKey, Guard]] = {
    ApiKey.API_VERSIONS: pass_on,
    ApiKey.DESCRIBE_ACLS: of_cluster(_DESCRIBE),
    ApiKey.DESCRIBE_CONFIGS: of_described_resources,
    ApiKey.LIST_CONFIG_RESOURCES: of_cluster(_DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: of_cluster(_DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: of_cluster(_DESCRIBE),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: pass_on,
    ApiKey.FIND_COORDINATOR: groups.find_coordinator,
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: pass_on,
    ApiKey.PUSH_TELEMETRY: pass_on,
    ApiKey.SASL_HANDSHAKE: pass_on,
    ApiKey.SASL_AUTHENTICATE: pass_on,
}

_OF_BROKERS: Final[Mapping[ApiKey, Guard]] = {
    **_OF_BOTH,
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: pass_on,
    ApiKey.LIST_OFFSETS: of_topics(_DESCRIBE, TopicItems()),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: of_topics(_DELETE, TopicItems(row={"low_watermark": -1})),
    ApiKey.DESCRIBE_PRODUCERS: of_topics(_READ, TopicItems(partitions="partition_indexes", index_field=None)),
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_LOG_DIRS: of_cluster(_DESCRIBE),
    ApiKey.ALTER_REPLICA_LOG_DIRS: of_cluster(_ALTER),
    ApiKey.JOIN_GROUP: groups.of_group(_READ),
    ApiKey.SYNC_GROUP: groups.of_group(_READ),
    ApiKey.HEARTBEAT: groups.of_group(_READ),
    ApiKey.LEAVE_GROUP: groups.of_group(_READ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.consumer_group_heartbeat,
    ApiKey.OFFSET_COMMIT: groups.of_group_and_topics(_READ, TopicItems(first_by_id=10)),
    ApiKey.OFFSET_FETCH: groups.offset_fetch,
    ApiKey.OFFSET_DELETE: groups.of_group_and_topics(_DELETE, TopicItems()),
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.DESCRIBE_GROUPS: groups.of_groups(_DESCRIBE, "groups", "groups"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.consumer_group_describe,
    ApiKey.DELETE_GROUPS: groups.of_groups(_DELETE, "groups_names", "results"),
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
    ApiKey.END_TXN: transactions.end_txn,
    ApiKey.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
    ApiKey.WRITE_TXN_MARKERS: transactions.write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
}

_FORWARDED: Final[Mapping[ApiKey, Guard]] = {
    ApiKey.CREATE_TOPICS: changes.create_topics,
    ApiKey.DELETE_TOPICS: changes.delete_topics(are_deleted=True),
    ApiKey.CREATE_PARTITIONS: changes.create_partitions,
    ApiKey.ALTER_CONFIGS: of_altered_resources,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: of_altered_resources,
    ApiKey.ALTER_CLIENT_QUOTAS: of_cluster(_ALTER_CONFIGS),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: of_cluster(_ALTER),
    ApiKey.CREATE_ACLS: of_cluster(_ALTER),
    ApiKey.DELETE_ACLS: of_cluster(_ALTER),
    ApiKey.ELECT_LEADERS: of_cluster(_ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: of_cluster(_ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: of_cluster(_DESCRIBE),
    ApiKey.UPDATE_FEATURES: of_cluster(_ALTER),
    ApiKey.UNREGISTER_BROKER: of_cluster(_ALTER),
    ApiKey.DESCRIBE_QUORUM: of_cluster(_DESCRIBE),
}

_OF_CONTROLLER: Final[Mapping[ApiKey, Guard]] = {
    **_OF_BOTH,
    **_FORWARDED,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster_by_controller,
    ApiKey.FETCH: of_cluster(_CLUSTER_ACTION),
    ApiKey.FETCH_SNAPSHOT: of_cluster(_CLUSTER_ACTION),
    ApiKey.ENVELOPE: of_cluster(_CLUSTER_ACTION),
    ApiKey.ALTER_PARTITION: of_cluster(_CLUSTER_ACTION),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: of_cluster(_CLUSTER_ACTION),
    ApiKey.ALLOCATE_PRODUCER_IDS: of_cluster(_CLUSTER_ACTION),
    ApiKey.BROKER_REGISTRATION: of_cluster(_CLUSTER_ACTION),
    ApiKey.BROKER_HEARTBEAT: of_cluster(_CLUSTER_ACTION),
}


def broker_guards(config: BrokerConfig) -> Mapping[ApiKey, Guard]:
    """Return what a broker's listeners ask for."""
    return {
        **_OF_BROKERS,
        **dict.fromkeys(_FORWARDED, pass_on),
        ApiKey.METADATA: metadata(creates_topics=config.auto_create_topics_enable),
    }


def controller_guards(config: BrokerConfig) -> Mapping[ApiKey, Guard]:
    """Return what the controller's listener asks for; what only brokers serve it refuses whoever asks."""
    return {
        **dict.fromkeys(_OF_BROKERS, pass_on),
        **_OF_CONTROLLER,
        ApiKey.DELETE_TOPICS: changes.delete_topics(are_deleted=config.delete_topic_enable),
        ApiKey.METADATA: metadata(creates_topics=config.auto_create_topics_enable),
    }

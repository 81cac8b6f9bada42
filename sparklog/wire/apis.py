"""The APIs of Kafka 4.3: their keys, the versions kio can read and write, and the entity types of each.

Sources: `ApiKeys.java` for the names, kio's schema index for versions and types.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from sparklog.wire.described_transactions import DescribeTransactionsResponse


class ApiKey(IntEnum):
    """Kafka's API keys, under Kafka's names."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class SupportedVersions(NamedTuple):
    """A range of versions of one API; both ends are inclusive, as in ApiVersions."""

    min_version: int
    max_version: int

    def intersection(self, other: "SupportedVersions") -> "SupportedVersions | None":
        """Return the versions in both ranges, or None when there is none.

        >>> SupportedVersions(0, 9).intersection(SupportedVersions(3, 13))
        SupportedVersions(min_version=3, max_version=9)
        """
        low, high = max(self.min_version, other.min_version), min(self.max_version, other.max_version)
        return SupportedVersions(low, high) if low <= high else None


CLIENT_VERSIONS: Final[Mapping[ApiKey, SupportedVersions]] = MappingProxyType(
    {
        ApiKey.PRODUCE: SupportedVersions(3, 13),
        ApiKey.FETCH: SupportedVersions(4, 18),
        ApiKey.LIST_OFFSETS: SupportedVersions(1, 11),
        ApiKey.METADATA: SupportedVersions(0, 13),
        ApiKey.OFFSET_COMMIT: SupportedVersions(2, 10),
        ApiKey.OFFSET_FETCH: SupportedVersions(1, 10),
        ApiKey.FIND_COORDINATOR: SupportedVersions(0, 6),
        ApiKey.JOIN_GROUP: SupportedVersions(0, 9),
        ApiKey.HEARTBEAT: SupportedVersions(0, 4),
        ApiKey.LEAVE_GROUP: SupportedVersions(0, 5),
        ApiKey.SYNC_GROUP: SupportedVersions(0, 5),
        ApiKey.DESCRIBE_GROUPS: SupportedVersions(0, 6),
        ApiKey.LIST_GROUPS: SupportedVersions(0, 5),
        ApiKey.CREATE_TOPICS: SupportedVersions(2, 7),
        ApiKey.DELETE_TOPICS: SupportedVersions(1, 6),
        ApiKey.DELETE_RECORDS: SupportedVersions(0, 2),
        ApiKey.INIT_PRODUCER_ID: SupportedVersions(0, 5),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: SupportedVersions(2, 4),
        ApiKey.ADD_PARTITIONS_TO_TXN: SupportedVersions(0, 5),
        ApiKey.ADD_OFFSETS_TO_TXN: SupportedVersions(0, 4),
        ApiKey.END_TXN: SupportedVersions(0, 5),
        ApiKey.WRITE_TXN_MARKERS: SupportedVersions(1, 2),
        ApiKey.TXN_OFFSET_COMMIT: SupportedVersions(0, 5),
        ApiKey.DESCRIBE_ACLS: SupportedVersions(1, 3),
        ApiKey.CREATE_ACLS: SupportedVersions(1, 3),
        ApiKey.DELETE_ACLS: SupportedVersions(1, 3),
        ApiKey.DESCRIBE_CONFIGS: SupportedVersions(1, 4),
        ApiKey.ALTER_CONFIGS: SupportedVersions(0, 2),
        ApiKey.ALTER_REPLICA_LOG_DIRS: SupportedVersions(1, 2),
        ApiKey.DESCRIBE_LOG_DIRS: SupportedVersions(1, 5),
        ApiKey.CREATE_PARTITIONS: SupportedVersions(0, 3),
        ApiKey.DELETE_GROUPS: SupportedVersions(0, 2),
        ApiKey.ELECT_LEADERS: SupportedVersions(0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: SupportedVersions(0, 1),
        ApiKey.OFFSET_DELETE: SupportedVersions(0, 0),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: SupportedVersions(0, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: SupportedVersions(0, 1),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: SupportedVersions(0, 0),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: SupportedVersions(0, 0),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: SupportedVersions(0, 1),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: SupportedVersions(0, 0),
        ApiKey.DESCRIBE_QUORUM: SupportedVersions(0, 2),
        # From version 2 on an answer has one error for all features.
        ApiKey.UPDATE_FEATURES: SupportedVersions(1, 1),
        ApiKey.UNREGISTER_BROKER: SupportedVersions(0, 0),
        ApiKey.DESCRIBE_CLUSTER: SupportedVersions(0, 2),
        ApiKey.DESCRIBE_PRODUCERS: SupportedVersions(0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: SupportedVersions(0, 0),
        ApiKey.LIST_TRANSACTIONS: SupportedVersions(0, 2),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: SupportedVersions(0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: SupportedVersions(0, 1),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: SupportedVersions(0, 0),
        ApiKey.PUSH_TELEMETRY: SupportedVersions(0, 0),
        ApiKey.LIST_CONFIG_RESOURCES: SupportedVersions(0, 1),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: SupportedVersions(0, 0),
    }
)
"""What clients are offered, by brokers and at the bootstrap address alike (the versions of Kafka 4.3).

Some clients, kafka-python among them, take the versions of the first address for those of the cluster.
"""


@cache
def known_versions(api_key: ApiKey) -> SupportedVersions:
    """Return the versions of `api_key` that can be read and written here (those of Kafka 4.3)."""
    versions = schema_name_map[api_key_map[int(api_key)]]
    return SupportedVersions(min(versions), max(versions))


@cache
def request_type(api_key: int, api_version: int) -> type[Any]:
    """Return the request entity of an API version.

    Raises:
        kio.index.KioIndexError: there is no such API or version.
    """
    entity_type: type[Any] = load_request_schema(api_key, api_version)
    return entity_type


@cache
def response_type(api_key: int, api_version: int) -> type[Any]:
    """Return the response entity of an API version.

    Raises:
        kio.index.KioIndexError: there is no such API or version.
    """
    if api_key == ApiKey.DESCRIBE_TRANSACTIONS:
        return DescribeTransactionsResponse
    entity_type: type[Any] = load_response_schema(api_key, api_version)
    return entity_type

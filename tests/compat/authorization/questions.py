"""What may be asked at random of a cluster whose ACLs decide: each API that clients have, in each version.

Names are few, so that ACLs are about them, and some are of nothing that is there. What would change a
cluster is only validated, is about what is not there, or is put right afterwards (`CHANGING_TOPICS`,
`CHANGING_GROUPS`).
"""

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

from sparklog.node.acls.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.protocol.codec.apis import ApiKey
from tests.compat.authorization.stated import NO_PRODUCER, Asked, stated

TOPICS: Final = {"a", "ab", "b"}
GROUPS: Final = ("a", "ab", "b")
LIVE: Final = "ab-live"
"""A group with a member, and a transaction that goes on."""
LIVE_TOPICS: Final = ("a", "ab")
"""What these two are about; never deleted."""
CHANGING_TOPICS: Final = frozenset({"CREATE_TOPICS", "DELETE_TOPICS", "METADATA"})
CHANGING_GROUPS: Final = frozenset({"OFFSET_COMMIT", "OFFSET_DELETE", "DELETE_GROUPS", "JOIN_GROUP"})

_MISSING: Final = "zz"
_names = st.sampled_from([*sorted(TOPICS), _MISSING])
_topics = _names | st.sampled_from(["__consumer_offsets"])
_groups = st.sampled_from([*GROUPS, _MISSING])
_seen_groups = st.sampled_from([*GROUPS, LIVE, _MISSING])
_partition = st.sampled_from([0, 0, 7])


def some(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Return a few different items."""
    return st.lists(items, min_size=1, max_size=3, unique_by=repr)


def fields(**known: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Return fields, some of which are drawn."""
    return st.fixed_dictionaries(
        {
            name: value if isinstance(value, st.SearchStrategy) else st.just(value)
            for name, value in known.items()
        }
    )


def _of_topics(partitions: str, items: Any, names: st.SearchStrategy[str] = _topics) -> Any:
    """Return topics, each once, by whatever the version names them."""
    return st.lists(
        st.tuples(names, st.lists(items, min_size=1, max_size=2, unique_by=_partition_of)),
        min_size=1,
        max_size=3,
        unique_by=lambda pair: pair[0],
    ).map(
        lambda pairs: [
            {"name": name, "topic": name, "topic_name": name, "topic_id": name, partitions: rows}
            for name, rows in pairs
        ]
    )


def _partition_of(item: Any) -> int:
    if isinstance(item, dict):
        return int(next(item[name] for name in ("partition_index", "partition", "index") if name in item))
    return int(item)


def _resources(configs: list[dict[str, Any]]) -> Any:
    resource = st.one_of(
        st.tuples(st.just(2), _topics),
        st.tuples(st.just(32), _groups),
        st.tuples(st.sampled_from([4, 8]), st.sampled_from(["0"])),
        st.tuples(st.just(16), st.just("metrics")),
    )
    return some(resource).map(
        lambda pairs: [
            {
                "resource_type": number,
                "resource_name": name,
                "configuration_keys": None,
                "configs": configs if number == 2 else [],
            }
            for number, name in pairs
        ]
    )


_partitions = {"partition_index": _partition}
_committed = fields(**_partitions, committed_offset=1, committed_leader_epoch=-1, committed_metadata="")
_asks = st.booleans()
_no_producer = {"producer_id": NO_PRODUCER, "producer_epoch": 0}
_acl_filter = {
    "resource_type_filter": st.sampled_from([1, 2, 3, 4]),
    "resource_name_filter": st.none() | _names,
    "pattern_type_filter": st.sampled_from([1, 2, 3, 4]),
    "principal_filter": st.none() | st.just("User:ann"),
    "host_filter": None,
    "operation": st.sampled_from([1, 2, 3, 8]),
    "permission_type": st.sampled_from([1, 2, 3]),
}

_QUESTIONS: Final[Mapping[ApiKey, st.SearchStrategy[dict[str, Any]]]] = {
    ApiKey.PRODUCE: fields(
        transactional_id=st.none() | _names,
        acks=st.sampled_from([-1, 1, 1, 0]),
        timeout=10_000,
        topic_data=_of_topics(
            "partition_data",
            fields(index=_partition, records=st.sampled_from(["plain", "plain", "transactional"])),
        ),
    ),
    ApiKey.FETCH: fields(
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=_of_topics(
            "partitions",
            fields(
                partition=_partition,
                fetch_offset=0,
                partition_max_bytes=1 << 10,
                current_leader_epoch=-1,
                log_start_offset=-1,
                last_fetched_epoch=-1,
            ),
        ),
    ),
    ApiKey.LIST_OFFSETS: fields(
        replica_id=-1,
        topics=_of_topics("partitions", fields(**_partitions, timestamp=-1, current_leader_epoch=-1)),
        timeout=10_000,
    ),
    ApiKey.METADATA: fields(
        topics=st.none() | some(_topics | st.just("a-new")),
        by_id=_asks,
        allow_auto_topic_creation=_asks,
        include_topic_authorized_operations=_asks,
        include_cluster_authorized_operations=_asks,
    ),
    ApiKey.OFFSET_COMMIT: fields(
        group_id=_groups,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=_of_topics("partitions", _committed),
    ),
    ApiKey.OFFSET_FETCH: fields(
        group_id=_groups,
        topics=st.none() | _of_topics("partition_indexes", _partition),
        groups=st.lists(
            fields(
                group_id=_groups,
                member_id=None,
                member_epoch=-1,
                topics=st.none() | _of_topics("partition_indexes", _partition),
            ),
            min_size=1,
            max_size=2,
            unique_by=lambda group: group["group_id"],
        ),
        require_stable=_asks,
    ),
    ApiKey.FIND_COORDINATOR: fields(
        key=_names, coordinator_keys=some(_names), key_type=st.sampled_from([0, 1])
    ),
    ApiKey.JOIN_GROUP: fields(
        group_id=_groups,
        session_timeout=30_000,
        rebalance_timeout=30_000,
        member_id="nobody",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": ""}],
    ),
    ApiKey.HEARTBEAT: fields(group_id=_groups, generation_id=1, member_id="nobody"),
    ApiKey.LEAVE_GROUP: fields(group_id=_groups, member_id="nobody", members=[{"member_id": "nobody"}]),
    ApiKey.SYNC_GROUP: fields(
        group_id=_groups,
        generation_id=1,
        member_id="nobody",
        protocol_type="consumer",
        protocol_name="range",
    ),
    ApiKey.DESCRIBE_GROUPS: fields(groups=some(_seen_groups), include_authorized_operations=_asks),
    ApiKey.LIST_GROUPS: fields(),
    ApiKey.CREATE_TOPICS: fields(
        topics=some(st.sampled_from(["a", "a-made", "b-made", "zz"])).map(
            lambda names: [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
        ),
        timeout=10_000,
        validate_only=st.sampled_from([True, True, True, False]),
    ),
    ApiKey.DELETE_TOPICS: fields(
        names=some(st.sampled_from(["b", "zz", "b-other"])), by_id=_asks, timeout=10_000
    ),
    ApiKey.DELETE_RECORDS: fields(
        topics=_of_topics("partitions", fields(**_partitions, offset=0)), timeout=10_000
    ),
    ApiKey.INIT_PRODUCER_ID: fields(
        transactional_id=st.none() | _names, transaction_timeout=10_000, producer_id=-1, producer_epoch=-1
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: fields(
        replica_id=-1,
        topics=_of_topics(
            "partitions", fields(partition=_partition, current_leader_epoch=-1, leader_epoch=0)
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: fields(
        v3_and_below_transactional_id=_names,
        v3_and_below_producer_id=NO_PRODUCER,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=_of_topics("partitions", _partition),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: fields(transactional_id=_names, group_id=_groups, **_no_producer),
    ApiKey.END_TXN: fields(transactional_id=_names, committed=_asks, **_no_producer),
    ApiKey.WRITE_TXN_MARKERS: fields(
        markers=st.lists(
            fields(
                **_no_producer,
                transaction_result=False,
                topics=_of_topics("partition_indexes", st.just(0), st.sampled_from(sorted(TOPICS))),
                coordinator_epoch=0,
            ),
            min_size=1,
            max_size=1,
        )
    ),
    ApiKey.TXN_OFFSET_COMMIT: fields(
        transactional_id=_names,
        group_id=_groups,
        **_no_producer,
        generation_id=-1,
        member_id="",
        topics=_of_topics("partitions", _committed),
    ),
    ApiKey.DESCRIBE_ACLS: fields(**_acl_filter),
    ApiKey.CREATE_ACLS: fields(
        creations=some(
            fields(
                resource_type=2,
                resource_name=_names,
                resource_pattern_type=3,
                principal="User:eve",
                host="*",
                operation=3,
                permission_type=3,
            )
        )
    ),
    ApiKey.DELETE_ACLS: fields(filters=some(fields(**_acl_filter))),
    ApiKey.DESCRIBE_CONFIGS: fields(resources=_resources([])),
    ApiKey.ALTER_CONFIGS: fields(
        resources=_resources([{"name": "retention.ms", "value": "9"}]), validate_only=True
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: fields(
        resources=_resources([{"name": "retention.ms", "value": "9", "config_operation": 0}]),
        validate_only=True,
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: fields(
        dirs=st.lists(
            fields(path="/nowhere", topics=_of_topics("partitions", _partition, _names)),
            min_size=1,
            max_size=1,
        )
    ),
    ApiKey.DESCRIBE_LOG_DIRS: fields(topics=_of_topics("partitions", st.just(0), _names)),
    ApiKey.CREATE_PARTITIONS: fields(
        topics=some(_names).map(lambda names: [{"name": name, "count": 2} for name in names]),
        timeout=10_000,
        validate_only=True,
    ),
    ApiKey.DELETE_GROUPS: fields(groups_names=some(_seen_groups)),
    ApiKey.ELECT_LEADERS: fields(
        election_type=0, topic_partitions=_of_topics("partitions", _partition, _names), timeout=10_000
    ),
    ApiKey.OFFSET_DELETE: fields(group_id=_groups, topics=_of_topics("partitions", fields(**_partitions))),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: fields(components=[], strict=False),
    ApiKey.ALTER_CLIENT_QUOTAS: fields(
        entries=[
            {
                "entity": [{"entity_type": "user", "entity_name": "ann"}],
                "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
            }
        ],
        validate_only=True,
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: fields(users=[{"name": "nobody"}]),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: fields(deletions=[{"name": "nobody", "mechanism": 1}]),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: fields(
        timeout=10_000,
        topics=_of_topics("partitions", fields(**_partitions, replicas=None), _names),
        allow_replication_factor_change=True,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: fields(timeout=10_000, topics=None),
    ApiKey.DESCRIBE_QUORUM: fields(
        topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    ),
    ApiKey.UPDATE_FEATURES: fields(
        timeout=10_000,
        feature_updates=[{"feature": "no.feature", "max_version_level": 1, "upgrade_type": 1}],
        validate_only=True,
    ),
    ApiKey.UNREGISTER_BROKER: fields(broker_id=77),
    ApiKey.DESCRIBE_CLUSTER: fields(include_cluster_authorized_operations=_asks, endpoint_type=1),
    ApiKey.DESCRIBE_PRODUCERS: fields(topics=_of_topics("partition_indexes", _partition)),
    ApiKey.DESCRIBE_TRANSACTIONS: fields(transactional_ids=some(st.sampled_from([LIVE, "a", _MISSING]))),
    ApiKey.LIST_TRANSACTIONS: fields(duration_filter=-1),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: fields(
        group_id=_seen_groups,
        member_id="nobody",
        member_epoch=5,
        rebalance_timeout=-1,
        subscribed_topic_names=st.none() | some(_names),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: fields(group_ids=some(_seen_groups), include_authorized_operations=_asks),
    ApiKey.LIST_CONFIG_RESOURCES: fields(resource_types=st.sampled_from([[], [2], [4, 16], [32]])),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: fields(
        topics=some(_topics).map(lambda names: [{"name": name} for name in names]),
        response_partition_limit=st.sampled_from([2000, 1]),
    ),
}
"""Fields of any version; those that a version does not have are left out."""

_ASKED_ELSEWHERE: Final = frozenset(
    {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)
"""They ask for nothing, or have tests of their own (delegation tokens)."""
assert set(_QUESTIONS) == set(CLIENT_VERSIONS) - _ASKED_ELSEWHERE

_ADDED_BY_BROKERS: Final = 4
_FIRST_METADATA_BY_ID: Final = 12
_FIRST_DELETE_BY_ID: Final = 6


@st.composite
def questions(draw: st.DrawFn, api_keys: tuple[ApiKey, ...] = tuple(_QUESTIONS)) -> Asked:
    """Return a question of ann or of bob."""
    api_key = draw(st.sampled_from(api_keys))
    versions = CLIENT_VERSIONS[api_key]
    newest = versions.max_version
    if api_key is ApiKey.ADD_PARTITIONS_TO_TXN:
        newest = _ADDED_BY_BROKERS - 1
    version = draw(st.integers(versions.min_version, newest))
    given = draw(_QUESTIONS[api_key])
    if api_key is ApiKey.METADATA:
        given = _of_metadata(version, given)
    elif api_key is ApiKey.DELETE_TOPICS:
        given = _of_deletion(version, given)
    elif api_key is ApiKey.OFFSET_FETCH and version < 2:
        given["topics"] = given["topics"] or []
    user = draw(st.sampled_from(["ann", "ann", "bob"]))
    return Asked(user, api_key.name, version, stated(api_key, version, given))


def _of_metadata(version: int, given: dict[str, Any]) -> dict[str, Any]:
    if given["topics"] is None:
        return given | {"topics": None if version else []}
    by_id = given["by_id"] and version >= _FIRST_METADATA_BY_ID
    may_create = given["allow_auto_topic_creation"] and not by_id
    return given | {"topics": _rows(given["topics"], by_id), "allow_auto_topic_creation": may_create}


def _of_deletion(version: int, given: dict[str, Any]) -> dict[str, Any]:
    if version < _FIRST_DELETE_BY_ID:
        return given | {"topic_names": given["names"]}
    return given | {"topics": _rows(given["names"], given["by_id"])}


def _rows(names: list[str], by_id: bool) -> list[dict[str, Any]]:
    return [{"topic_id": name, "name": None} if by_id else {"topic_id": None, "name": name} for name in names]


_OPERATIONS: Final = [each for each in AclOperation if each >= AclOperation.ALL]
_acls = st.one_of(
    st.builds(
        Acl,
        st.sampled_from(
            [
                AclResourceType.TOPIC,
                AclResourceType.TOPIC,
                AclResourceType.GROUP,
                AclResourceType.TRANSACTIONAL_ID,
            ]
        ),
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        st.sampled_from(["a", "a", "ab", "b", "zz", "*", "__"]),
        st.sampled_from(["User:ann", "User:ann", "User:bob", "User:*"]),
        st.sampled_from(["*", "*", "127.0.0.1", "10.0.0.1"]),
        st.sampled_from(
            [
                *_OPERATIONS,
                *[AclOperation.ALL] * 5,
                AclOperation.READ,
                AclOperation.WRITE,
                AclOperation.DESCRIBE,
            ]
        ),
        st.sampled_from([AclPermissionType.ALLOW] * 5 + [AclPermissionType.DENY]),
    ),
    st.builds(
        Acl,
        st.just(AclResourceType.CLUSTER),
        st.just(PatternType.LITERAL),
        st.just(CLUSTER_NAME),
        st.sampled_from(["User:ann", "User:bob", "User:*"]),
        st.sampled_from(["*", "127.0.0.1"]),
        st.sampled_from([*_OPERATIONS, AclOperation.ALL, AclOperation.ALL]),
        st.sampled_from([AclPermissionType.ALLOW] * 4 + [AclPermissionType.DENY]),
    ),
)


def acl_sets(most: int) -> st.SearchStrategy[frozenset[Acl]]:
    """Return sets of ACLs."""
    return st.frozensets(_acls, max_size=most)

"""Each API asks for exactly the permissions that Kafka asks for: with all of them it is answered, without any
one it is refused.

The rows are taken from Kafka's KafkaApis and ControllerApis.
"""

import random
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, NamedTuple

import pytest

from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.apis.listeners import listener_guards
from sparklog.node.apis.row import Side
from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.node.authorization.guards.guard import Guard, filled, item_type, pass_on
from sparklog.node.config import BrokerConfig
from sparklog.node.serving.requests import Request
from sparklog.protocol.codec.apis import ApiKey, known_versions, request_type, response_type
from sparklog.protocol.codec.frames import encode_response_frame, request_codec
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.sparklog.node.authorization.guards.guarding import TOPIC_IDS, Guarding, Permission, on_cluster
from tests.unit.sparklog.node.serving.entities import arbitrary_entity

CONFIG: Final = BrokerConfig()
BROKER: Final = listener_guards(Side.BROKER, CONFIG)
CONTROLLER: Final = listener_guards(Side.CONTROLLER, CONFIG)

TOPIC_FAILED: Final = ErrorCode.topic_authorization_failed
GROUP_FAILED: Final = ErrorCode.group_authorization_failed
CLUSTER_FAILED: Final = ErrorCode.cluster_authorization_failed
TRANSACTION_FAILED: Final = ErrorCode.transactional_id_authorization_failed

READ: Final = AclOperation.READ
WRITE: Final = AclOperation.WRITE
CREATE: Final = AclOperation.CREATE
DELETE: Final = AclOperation.DELETE
ALTER: Final = AclOperation.ALTER
DESCRIBE: Final = AclOperation.DESCRIBE
CLUSTER_ACTION: Final = AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS: Final = AclOperation.DESCRIBE_CONFIGS
ALTER_CONFIGS: Final = AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE: Final = AclOperation.IDEMPOTENT_WRITE


def topic(operation: AclOperation, name: str = "mine") -> Permission:
    """Return a permission on a topic."""
    return operation, AclResourceType.TOPIC, name


def group(operation: AclOperation) -> Permission:
    """Return a permission on the group."""
    return operation, AclResourceType.GROUP, "group"


def transaction(operation: AclOperation) -> Permission:
    """Return a permission on the transactional id."""
    return operation, AclResourceType.TRANSACTIONAL_ID, "txn"


class Row(NamedTuple):
    """A request, what it needs, and the error without each of that."""

    api_key: ApiKey
    version: int
    needed: Mapping[Permission, ErrorCode]
    fields: Mapping[str, Any] = {}


BATCH: Final = bytes(22) + b"\x10" + bytes(40)
"""As far as it is looked at: of a transaction."""
NAMED: Final = {"topics": [{"name": "mine", "partitions": [{"partition_index": 3}]}]}
BY_ID: Final = {"topics": [{"topic_id": TOPIC_IDS["mine"], "partitions": [{"partition_index": 3}]}]}
OF_GROUP: Final = {"group_id": "group"}

BROKER_ROWS: Final = [
    *(
        Row(
            ApiKey.PRODUCE,
            version,
            {topic(WRITE): TOPIC_FAILED, transaction(WRITE): TRANSACTION_FAILED},
            {
                "transactional_id": "txn",
                "acks": -1,
                "topic_data": [{**named, "partition_data": [{"index": 3, "records": BATCH}]}],
            },
        )
        for version, named in ((3, {"name": "mine"}), (13, {"topic_id": TOPIC_IDS["mine"]}))
    ),
    Row(ApiKey.LIST_OFFSETS, 7, {topic(DESCRIBE): TOPIC_FAILED}, NAMED),
    Row(
        ApiKey.METADATA,
        12,
        {topic(DESCRIBE): TOPIC_FAILED},
        {"topics": [{"name": "mine", "topic_id": None}], "allow_auto_topic_creation": True},
    ),
    Row(
        ApiKey.METADATA,
        12,
        {topic(DESCRIBE): TOPIC_FAILED},
        {"topics": [{"name": None, "topic_id": TOPIC_IDS["mine"]}]},
    ),
    Row(
        ApiKey.METADATA,
        4,
        {topic(DESCRIBE, "new"): TOPIC_FAILED, topic(CREATE, "new"): TOPIC_FAILED},
        {"topics": [{"name": "new"}], "allow_auto_topic_creation": True},
    ),
    Row(ApiKey.OFFSET_COMMIT, 9, {group(READ): GROUP_FAILED, topic(READ): TOPIC_FAILED}, OF_GROUP | NAMED),
    Row(ApiKey.OFFSET_COMMIT, 10, {group(READ): GROUP_FAILED, topic(READ): TOPIC_FAILED}, OF_GROUP | BY_ID),
    *(
        Row(
            ApiKey.OFFSET_FETCH,
            version,
            {group(DESCRIBE): GROUP_FAILED, topic(DESCRIBE): TOPIC_FAILED},
            {**OF_GROUP, "topics": [{"name": "mine", "partition_indexes": [3]}]},
        )
        for version in (1, 7)
    ),
    *(
        Row(
            ApiKey.OFFSET_FETCH,
            version,
            {group(DESCRIBE): GROUP_FAILED, topic(DESCRIBE): TOPIC_FAILED},
            {"groups": [{**OF_GROUP, "topics": [{**named, "partition_indexes": [3]}]}]},
        )
        for version, named in ((8, {"name": "mine"}), (10, {"topic_id": TOPIC_IDS["mine"]}))
    ),
    Row(ApiKey.FIND_COORDINATOR, 0, {group(DESCRIBE): GROUP_FAILED}, {"key": "group"}),
    Row(ApiKey.FIND_COORDINATOR, 6, {group(DESCRIBE): GROUP_FAILED}, {"coordinator_keys": ["group"]}),
    Row(
        ApiKey.FIND_COORDINATOR,
        6,
        {transaction(DESCRIBE): TRANSACTION_FAILED},
        {"coordinator_keys": ["txn"], "key_type": 1},
    ),
    Row(
        ApiKey.FIND_COORDINATOR,
        6,
        {on_cluster(CLUSTER_ACTION): CLUSTER_FAILED},
        {"coordinator_keys": ["share"], "key_type": 2},
    ),
    Row(ApiKey.JOIN_GROUP, 0, {group(READ): GROUP_FAILED}, OF_GROUP),
    Row(ApiKey.JOIN_GROUP, 9, {group(READ): GROUP_FAILED}, OF_GROUP),
    Row(ApiKey.SYNC_GROUP, 5, {group(READ): GROUP_FAILED}, OF_GROUP),
    Row(ApiKey.HEARTBEAT, 4, {group(READ): GROUP_FAILED}, OF_GROUP),
    Row(ApiKey.LEAVE_GROUP, 5, {group(READ): GROUP_FAILED}, OF_GROUP),
    Row(ApiKey.DESCRIBE_GROUPS, 6, {group(DESCRIBE): GROUP_FAILED}, {"groups": ["group"]}),
    Row(ApiKey.DELETE_GROUPS, 2, {group(DELETE): GROUP_FAILED}, {"groups_names": ["group"]}),
    Row(ApiKey.DELETE_RECORDS, 2, {topic(DELETE): TOPIC_FAILED}, NAMED),
    Row(ApiKey.INIT_PRODUCER_ID, 5, {transaction(WRITE): TRANSACTION_FAILED}, {"transactional_id": "txn"}),
    Row(ApiKey.INIT_PRODUCER_ID, 5, {on_cluster(IDEMPOTENT_WRITE): CLUSTER_FAILED}),
    Row(ApiKey.INIT_PRODUCER_ID, 5, {topic(WRITE, "any"): CLUSTER_FAILED}),
    *(
        Row(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            4,
            {permission: TOPIC_FAILED},
            {"topics": [{"topic": "mine", "partitions": [{"partition": 3}]}]},
        )
        for permission in (topic(DESCRIBE), on_cluster(CLUSTER_ACTION))
    ),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {transaction(WRITE): TRANSACTION_FAILED, topic(WRITE): TOPIC_FAILED},
        {
            "v3_and_below_transactional_id": "txn",
            "v3_and_below_topics": [{"name": "mine", "partitions": [3]}],
        },
    ),
    Row(ApiKey.ADD_PARTITIONS_TO_TXN, 5, {on_cluster(CLUSTER_ACTION): CLUSTER_FAILED}),
    Row(
        ApiKey.ADD_OFFSETS_TO_TXN,
        4,
        {transaction(WRITE): TRANSACTION_FAILED, group(READ): GROUP_FAILED},
        {**OF_GROUP, "transactional_id": "txn"},
    ),
    Row(ApiKey.END_TXN, 5, {transaction(WRITE): TRANSACTION_FAILED}, {"transactional_id": "txn"}),
    *(
        Row(
            ApiKey.WRITE_TXN_MARKERS,
            2,
            {on_cluster(operation): CLUSTER_FAILED},
            {"markers": [{"topics": [{"name": "mine", "partition_indexes": [3]}]}]},
        )
        for operation in (ALTER, CLUSTER_ACTION)
    ),
    Row(
        ApiKey.TXN_OFFSET_COMMIT,
        5,
        {
            transaction(WRITE): TRANSACTION_FAILED,
            group(READ): GROUP_FAILED,
            topic(READ): TOPIC_FAILED,
        },
        {**OF_GROUP, **NAMED, "transactional_id": "txn"},
    ),
    Row(ApiKey.DESCRIBE_ACLS, 3, {on_cluster(DESCRIBE): CLUSTER_FAILED}),
    *(
        Row(
            ApiKey.DESCRIBE_CONFIGS,
            4,
            {permission: error},
            {"resources": [{"resource_type": resource_type, "resource_name": name}]},
        )
        for resource_type, name, permission, error in (
            (2, "mine", topic(DESCRIBE_CONFIGS), TOPIC_FAILED),
            (32, "group", group(DESCRIBE_CONFIGS), GROUP_FAILED),
            (4, "1", on_cluster(DESCRIBE_CONFIGS), CLUSTER_FAILED),
            (8, "1", on_cluster(DESCRIBE_CONFIGS), CLUSTER_FAILED),
            (16, "clients", on_cluster(DESCRIBE_CONFIGS), CLUSTER_FAILED),
        )
    ),
    Row(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        {on_cluster(ALTER): CLUSTER_FAILED},
        {"dirs": [{"topics": [{"name": "mine", "partitions": [3]}]}]},
    ),
    Row(ApiKey.DESCRIBE_LOG_DIRS, 4, {on_cluster(DESCRIBE): CLUSTER_FAILED}),
    Row(ApiKey.OFFSET_DELETE, 0, {group(DELETE): GROUP_FAILED, topic(READ): TOPIC_FAILED}, OF_GROUP | NAMED),
    Row(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {on_cluster(DESCRIBE_CONFIGS): CLUSTER_FAILED}),
    Row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {on_cluster(DESCRIBE): CLUSTER_FAILED}),
    Row(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        {topic(READ): TOPIC_FAILED},
        {"topics": [{"name": "mine", "partition_indexes": [3]}]},
    ),
    Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {transaction(DESCRIBE): TRANSACTION_FAILED},
        {"transactional_ids": ["txn"]},
    ),
    Row(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        {group(READ): GROUP_FAILED, topic(DESCRIBE): TOPIC_FAILED},
        {**OF_GROUP, "subscribed_topic_names": ["mine"]},
    ),
    Row(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {group(DESCRIBE): GROUP_FAILED}, {"group_ids": ["group"]}),
    Row(ApiKey.LIST_CONFIG_RESOURCES, 1, {on_cluster(DESCRIBE_CONFIGS): CLUSTER_FAILED}),
]

OF_TOPIC_CONFIG: Final = {"resources": [{"resource_type": 2, "resource_name": "mine"}]}
ONE_PARTITION: Final = {"topic": "mine", "partitions": [3]}

CONTROLLER_ROWS: Final = [
    *(
        Row(ApiKey.CREATE_TOPICS, version, {permission: TOPIC_FAILED}, {"topics": [{"name": "new"}]})
        for version in (2, 7)
        for permission in (topic(CREATE, "new"), on_cluster(CREATE))
    ),
    Row(
        ApiKey.DELETE_TOPICS,
        6,
        {topic(DELETE): TOPIC_FAILED},
        {"topics": [{"name": "mine", "topic_id": None}]},
    ),
    Row(
        ApiKey.DELETE_TOPICS,
        6,
        {topic(DELETE): TOPIC_FAILED},
        {"topics": [{"name": None, "topic_id": TOPIC_IDS["mine"]}]},
    ),
    Row(ApiKey.DELETE_TOPICS, 1, {on_cluster(DELETE): TOPIC_FAILED}, {"topic_names": ["mine"]}),
    Row(ApiKey.CREATE_PARTITIONS, 3, {topic(ALTER): TOPIC_FAILED}, {"topics": [{"name": "mine"}]}),
    *(
        Row(
            api_key,
            1,
            {permission: error},
            {"resources": [{"resource_type": resource_type, "resource_name": name}]},
        )
        for api_key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        for resource_type, name, permission, error in (
            (2, "mine", topic(ALTER_CONFIGS), TOPIC_FAILED),
            (32, "group", group(ALTER_CONFIGS), GROUP_FAILED),
            (4, "1", on_cluster(ALTER_CONFIGS), CLUSTER_FAILED),
            (16, "clients", on_cluster(ALTER_CONFIGS), CLUSTER_FAILED),
        )
    ),
    Row(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {on_cluster(ALTER_CONFIGS): CLUSTER_FAILED},
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": "ann"}]}]},
    ),
    Row(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {on_cluster(ALTER): CLUSTER_FAILED},
        {"deletions": [{"name": "ann"}], "upsertions": [{"name": "bob"}]},
    ),
    Row(ApiKey.CREATE_ACLS, 3, {on_cluster(ALTER): CLUSTER_FAILED}, {"creations": [{}]}),
    Row(ApiKey.DELETE_ACLS, 3, {on_cluster(ALTER): CLUSTER_FAILED}, {"filters": [{}]}),
    *(
        Row(
            ApiKey.ELECT_LEADERS,
            version,
            {on_cluster(ALTER): CLUSTER_FAILED},
            {"topic_partitions": [ONE_PARTITION]},
        )
        for version in (0, 2)
    ),
    Row(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {on_cluster(ALTER): CLUSTER_FAILED}),
    Row(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {on_cluster(DESCRIBE): CLUSTER_FAILED}),
    Row(ApiKey.UPDATE_FEATURES, 1, {on_cluster(ALTER): CLUSTER_FAILED}),
    Row(ApiKey.UNREGISTER_BROKER, 0, {on_cluster(ALTER): CLUSTER_FAILED}),
    Row(ApiKey.DESCRIBE_QUORUM, 2, {on_cluster(DESCRIBE): CLUSTER_FAILED}),
    Row(ApiKey.DESCRIBE_CLUSTER, 1, {on_cluster(ALTER): CLUSTER_FAILED}, {"endpoint_type": 2}),
    *(
        Row(api_key, known_versions(api_key).max_version, {on_cluster(CLUSTER_ACTION): CLUSTER_FAILED})
        for api_key in (
            ApiKey.FETCH,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.ENVELOPE,
            ApiKey.ALTER_PARTITION,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            ApiKey.ALLOCATE_PRODUCER_IDS,
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
        )
    ),
]

FILTERED: Final = {ApiKey.DESCRIBE_CLUSTER, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
"""What refuses nobody, but tells less (`test_guards.py`)."""
ASKED_BY_HANDLERS: Final = {
    ApiKey.FETCH,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
}
BEFORE_A_PRINCIPAL: Final = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
OPEN_TO_ALL: Final = {
    *BEFORE_A_PRINCIPAL,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}

ROWS: Final = [(BROKER, row) for row in BROKER_ROWS] + [(CONTROLLER, row) for row in CONTROLLER_ROWS]


def entity(entity_type: type[Any], given: Mapping[str, Any]) -> Any:
    """Return an entity of these fields, structs of which are mappings."""
    known = {}
    for name, value in given.items():
        if isinstance(value, list):
            known[name] = tuple(
                entity(item_type(entity_type, name), item) if isinstance(item, dict) else item
                for item in value
            )
        else:
            known[name] = value
    return filled(entity_type, **known)


def respond(request: Request) -> Any:
    """Answer as the handlers do, with nothing but what rows are added to."""
    if request.api_key is ApiKey.METADATA:
        return filled(response_type(request.api_key, known_versions(request.api_key).max_version))
    response = filled(response_type(request.api_key, request.api_version))
    if request.api_key is not ApiKey.OFFSET_FETCH or request.api_version < 8:
        return response
    group_type = item_type(type(response), "groups")
    return replace(
        response,
        groups=tuple(filled(group_type, group_id=each.group_id) for each in request.body.groups),
    )


def errors_of(value: Any) -> set[ErrorCode]:
    """Return the errors that an answer tells, wherever in it."""
    if isinstance(value, ErrorCode):
        return {value} - {ErrorCode.none}
    if isinstance(value, tuple):
        return set().union(*map(errors_of, value))
    if is_dataclass(value):
        return set().union(*(errors_of(getattr(value, each.name)) for each in fields(value)))
    return set()


@pytest.mark.parametrize(
    ("guards", "row"),
    ROWS,
    ids=[f"{row.api_key.name}-{row.version}-{number}" for number, (_, row) in enumerate(ROWS)],
)
def test_api_asks_for_what_kafka_asks_and_for_nothing_else(guards: Mapping[ApiKey, Guard], row: Row) -> None:
    """One permission too few lets somebody in; one too many breaks a client that works with Kafka."""
    guard = guards[row.api_key]
    body = entity(request_type(row.api_key, row.version), row.fields)
    allowed = Guarding(guard, row.needed)
    assert errors_of(allowed.ask(row.api_key, row.version, body)) == set()
    assert len(allowed.handled) == 1
    assert allowed.denied == []
    for missing, error in row.needed.items():
        others = [permission for permission in row.needed if permission != missing]
        lacking = Guarding(guard, others)
        answer = lacking.ask(row.api_key, row.version, body, respond)
        assert errors_of(answer) - {ErrorCode.operation_not_attempted} == {error}, missing
        assert lacking.denied, missing
        # Where the handler is asked for the rest, nothing is left of what was denied.
        assert all(handled != body for handled in lacking.handled)


def test_every_api_that_is_served_has_a_row_or_a_reason() -> None:
    """An API that is added without a guard is refused to everybody, or worse, is open."""
    in_rows = {row.api_key for row in BROKER_ROWS}
    forwarded = {row.api_key for row in CONTROLLER_ROWS} & set(CLIENT_VERSIONS) - in_rows - FILTERED
    assert set(BROKER) == set(CLIENT_VERSIONS) | BEFORE_A_PRINCIPAL
    assert {api_key for api_key, guard in BROKER.items() if guard is pass_on} == (
        OPEN_TO_ALL | ASKED_BY_HANDLERS | forwarded - in_rows
    )
    assert set(BROKER) == in_rows | OPEN_TO_ALL | ASKED_BY_HANDLERS | FILTERED | forwarded


@pytest.mark.parametrize("guards", [BROKER, CONTROLLER], ids=["broker", "controller"])
def test_refusal_of_any_request_in_any_version_can_be_sent(guards: Mapping[ApiKey, Guard]) -> None:
    """A refusal that can't be written closes the connection, and its client tries again for ever."""
    source = random.Random(7)
    for api_key, guard in guards.items():
        if guard is pass_on:
            continue
        served = CLIENT_VERSIONS.get(api_key, known_versions(api_key))
        for version in range(served.min_version, served.max_version + 1):
            for _ in range(6):
                body = arbitrary_entity(request_type(api_key, version), source)
                try:
                    answer = Guarding(guard, ()).ask(api_key, version, body, respond)
                except KafkaError as error:  # of a Produce that waits for no answer
                    assert (api_key, body.acks) == (ApiKey.PRODUCE, 0), error
                    continue
                assert encode_response_frame(request_codec(api_key, version), 1, answer)

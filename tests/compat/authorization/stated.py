"""Requests and answers as they are written down: what is asked of two clusters alike, and what is compared.

A request states some fields of its entity; the rest is the schema's default. Where a cluster has its own
values names stand for them: a topic's for its id, a batch's (`BATCHES`) for its bytes. Of an answer it is
written down what it is about, its error codes, and the operations that are told; not what the cluster is
like, nor what is said in words.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid5

from sparklog.node.acls.acl import Acl, AclOperation, AclPermissionType, AclResourceType, PatternType
from sparklog.node.authorization.guards.guard import filled
from sparklog.node.clocks import wall_clock_ms
from sparklog.protocol.codec.apis import ApiKey, request_type
from sparklog.protocol.codec.layout import FieldLayout, entity_layout
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch

NO_PRODUCER: Final = 10**12
"""A producer id that nobody was given."""
_RECORD: Final = SimpleRecord(value=b"x", timestamp_ms=wall_clock_ms())
BATCHES: Final = {
    "plain": build_batch([_RECORD]),
    "transactional": build_batch(
        [_RECORD],
        producer_id=NO_PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    ),
}
_NOBODY: Final = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")

_WHAT: Final = frozenset(
    {
        *("name", "topic", "topic_name", "topic_id", "topics", "group_id", "key", "transactional_id"),
        *("resource_name", "resource_type", "pattern_type", "principal", "operation", "permission_type"),
        *("partition_index", "partition_id", "partition", "index", "partitions", "is_internal"),
        *("user", "entity_type", "entity_name", "transaction_state", "group_state", "group_type"),
        *("authorized_operations", "topic_authorized_operations", "cluster_authorized_operations"),
    }
)
"""Fields that say what an answer is about, and what may be done to it."""
_LIKE_THE_CLUSTER: Final = frozenset(
    {
        *("brokers", "configs", "node_endpoints", "nodes", "current_voters", "observers", "members"),
        *("active_producers", "record_errors", "current_leader", "aborted_transactions", "assignment"),
    }
)


class Asked(NamedTuple):
    """A request, and who asks."""

    user: str
    api: str
    version: int
    fields: Mapping[str, Any]


def acl_of(words: Sequence[Any]) -> Acl:
    """Return an ACL that is written down as its fields."""
    resource_type, pattern_type, name, principal, host, operation, permission_type = words
    return Acl(
        AclResourceType(resource_type),
        PatternType(pattern_type),
        name,
        principal,
        host,
        AclOperation(operation),
        AclPermissionType(permission_type),
    )


def stated(api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return of the fields those that the version has."""
    return _known_fields(request_type(api_key, version), fields)


def _known_fields(entity_type: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    known = {}
    for field in entity_layout(entity_type).all_fields:
        if field.name in given:
            value = given[field.name]
            if field.entity_type is not None and isinstance(value, Mapping):
                value = _known_fields(field.entity_type, value)
            elif field.entity_type is not None and value is not None:
                value = [_known_fields(field.entity_type, item) for item in value]
            known[field.name] = value
    return known


def request_of(asked: Asked, topic_ids: Mapping[str, UUID]) -> Any:
    """Return the entity for a cluster with these topics."""
    return _entity(request_type(ApiKey[asked.api], asked.version), asked.fields, topic_ids)


def _entity(entity_type: type[Any], given: Mapping[str, Any], topic_ids: Mapping[str, UUID]) -> Any:
    layout = {field.name: field for field in entity_layout(entity_type).all_fields}
    known = {name: _value(layout[name], value, topic_ids) for name, value in given.items()}
    return filled(entity_type, **known)


def _value(field: FieldLayout, value: Any, topic_ids: Mapping[str, UUID]) -> Any:
    if value is None:
        return None
    if field.is_array:
        return tuple(_item(field, item, topic_ids) for item in value)
    return _item(field, value, topic_ids)


def _item(field: FieldLayout, value: Any, topic_ids: Mapping[str, UUID]) -> Any:
    if field.entity_type is not None:
        return _entity(field.entity_type, value, topic_ids)
    if field.kafka_type == "uuid":
        return topic_ids.get(value) or uuid5(_NOBODY, value)
    if field.kafka_type == "records":
        return BATCHES[value]
    if field.kafka_type == "bytes":
        return value.encode()
    if field.kafka_type in ("timedelta_i32", "timedelta_i64"):
        return timedelta(milliseconds=value)
    return value


def told(response: Any, topic_ids: Mapping[str, UUID]) -> Any:
    """Return what an answer says, in an order of its own: which one an item comes in means nothing."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return _told(response, names)


def _told(entity: Any, names: Mapping[UUID, str]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for field in entity_layout(type(entity)).all_fields:
        value = getattr(entity, field.name)
        if field.name in _LIKE_THE_CLUSTER:
            continue
        if field.entity_type is not None:
            if field.is_array and value is not None:
                said[field.name] = _merged([_told(item, names) for item in value])
        elif field.name.endswith("error_code"):
            said[field.name] = ErrorCode(value).name
        elif field.name in _WHAT or (field.name == "host" and "principal" in said):
            said[field.name] = names.get(value, value and "?") if field.kafka_type == "uuid" else value
            if isinstance(value, tuple):
                said[field.name] = sorted(value)
    return said


def _merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in order, and one row for each topic: a topic may be told of in several."""
    by_topic: dict[str, dict[str, Any]] = {}
    for row in rows:
        key = json.dumps({name: value for name, value in row.items() if name != "partitions"})
        if "partitions" in row and key in by_topic:
            partitions = by_topic[key]["partitions"] + row["partitions"]
            by_topic[key] = {**row, "partitions": sorted(partitions, key=json.dumps)}
        else:
            by_topic[key if "partitions" in row else f"{key} {len(by_topic)}"] = row
    return sorted(by_topic.values(), key=json.dumps)

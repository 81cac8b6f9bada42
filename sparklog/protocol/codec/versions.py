"""Moves entities between the versions of one API, so that the rest of the code has one version only.

A server upgrades requests and downgrades responses; a client downgrades requests. Fields are matched by name
at every depth; fields that the target lacks are dropped, those that the source lacks take the schema's
default, and a null where the target has none becomes that default too. Where Kafka renamed or restructured a
field, `_RULES` says how the old and the new form follow from each other (as the `Builder`s and `data()`
accessors of Kafka's `common.requests` do).

Produce and Fetch are not meant to be upgraded: they name topics before v13 and carry ids from then on, which
only the metadata can translate.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from types import coroutine
from typing import Any, Final, TypeAlias

from kio.static.constants import EntityType

from sparklog.protocol.codec.apis import ApiKey, known_versions, request_type, response_type
from sparklog.protocol.codec.layout import FieldLayout, default_value, entity_layout, once_per_type
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode

_Converter: TypeAlias = Callable[[Any], Generator[None, None, Any]]
_Rule: TypeAlias = Callable[[Any, type[Any], type[Any]], Mapping[str, Any]]
"""(source entity, target type, newer of the two types) -> fields of the target that names do not give."""


def upgrade(entity: Any) -> Any:
    """Return a request or response `entity` in the newest version there is.

    >>> from kio.schema.metadata.v0.request import MetadataRequest
    >>> newest = upgrade(MetadataRequest(topics=()))
    >>> int(newest.__version__), newest.topics  # no topics meant all of them in v0
    (13, None)
    """
    return in_one_go(upgrade_in_steps(entity))


def downgrade(entity: Any, version: int) -> Any:
    """Return a request or response `entity` in `version`, older or newer than its own.

    Raises:
        kio.index.KioIndexError: the API has no such version.
    """
    return in_one_go(downgrade_in_steps(entity, version))


@coroutine
def upgrade_in_steps(entity: Any) -> Generator[None, None, Any]:
    """Return what `upgrade` does, and yield after each item of an array."""
    source_type = type(entity)
    target_type = _newest_type(source_type)
    if target_type is source_type:
        return entity
    return (yield from _converter(source_type, target_type)(entity))


@coroutine
def downgrade_in_steps(entity: Any, version: int) -> Generator[None, None, Any]:
    """Return what `downgrade` does, and yield after each item of an array.

    Raises:
        kio.index.KioIndexError: the API has no such version.
    """
    source_type = type(entity)
    if source_type.__version__ == version:
        return entity
    return (yield from _converter(source_type, _sibling_type(source_type, version))(entity))


@once_per_type
def _newest_type(entity_type: type[Any]) -> type[Any]:
    newest = known_versions(ApiKey(entity_type.__api_key__)).max_version
    return _sibling_type(entity_type, newest)


@once_per_type
def _sibling_type(entity_type: type[Any], version: int) -> type[Any]:
    load = {EntityType.request: request_type, EntityType.response: response_type}[entity_type.__type__]
    return load(int(entity_type.__api_key__), version)


@once_per_type
def _converter(source_type: type[Any], target_type: type[Any]) -> _Converter:
    """Compile the conversion; the types are the same struct of two versions."""
    source_fields = {field.name: field for field in entity_layout(source_type).all_fields}
    namespace: dict[str, Any] = {"target_type": target_type}
    arguments = []
    for field in entity_layout(target_type).all_fields:
        source_field = source_fields.get(field.name)
        namespace[f"default_{field.name}"] = default_value(field)
        expression = (
            f"default_{field.name}"
            if source_field is None
            else _value_expression(source_field, field, namespace)
        )
        arguments.append(f"{field.name}={expression}")
    direction = target_type.__module__.rpartition(".")[2]
    rule = _RULES.get((int(target_type.__api_key__), direction, target_type.__name__))
    if rule is not None:
        newer_type = max(source_type, target_type, key=lambda entity_type: int(entity_type.__version__))
        namespace["overrides"] = lambda entity: rule(entity, target_type, newer_type)
        body = f"target_type(**dict({', '.join(arguments)}) | overrides(e))"
    else:
        body = f"target_type({', '.join(arguments)})"
    name = f"<{entity_layout(source_type).name} to v{int(target_type.__version__)}>"
    source = f"def convert(e):\n    yield\n    return {body}"
    exec(compile(source, name, "exec"), namespace)
    converter: _Converter = namespace["convert"]
    return converter


def _value_expression(source: FieldLayout, target: FieldLayout, namespace: dict[str, Any]) -> str:
    value = f"e.{source.name}"
    if target.entity_type is not None:
        assert source.entity_type is not None
        convert = f"convert_{target.name}"
        namespace[convert] = _converter(source.entity_type, target.entity_type)
        namespace["convert_each"] = _convert_each
        steps = f"convert_each({convert}, {value})" if target.is_array else f"{convert}({value})"
        converted = f"(yield from {steps})"
        if source.nullable:
            null = "None" if target.nullable else f"default_{target.name}"
            return f"{null} if {value} is None else {converted}"
        return converted
    if source.nullable and not target.nullable and target.kafka_type not in ("uuid", "datetime_i64"):
        return f"default_{target.name} if {value} is None else {value}"
    return value


def _convert_each(convert: _Converter, items: Iterable[Any]) -> Generator[None, None, tuple[Any, ...]]:
    converted = []
    for item in items:
        converted.append((yield from convert(item)))
    return tuple(converted)


def _metadata_request(entity: Any, target_type: type[Any], newer_type: type[Any]) -> Mapping[str, Any]:
    if type(entity).__version__ == 0 and not entity.topics:
        return {"topics": None}
    return {}


def _delete_topics_request(entity: Any, target_type: type[Any], newer_type: type[Any]) -> Mapping[str, Any]:
    # v6 put names into a struct beside topic ids (KIP-516).
    if newer_type.__version__ < 6 or type(entity).__version__ >= 6 <= target_type.__version__:
        return {}
    if target_type is newer_type:
        state_type = _item_type(target_type, "topics")
        return {"topics": tuple(state_type(name=name, topic_id=None) for name in entity.topic_names)}
    return {"topic_names": tuple(topic.name or "" for topic in entity.topics)}


def _alter_partition_data(entity: Any, target_type: type[Any], newer_type: type[Any]) -> Mapping[str, Any]:
    # v3 added the broker epochs (KIP-903); -1 says that the leader did not know them.
    if type(entity).__version__ == target_type.__version__:
        return {}
    if target_type is newer_type:
        state_type = _item_type(target_type, "new_isr_with_epochs")
        return {"new_isr_with_epochs": tuple(state_type(broker_id=broker) for broker in entity.new_isr)}
    return {"new_isr": tuple(state.broker_id for state in entity.new_isr_with_epochs)}


def _find_coordinator_request(
    entity: Any, target_type: type[Any], newer_type: type[Any]
) -> Mapping[str, Any]:
    # v4 asks for several keys at once (KIP-699).
    if newer_type.__version__ < 4 or type(entity).__version__ >= 4 <= target_type.__version__:
        return {}
    if target_type is newer_type:
        return {"coordinator_keys": (entity.key,)}
    return {"key": entity.coordinator_keys[0] if entity.coordinator_keys else ""}


def _find_coordinator_response(
    entity: Any, target_type: type[Any], newer_type: type[Any]
) -> Mapping[str, Any]:
    if newer_type.__version__ < 4 or type(entity).__version__ >= 4 <= target_type.__version__:
        return {}
    names = ("error_code", "error_message", "node_id", "host", "port")
    if target_type is newer_type:
        # The response before v4 does not repeat the key: the caller knows the one it asked for.
        answer = {name: getattr(entity, name, None) for name in names}
        return {"coordinators": (_item_type(target_type, "coordinators")(key="", **answer),)}
    if not entity.coordinators:
        return {}
    wanted = {field.name for field in entity_layout(target_type).all_fields}
    coordinator = entity.coordinators[0]
    return {name: getattr(coordinator, name) for name in names if name in wanted}


def _leave_group_request(entity: Any, target_type: type[Any], newer_type: type[Any]) -> Mapping[str, Any]:
    # v3 lets several members leave at once (KIP-345).
    if newer_type.__version__ < 3 or type(entity).__version__ >= 3 <= target_type.__version__:
        return {}
    if target_type is newer_type:
        return {"members": (_item_type(target_type, "members")(member_id=entity.member_id),)}
    return {"member_id": entity.members[0].member_id if entity.members else ""}


def _leave_group_response(entity: Any, target_type: type[Any], newer_type: type[Any]) -> Mapping[str, Any]:
    # Before v3 the error of the only member is that of the response.
    if target_type.__version__ >= 3 or type(entity).__version__ < 3:
        return {}
    if entity.error_code is not ErrorCode.none or not entity.members:
        return {}
    return {"error_code": entity.members[0].error_code}


def _deletable_topic_result(entity: Any, target_type: type[Any], newer_type: type[Any]) -> Mapping[str, Any]:
    # v3 brought the error of a cluster that deletes no topics; before it such a request is invalid in Kafka.
    if target_type.__version__ >= 3 or entity.error_code is not ErrorCode.topic_deletion_disabled:
        return {}
    return {"error_code": ErrorCode.invalid_request}


def _item_type(entity_type: type[Any], field_name: str) -> type[Any]:
    item_type = next(f for f in entity_layout(entity_type).fields if f.name == field_name).entity_type
    assert item_type is not None
    return item_type


_RULES: Final[Mapping[tuple[int, str, str], _Rule]] = {
    (ApiKey.METADATA, "request", "MetadataRequest"): _metadata_request,
    (ApiKey.DELETE_TOPICS, "request", "DeleteTopicsRequest"): _delete_topics_request,
    (ApiKey.DELETE_TOPICS, "response", "DeletableTopicResult"): _deletable_topic_result,
    (ApiKey.ALTER_PARTITION, "request", "PartitionData"): _alter_partition_data,
    (ApiKey.FIND_COORDINATOR, "request", "FindCoordinatorRequest"): _find_coordinator_request,
    (ApiKey.FIND_COORDINATOR, "response", "FindCoordinatorResponse"): _find_coordinator_response,
    (ApiKey.LEAVE_GROUP, "request", "LeaveGroupRequest"): _leave_group_request,
    (ApiKey.LEAVE_GROUP, "response", "LeaveGroupResponse"): _leave_group_response,
}

"""Guards of requests about partitions of topics: a topic that is denied is refused in each of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.authorization.guards.guard import (
    Answer,
    ApiGuard,
    completed,
    denial,
    divided,
    filled,
    item_type,
    with_rows,
)
from sparklog.node.serving.requests import NO_RESPONSE, Handler, Refusal, Request, Response
from sparklog.protocol.codec.fixed.message import entity_of
from sparklog.protocol.errors import ErrorCode, KafkaError

_TOPIC: Final = AclResourceType.TOPIC
_FAILED: Final = ErrorCode.topic_authorization_failed
_TOPICS_AT_ONCE: Final = 64
_ATTRIBUTES_AT: Final = 22
"""Position of the lower byte of a batch's attributes (`records.batch`)."""
_TRANSACTIONAL: Final = 0x10


class TopicItems(NamedTuple):
    """Fields of topics with partitions in a request and in its response."""

    asked: str = "topics"
    partitions: str = "partitions"
    """In the request; numbers, or structs with `index_field`."""
    index_field: str | None = "partition_index"
    answered: str = "topics"
    response_field: str = "partitions"
    """In the response, structs with `response_index_field`."""
    response_index_field: str = "partition_index"
    name_field: str = "name"
    first_by_id: int | None = None
    """The first version that has a topic's id in place of its name."""
    row: Mapping[str, Any] = MappingProxyType({})
    """Further fields of a refused partition."""


def topic_name(access: Access, topic_id: UUID | None) -> str | None:
    """Return the name of a topic id in the image; None for an unknown id."""
    topic = None if topic_id is None else access.image.topics.by_id.get(topic_id)
    return None if topic is None else topic.name


def topic_error(access: Access, topic: Any, *, by_id: bool) -> ErrorCode:
    is_unknown = by_id and topic_name(access, topic.topic_id) is None
    return ErrorCode.unknown_topic_id if is_unknown else _FAILED


def of_topics(operation: AclOperation, items: TopicItems) -> ApiGuard:
    async def guard(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Response:
        return await topics_guarded(access, request, handler, operation, items)

    return guard


async def topics_guarded(
    access: Access, request: Request, handler: Handler, operation: AclOperation, items: TopicItems
) -> Answer:
    """Answer by the handler for the allowed topics; in steps of some topics."""
    is_allowed = _is_allowed(access, operation, items, request)
    allowed, denied = await divided(getattr(request.body, items.asked), is_allowed)
    return _answered(access, request, handler, items, allowed, denied)


_NAMED: Final = {
    AclResourceType.GROUP: ("group_id", ErrorCode.group_authorization_failed),
    AclResourceType.TRANSACTIONAL_ID: ("transactional_id", ErrorCode.transactional_id_authorization_failed),
}


def of_named(*required: tuple[AclOperation, AclResourceType], topics: TopicItems | None = None) -> ApiGuard:
    """Return the guard of requests that name a group, a transactional id or both, in this order.

    READ is then required on each of the topics, if the request has some.
    """

    def guard(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Answer:
        for operation, resource_type in required:
            field, error_code = _NAMED[resource_type]
            if not access.allows(operation, resource_type, getattr(request.body, field)):
                return refuse(request, denial(error_code))
        if topics is None:
            return handler(request)
        return topics_guarded(access, request, handler, AclOperation.READ, topics)

    return guard


def produce(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Answer:
    """Require WRITE on the transactional id, for records of a transaction, and on each topic."""
    body = request.body
    if _has_transactional_records(body):
        name = body.transactional_id
        if name is None or not access.allows(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, name):
            return _nothing_produced(refuse, request, ErrorCode.transactional_id_authorization_failed)
    if len(body.topic_data) > _TOPICS_AT_ONCE:
        return topics_guarded(access, request, handler, AclOperation.WRITE, _PRODUCED)
    # Every Produce passes here: nothing is copied where all is allowed.
    is_allowed = _is_allowed(access, AclOperation.WRITE, _PRODUCED, request)
    allowed: list[Any] = []
    denied: list[Any] = []
    for topic in body.topic_data:
        (allowed if is_allowed(topic) else denied).append(topic)
    return _answered(access, request, handler, _PRODUCED, allowed, denied)


def offset_for_leader_epoch(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Answer:
    """Require CLUSTER_ACTION, which followers have, or DESCRIBE on each topic (KIP-320)."""
    if access.allows_on_cluster(AclOperation.CLUSTER_ACTION, audit=False):
        return handler(request)
    items = TopicItems(name_field="topic", index_field="partition", response_index_field="partition")
    return topics_guarded(access, request, handler, AclOperation.DESCRIBE, items)


_PRODUCED: Final = TopicItems(
    asked="topic_data",
    partitions="partition_data",
    index_field="index",
    answered="responses",
    response_field="partition_responses",
    response_index_field="index",
    first_by_id=13,
    row={"base_offset": -1, "log_append_time": None},
)


def _is_allowed(
    access: Access, operation: AclOperation, items: TopicItems, request: Request
) -> Callable[[Any], bool]:
    if _is_by_id(items, request):

        def is_allowed(topic: Any) -> bool:
            name = topic_name(access, topic.topic_id)
            return name is not None and access.allows(operation, _TOPIC, name)

        return is_allowed
    name_of = attrgetter(items.name_field)
    return lambda topic: access.allows(operation, _TOPIC, name_of(topic))


def _is_by_id(items: TopicItems, request: Request) -> bool:
    return items.first_by_id is not None and request.api_version >= items.first_by_id


def _answered(
    access: Access,
    request: Request,
    handler: Handler,
    items: TopicItems,
    allowed: list[Any],
    denied: list[Any],
) -> Answer:
    if not denied:
        return handler(request)
    request.body = replace(entity_of(request.body), **{items.asked: tuple(allowed)})

    def finish(response: Any) -> Any:
        if response is NO_RESPONSE:
            _refuse_unanswered(request, _FAILED)
        if getattr(response, "error_code", ErrorCode.none) is not ErrorCode.none:
            return response  # of OffsetDelete, which has no topics then
        topic_type = item_type(type(response), items.answered)
        partition_type = item_type(topic_type, items.response_field)
        rows = []
        by_id = _is_by_id(items, request)
        for topic in denied:
            error_code = topic_error(access, topic, by_id=by_id)
            name_field = "topic_id" if by_id else items.name_field
            named = {name_field: getattr(topic, name_field)}
            partitions = []
            for partition in getattr(topic, items.partitions):
                index = partition if items.index_field is None else getattr(partition, items.index_field)
                said = {items.response_index_field: index, "error_code": error_code}
                partitions.append(filled(partition_type, **said, **items.row))
            rows.append(filled(topic_type, **named, **{items.response_field: tuple(partitions)}))
        return with_rows(response, items.answered, rows)

    return completed(handler(request), finish)


def _nothing_produced(refuse: Refusal, request: Request, error_code: ErrorCode) -> Any:
    if request.body.acks == 0:
        _refuse_unanswered(request, error_code)
    return refuse(request, denial(error_code))


def _refuse_unanswered(request: Request, error_code: ErrorCode) -> None:
    """Refuse a Produce with acks=0, by closing its connection: it has no response.

    Raises:
        KafkaError: always.
    """
    raise KafkaError(error_code, f"{request.principal} may not produce what was sent with acks=0")


def _has_transactional_records(body: Any) -> bool:
    for topic in body.topic_data:
        for data in topic.partition_data:
            records = data.records
            is_batch = records is not None and len(records) > _ATTRIBUTES_AT
            if is_batch and records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
                return True
    return False

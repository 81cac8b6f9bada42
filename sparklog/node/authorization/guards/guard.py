"""Parts of guards: the allowed rest of a request, rows for denied items, and the response that joins them.

Responses have any version (`serving.requests.Response`), so rows have the types of the response's version.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeVar

from sparklog.node.acls.access import Access
from sparklog.node.serving.requests import Handler, Refusal, Request, Response, Throttled
from sparklog.node.serving.turns import response_of
from sparklog.protocol.codec.apis import response_type
from sparklog.protocol.codec.layout import default_value, entity_layout, once_per_type
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError

Answer = Any
"""Any result of a handler."""
Guard = Callable[[Access, Request, Handler], Answer]
"""Answers a request: by the handler, by itself, or by both."""
ApiGuard = Callable[[Refusal, Access, Request, Handler], Answer]
"""A guard that receives its API's refusal of a whole request."""

_AT_ONCE: Final = 64
"""Number of items that are checked in one step."""

_MESSAGES: Final = {
    ErrorCode.unknown_topic_id: "This server does not host this topic ID.",
    ErrorCode.unknown_topic_or_partition: "This server does not host this topic-partition.",
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
    ErrorCode.group_authorization_failed: "Group authorization failed.",
    ErrorCode.cluster_authorization_failed: "Cluster authorization failed.",
    ErrorCode.transactional_id_authorization_failed: "Transactional Id authorization failed.",
}

_Item = TypeVar("_Item")


def message_of(error_code: ErrorCode) -> str:
    return _MESSAGES[error_code]


def denial(error_code: ErrorCode) -> KafkaError:
    """Return the error that refuses a request as a whole, with Kafka's message."""
    return KafkaError(error_code, message_of(error_code))


def pass_on(access: Access, request: Request, handler: Handler) -> Answer:
    """Require nothing, or leave the check to the handler, which has `Request.access`."""
    return handler(request)


def named_twice(names: Iterable[Hashable]) -> set[Hashable]:
    """Return the names that occur more than once, which are refused for every principal."""
    return {name for name, times in Counter(names).items() if times > 1}


async def divided(
    items: Iterable[_Item], is_allowed: Callable[[_Item], bool]
) -> tuple[list[_Item], list[_Item]]:
    """Return the allowed items, and the denied ones; in steps of `_AT_ONCE`."""
    allowed: list[_Item] = []
    denied: list[_Item] = []
    for number, item in enumerate(items, 1):
        (allowed if is_allowed(item) else denied).append(item)
        if number % _AT_ONCE == 0:
            await turn()
    return allowed, denied


@once_per_type
def _defaults(entity_type: type[Any]) -> dict[str, Any]:
    return {field.name: default_value(field) for field in entity_layout(entity_type).all_fields}


def filled(entity_type: type[Any], /, **known: Any) -> Any:
    """Return an entity of the `known` fields that its version has; the rest is the schema's default."""
    defaults = _defaults(entity_type)
    return entity_type(**{name: known.get(name, default) for name, default in defaults.items()})


@once_per_type
def item_type(entity_type: type[Any], *path: str) -> type[Any]:
    """Return the type of the field at `path`: a field of the entity, a field of that, and so on."""
    for name in path:
        field = next(each for each in entity_layout(entity_type).all_fields if each.name == name)
        assert field.entity_type is not None
        entity_type = field.entity_type
    return entity_type


def answer_of(request: Request, /, **known: Any) -> Any:
    """Return a response, in the request's version, of the `known` fields that this version has."""
    return filled(response_type(request.api_key, request.api_version), **known)


def answer_to(body: Any, /, **known: Any) -> Any:
    """Return a response, in the body's version, of the `known` fields that this version has."""
    return filled(response_type(body.__api_key__, body.__version__), **known)


def with_rows(response: Any, field: str, rows: Iterable[Any]) -> Any:
    return replace(response, **{field: (*getattr(response, field), *rows)})


async def completed(answer: Answer, finish: Callable[[Any], Answer]) -> Response:
    """Return the result of `finish` for the response that an answer leads to.

    It receives an entity, or `NO_RESPONSE`.
    """
    response = await response_of(answer)
    if type(response) is Throttled:
        return response._replace(response=await response_of(finish(response.response)))
    return await response_of(finish(response))

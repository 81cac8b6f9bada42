"""What guards are made of: a rest to hand on, rows for what is denied, and an answer to add them to.

Answers come in any version (`wire.requests.Response`), so rows are made of the types that the answer has.
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
"""Whatever a handler may return."""
Guard = Callable[[Access, Request, Handler], Answer]
"""Answers a request: by the handler, by itself, or by both."""
ApiGuard = Callable[[Refusal, Access, Request, Handler], Answer]
"""A guard that is given how its API refuses a request as a whole."""

_AT_ONCE: Final = 64
"""Of how many items it is found out in one step whether they are allowed."""

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
    """Return what Kafka says with an error that is given here."""
    return _MESSAGES[error_code]


def denial(error_code: ErrorCode) -> KafkaError:
    """Return the error with which a request is refused as a whole, with Kafka's message."""
    return KafkaError(error_code, message_of(error_code))


def pass_on(access: Access, request: Request, handler: Handler) -> Answer:
    """Ask for nothing, or leave it to the handler, which asks `Request.access`."""
    return handler(request)


def named_twice(names: Iterable[Hashable]) -> set[Hashable]:
    """Return those of the names that come more than once: what they name is refused, whoever asks."""
    return {name for name, times in Counter(names).items() if times > 1}


async def divided(
    items: Iterable[_Item], is_allowed: Callable[[_Item], bool]
) -> tuple[list[_Item], list[_Item]]:
    """Return the items that are allowed, and those that are denied; a step some of them."""
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
    """Return an entity of what is known, as far as its version has it; the rest is the schema's default."""
    defaults = _defaults(entity_type)
    return entity_type(**{name: known.get(name, default) for name, default in defaults.items()})


@once_per_type
def item_type(entity_type: type[Any], *path: str) -> type[Any]:
    """Return the type of what lies in a field of an entity, in a field of that, and so on."""
    for name in path:
        field = next(each for each in entity_layout(entity_type).all_fields if each.name == name)
        assert field.entity_type is not None
        entity_type = field.entity_type
    return entity_type


def answer_of(request: Request, /, **known: Any) -> Any:
    """Return a response, in the request's version, of what is known as far as that version has it."""
    return filled(response_type(request.api_key, request.api_version), **known)


def answer_to(body: Any, /, **known: Any) -> Any:
    """Return a response, in the version of the request's body, of the fields that this version has."""
    return filled(response_type(body.__api_key__, body.__version__), **known)


def with_rows(response: Any, field: str, rows: Iterable[Any]) -> Any:
    """Return the response with further items in one of its fields."""
    return replace(response, **{field: (*getattr(response, field), *rows)})


async def completed(answer: Answer, finish: Callable[[Any], Answer]) -> Response:
    """Return what `finish` makes of the response that an answer leads to.

    It is given an entity, or what stands for an answer that there is none of.
    """
    response = await response_of(answer)
    if type(response) is Throttled:
        return response._replace(response=await response_of(finish(response.response)))
    return await response_of(finish(response))

"""The pieces that refusals of whole requests are made of, in the version of the request."""

from collections.abc import Callable, Iterable
from typing import Any

from sparklog.node.authorization.guards.guard import answer_to, filled, item_type
from sparklog.protocol.codec.apis import response_type
from sparklog.protocol.errors import KafkaError


def said(error: KafkaError) -> dict[str, Any]:
    """Return the fields that give an error, of responses and of their items alike."""
    return {"error_code": error.error_code, "error_message": error.message}


def item(body: Any, *path: str, **known: Any) -> Any:
    """Return an item of the response to a request body; `path` leads to it, field by field."""
    return filled(item_type(response_type(body.__api_key__, body.__version__), *path), **known)


def items(
    body: Any, path: tuple[str, ...], index_field: str, indexes: Iterable[int], error: KafkaError
) -> tuple[Any, ...]:
    """Return an item with the error for each index, of partitions."""
    return tuple(item(body, *path, **{index_field: index}, **said(error)) for index in indexes)


def each_topic(field: str) -> Callable[[Any, KafkaError], Any]:
    """Return the refusal by each partition of the request's topics, in the response's field of that name."""

    def refused(body: Any, error: KafkaError) -> Any:
        topics = tuple(
            item(
                body,
                field,
                name=getattr(topic, "name", ""),
                topic_id=getattr(topic, "topic_id", None),
                partitions=items(
                    body,
                    (field, "partitions"),
                    "partition_index",
                    (partition.partition_index for partition in topic.partitions),
                    error,
                ),
            )
            for topic in body.topics
        )
        return answer_to(body, **said(error), **{field: topics})

    return refused


def each_item(asked: str, answered: str, *names: str) -> Callable[[Any, KafkaError], Any]:
    """Return a function that refuses a whole request: the error for each item of its field `asked`.

    The items of the response's field `answered` have the fields `names` of those of the request.
    """

    def refused(body: Any, error: KafkaError) -> Any:
        results = tuple(
            item(body, answered, **{name: getattr(each, name) for name in names}, **said(error))
            for each in getattr(body, asked)
        )
        return answer_to(body, **{answered: results})

    return refused

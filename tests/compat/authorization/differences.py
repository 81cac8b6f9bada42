"""In what answers may differ from Kafka's though permissions do not: each is said in the documents."""

from collections.abc import Mapping
from typing import Any, Final

from tests.compat.authorization.stated import Asked

_BROKER_LOGGER: Final = 8
_INTERNAL: Final = "__consumer_offsets"


def is_known(question: Asked, ours: Any, theirs: Any) -> str | None:
    """Return what is different; None for what nobody knows of."""
    if question.api.endswith("_CONFIGS") and _without_loggers(ours) == _without_loggers(theirs):
        return "loggers' levels are not set by clients here"
    if question.api == "PRODUCE" and _without_internal(ours) == _without_internal(theirs):
        return "of records of a transaction for an internal topic it is said here that the topic is internal"
    return None


def has_known_differences(question: Asked) -> bool:
    """Whether an answer to a question may differ so."""
    fields = question.fields
    return any(row["resource_type"] == _BROKER_LOGGER for row in fields.get("resources", ())) or any(
        _INTERNAL in topic.values() for topic in fields.get("topic_data", ())
    )


def _without_loggers(answer: Mapping[str, Any]) -> Any:
    """Return an answer without the rows of loggers."""
    return {
        name: [row for row in rows if row["resource_type"] != _BROKER_LOGGER]
        for name, rows in answer.items()
        if isinstance(rows, list)
    }


def _without_internal(answer: Mapping[str, Any]) -> Any:
    """Return an answer to Produce without internal topics that were not refused for want of a permission."""
    return [
        topic
        for topic in answer.get("responses", [answer])
        if _INTERNAL not in topic.values()
        or any(row["error_code"].endswith("authorization_failed") for row in topic["partition_responses"])
    ]

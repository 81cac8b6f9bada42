"""In what answers may differ from Kafka's though permissions do not: each is said in the documents."""

from collections.abc import Mapping
from typing import Any, Final

from tests.compat.authorization.stated import Asked

__all__ = ["has_known_differences", "is_known"]

_BROKER_LOGGER: Final = 8


def is_known(question: Asked, ours: Any, theirs: Any) -> str | None:
    """Return what is different; None for what nobody knows of."""
    if question.api.endswith("_CONFIGS") and _without_loggers(ours) == _without_loggers(theirs):
        return "loggers' levels are not set by clients here"
    return None


def has_known_differences(question: Asked) -> bool:
    """Whether an answer to a question may differ so."""
    return any(row["resource_type"] == _BROKER_LOGGER for row in question.fields.get("resources", ()))


def _without_loggers(answer: Mapping[str, Any]) -> Any:
    """Return an answer without the rows of loggers that were not refused for want of a permission."""
    return {
        name: [row for row in rows if row["resource_type"] != _BROKER_LOGGER or _is_refused(row)]
        for name, rows in answer.items()
        if isinstance(rows, list)
    }


def _is_refused(row: Mapping[str, Any]) -> bool:
    return bool(row["error_code"].endswith("authorization_failed"))

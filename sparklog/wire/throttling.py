"""The throttle time in answers: only the dispatcher says one, so what makes an answer leaves it open."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from sparklog.wire.layout import entity_layout, once_per_type

__all__ = ["NO_THROTTLE", "throttled", "unthrottled"]

NO_THROTTLE: Final = timedelta()


def unthrottled(response_type: type[Any], **fields: Any) -> Any:
    """Return a response of these fields, to a request that is not throttled as far as its handler knows."""
    return response_type(throttle_time=NO_THROTTLE, **fields)


def throttled(response: Any, throttle_time: timedelta) -> Any:
    """Return the response entity with a throttle time, if its version has a field for it.

    >>> from kio.schema.heartbeat.v4.response import HeartbeatResponse
    >>> from sparklog.errors import ErrorCode
    >>> answer = unthrottled(HeartbeatResponse, error_code=ErrorCode.none)
    >>> throttled(answer, timedelta(milliseconds=7)).throttle_time.microseconds
    7000
    """
    return replace(response, throttle_time=throttle_time) if _says_throttle_time(type(response)) else response


@once_per_type
def _says_throttle_time(response_type: type[Any]) -> bool:
    return any(field.name == "throttle_time" for field in entity_layout(response_type).all_fields)

"""The throttle time in responses: the dispatcher alone sets it, and handlers leave it out.

A handler that throttles its client itself returns its response as `requests.Throttled`.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from sparklog.protocol.codec.encoded import EncodedBody, RawResponse
from sparklog.protocol.codec.frames import RequestCodec, header_bytes
from sparklog.protocol.codec.layout import entity_layout, once_per_type

NO_THROTTLE: Final = timedelta()
_BYTES: Final = 4


def unthrottled(response_type: type[Any], **fields: Any) -> Any:
    """Return a response of these fields, with a throttle time of 0."""
    return response_type(throttle_time=NO_THROTTLE, **fields)


def throttled(codec: RequestCodec, response: Any, throttle_time: timedelta) -> Any:
    """Return the response with a throttle time, if the version that is sent has one.

    A ready-made response has it at its beginning, or, here, not at all.

    >>> from kio.schema.heartbeat.v4.response import HeartbeatResponse
    >>> from sparklog.protocol.errors import ErrorCode
    >>> from sparklog.protocol.codec.frames import request_codec
    >>> answer = unthrottled(HeartbeatResponse, error_code=ErrorCode.none)
    >>> throttled(request_codec(12, 4), answer, timedelta(milliseconds=7)).throttle_time.microseconds
    7000
    """
    if hasattr(response, "__version__"):
        return replace(response, throttle_time=throttle_time) if _says_it(type(response)) else response
    if not _begins_with_it(codec.response_type):
        return response
    encoded = (throttle_time // timedelta(milliseconds=1)).to_bytes(_BYTES, "big")
    if type(response) is EncodedBody:
        return EncodedBody(encoded + response.body[_BYTES:])
    if type(response) is RawResponse:
        start = header_bytes(codec)
        return RawResponse(response.frame[:start] + encoded + response.frame[start + _BYTES :])
    return response


def throttle_time_of(codec: RequestCodec, response: RawResponse) -> timedelta:
    """Return the throttle time in a response that another node has made."""
    if not _begins_with_it(codec.response_type):
        return NO_THROTTLE
    start = header_bytes(codec)
    return timedelta(milliseconds=int.from_bytes(response.frame[start : start + _BYTES], "big", signed=True))


@once_per_type
def _says_it(response_type: type[Any]) -> bool:
    return any(field.name == "throttle_time" for field in entity_layout(response_type).all_fields)


@once_per_type
def _begins_with_it(response_type: type[Any]) -> bool:
    fields = entity_layout(response_type).all_fields
    return bool(fields) and fields[0].name == "throttle_time"

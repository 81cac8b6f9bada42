"""Admission of requests before their handler: authentication, throttling and authorization.

A connection's principal is known from `authentication`. The dispatcher meters each request and then
authorizes it, so that a denied request counts as well. The defaults here are for a listener that accepts
every client without limits; other listeners have SASL, quotas and ACLs.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.requests import Handler, Request

_ANYBODY: Final = Authentication()


class Meter(Protocol):
    """Counts the resources that one request uses of its client's quotas."""

    throttle_ms: int
    """The client's throttle time for the arrival of the request."""

    def worked(self, worked_s: float) -> int:
        """Record the time spent on the request so far; return the client's throttle time in ms."""


def _permit_all(request: Request, handler: Handler) -> Any:
    return handler(request)


def _unlimited(request: Request) -> Meter | None:
    return None


class Admission(NamedTuple):
    """How one listener admits requests. A request is refused by raising KafkaError, as in a handler."""

    authentication: Authentication = _ANYBODY
    authorize: Callable[[Request, Handler], Any] = _permit_all
    """Calls the handler with the request, which has its principal, as far as that principal is authorized."""
    meter: Callable[[Request], Meter | None] = _unlimited
    """Begins to meter a request; None if nothing limits its client."""


OPEN: Final = Admission()

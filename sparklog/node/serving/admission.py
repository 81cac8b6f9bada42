"""What stands before every handler: who asks, for how long he is to hold back, and whether he may.

Who asks is known of the connection (`authentication`). The dispatcher asks the other two of every request, in
this order: one that is denied has come all the same, and counts. Those here are for a listener that anybody
may use for anything, as fast as he can; another one is given others (SASL, quotas, ACLs).
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.requests import Handler, Request

_ANYBODY: Final = Authentication()


class Meter(Protocol):
    """Counts what one request takes of what its client may have."""

    throttle_ms: int
    """For how long the client is to hold back because it came."""

    def worked(self, worked_s: float) -> int:
        """Take in how long it was worked at as yet; return for how many ms the client is to hold back."""


def _permit_all(request: Request, handler: Handler) -> Any:
    return handler(request)


def _unlimited(request: Request) -> Meter | None:
    return None


class Admission(NamedTuple):
    """How one listener admits requests. What refuses one raises a KafkaError, as a handler does."""

    authentication: Authentication = _ANYBODY
    """Finds out who is at the other end of a connection."""
    authorize: Callable[[Request, Handler], Any] = _permit_all
    """Answers a request, which has its principal, by the handler as far as it may be answered."""
    meter: Callable[[Request], Meter | None] = _unlimited
    """Begins to count a request; None if nothing limits its client."""


OPEN: Final = Admission()

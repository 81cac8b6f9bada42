"""What stands before every handler: who asks, whether he may, and for how long he is to hold back.

The dispatcher asks each of the three of every request, in this order. Those here are for a listener that
anybody may use for anything, as fast as he can; another one is given others (SASL, ACLs, quotas).
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

from sparklog.wire.requests import ANONYMOUS, Peer, Principal, Request
from sparklog.wire.throttling import NO_THROTTLE

__all__ = ["OPEN", "Admission"]


def _anonymous(connection: Peer) -> Principal:
    return ANONYMOUS


def _permit_all(request: Request) -> None:
    return None


def _no_quota(request: Request) -> timedelta:
    return NO_THROTTLE


class Admission(NamedTuple):
    """How one listener admits requests. What refuses one raises a KafkaError, as a handler does."""

    authenticate: Callable[[Peer], Principal] = _anonymous
    """Says who is at the other end of a connection."""
    authorize: Callable[[Request], None] = _permit_all
    """Raises what a request may not be answered for; it has its principal."""
    throttle_time: Callable[[Request], timedelta] = _no_quota
    """Says what the answer tells the client to wait before its next request."""


OPEN: Final = Admission()

"""Closing of a connection whose callback raises an unexpected exception: want of memory, a bug.

The loop would log it and call again as long as there is something to read, and the connection's state would
be undefined. It is closed instead, which is logged once.
"""

from collections.abc import Callable
from functools import wraps
from typing import Protocol, TypeVar


class _Failing(Protocol):
    def fail(self, reason: str, what: str, error: BaseException) -> None: ...


_Connection = TypeVar("_Connection", bound=_Failing)


def closing_on_error(callback: Callable[[_Connection], None]) -> Callable[[_Connection], None]:
    """Return the method; an exception of it closes the connection."""

    @wraps(callback)
    def closing(connection: _Connection) -> None:
        try:
            callback(connection)
        except Exception as error:
            connection.fail(type(error).__name__, "receiving", error)

    return closing

"""Claims that signed and unsecured tokens share."""

from typing import Final

from sparklog.node.security.sasl.oauthbearer import TokenError

_END_S: Final = 1 << 48
"""Later times are refused, so that sums in milliseconds do not overflow a timestamp."""


def time_s(name: str, value: object) -> float:
    """Return the time of a claim, in seconds since 1970.

    Raises:
        TokenError: it is not a time.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _END_S:
        raise TokenError(f"its claim {name} is not a time")
    return value

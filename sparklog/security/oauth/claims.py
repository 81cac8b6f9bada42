"""What tokens claim, signed or not: of what is common to both."""

from typing import Final

from sparklog.security.sasl.oauthbearer import TokenError

_END_S: Final = 1 << 48
"""Later is no time: a sum with it, in milliseconds, is to be one yet."""


def time_s(name: str, value: object) -> float:
    """Return the time that a claim says, in seconds since the epoch.

    Raises:
        TokenError: it says none.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _END_S:
        raise TokenError(f"its claim {name} is no time")
    return value

"""How long a rack rests before its job is submitted again. Pure.

The first failure costs next to nothing, since a killed broker is to be back soon; a rack that fails again and
again must not keep Spark's scheduler busy. A job that lived for a while has served: whatever ends it is not
part of a series of failures.
"""

from typing import Final

__all__ = ["BackOff"]

FIRST_S: Final = 0.1
LAST_S: Final = 5.0
STEADY_S: Final = 10.0
"""A job that lived this long has served."""


class BackOff:
    """The pauses of one rack."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def failed(self, lived_s: float) -> float:
        """Return the pause after a job that lived for `lived_s`, both in seconds.

        >>> back_off = BackOff()
        >>> [back_off.failed(lived_s=1.0) for _ in range(4)], back_off.failed(lived_s=60.0)
        ([0.1, 0.2, 0.4, 0.8], 0.1)
        """
        pause_s = FIRST_S if lived_s >= STEADY_S else self._next_s
        self._next_s = min(2 * pause_s, LAST_S)
        return pause_s

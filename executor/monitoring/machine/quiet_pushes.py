"""The pushes that a broker leaves out because nothing happens on it. Pure.

Rule: every interval has its push while anything happens. Once a push has shown that nothing did since the one
before, so that no rate above zero is the last one known, the next ones are left out: until something happens,
but for `QUIET_S` at most.
"""

from collections.abc import Hashable
from typing import Final

QUIET_S: Final = 10.0
"""The longest time between two pushes, give or take an interval."""


class QuietPushes:
    """Order for the caller: `is_due` at each interval; push if it is true.

    >>> pushes = QuietPushes()
    >>> [pushes.is_due(activity, now_s) for now_s, activity in enumerate([7, 8, 8, 8, 9, 9, 9])]
    [True, True, True, False, True, True, False]
    """

    def __init__(self) -> None:
        self._activity: Hashable = None
        self._quiet_until_s = 0.0

    def is_due(self, activity: Hashable, now_s: float) -> bool:
        """Whether to push; `activity` has another value if anything has happened since the last call."""
        before, self._activity = self._activity, activity
        if activity != before:
            self._quiet_until_s = now_s
        elif now_s < self._quiet_until_s:
            return False
        else:
            self._quiet_until_s = now_s + QUIET_S
        return True

"""When both sides are warm: rounds go on until their rates stand still.

A JVM's first rounds flatter whoever it is compared with: Apache Kafka's brokers may double their rate over
the first four.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

__all__ = ["MAX_WARM_UP_ROUNDS", "TOLERANCE", "stands_still", "warm_up"]

TOLERANCE: Final = 0.1
"""By how much two rounds in a row may differ."""
MAX_WARM_UP_ROUNDS: Final = 10
"""Then a case is measured all the same, and the table says that it never stood still."""

Result = TypeVar("Result")


def stands_still(rates: Sequence[float]) -> bool:
    """Say whether the last two rounds differ by less than `TOLERANCE` of the larger one.

    >>> stands_still([91_000, 150_000]), stands_still([91_000, 150_000, 160_000])
    (False, True)
    """
    return len(rates) >= 2 and abs(rates[-1] - rates[-2]) < TOLERANCE * max(rates[-2:])


def warm_up(
    sides: Mapping[str, Callable[[], Result]],
    rate_of: Callable[[Result], float],
    most_rounds: int = MAX_WARM_UP_ROUNDS,
) -> dict[str, int | None]:
    """Run rounds of every side in turn until all stand still at once, or `most_rounds`.

    Returns since which round each has stood still; None for one that did not in the end.
    """
    rates: dict[str, list[float]] = {name: [] for name in sides}
    since: dict[str, int | None] = dict.fromkeys(sides)
    number = 0
    while None in since.values() and number < most_rounds:
        number += 1
        for name, run in sides.items():
            rates[name].append(rate_of(run()))
            if not stands_still(rates[name]):
                since[name] = None
            elif since[name] is None:
                since[name] = number
    return since

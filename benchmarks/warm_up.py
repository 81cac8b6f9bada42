"""When both sides are warm: rounds go on until all their figures stand still.

A JVM's first rounds flatter whoever it is compared with: Apache Kafka's brokers may double their rate over
the first four. A rate may be still while the brokers' CPU falls, and a median while the p99 does; a ratio may
be still while both of its terms rise, and says nothing (`Figure.tells_warmth`).
"""

from collections.abc import Mapping
from typing import Final

from benchmarks.case import Figure, Round

TOLERANCE: Final = 0.1
"""By how much two rounds in a row may differ."""
MAX_WARM_UP_ROUNDS: Final = 10
"""Then a case is measured all the same, and the table says what never stood still."""


def stands_still(before: float, now: float, resolution: float = 0.0) -> bool:
    """Say whether two rounds differ by less than `TOLERANCE` of the larger one, or by one step of reading.

    >>> stands_still(91_000, 150_000), stands_still(150_000, 160_000), stands_still(2, 3, resolution=1)
    (False, True, True)
    """
    difference = abs(now - before)
    return difference <= resolution or difference < TOLERANCE * max(abs(before), abs(now))


def warm_up(
    sides: Mapping[str, Round], most_rounds: int = MAX_WARM_UP_ROUNDS
) -> dict[str, dict[str, int | None]]:
    """Run rounds of every side in turn until all figures of all stand still at once, or `most_rounds`.

    Returns since which round each side's figures have stood still; None for one that did not in the end.
    """
    last: dict[str, dict[str, Figure]] = {name: {} for name in sides}
    since: dict[str, dict[str, int | None]] = {name: {} for name in sides}
    for number in range(1, most_rounds + 1):
        for name, run in sides.items():
            figures = {figure.case: figure for figure in run() if figure.tells_warmth}
            assert figures, "nothing of the case tells whether it is warm"
            for case, figure in figures.items():
                before = last[name].get(case)
                if before is None or not stands_still(before.value, figure.value, figure.resolution):
                    since[name][case] = None
                elif since[name][case] is None:
                    since[name][case] = number
            last[name] = figures
        if not any(None in of_side.values() for of_side in since.values()):
            break
    return since

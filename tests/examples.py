"""How many examples of a property are tried: few in `make test`, many times as many in `make examples`."""

import os
from typing import Any, Final

from hypothesis import settings

FACTOR: Final = int(os.environ.get("EXAMPLES", "1"))
"""The environment variable multiplies the examples of each property."""
FEW: Final = 40 * FACTOR
"""The examples of a property that says nothing else."""


def examples(count: int, **others: Any) -> settings:
    """Return settings with so many examples, times the factor."""
    return settings(max_examples=count * FACTOR, **others)

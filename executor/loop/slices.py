"""Long work on an event loop, a slice at a time: between two slices everything else has its turn.

For work on items that do not depend on each other: code that runs between two slices finds some of them done
and the others as they were. Bounded by a number of items rather than by time, so that it can be counted.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, TypeVar

SLICE_ITEMS: Final = 256
"""Some milliseconds of work that takes about ten microseconds an item."""

_Item = TypeVar("_Item")


async def in_slices(items: Iterable[_Item], size: int = SLICE_ITEMS) -> AsyncIterator[Sequence[_Item]]:
    """Yield the items, as they are now, in slices of at most `size`, and let others go first in between.

    An item whose slice is over is held here no more.
    """
    left = deque(items)
    while left:
        yield [left.popleft() for _ in range(min(size, len(left)))]
        if left:
            await asyncio.sleep(0)

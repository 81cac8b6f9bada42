"""A producer id with few epochs, in some seeds: otherwise no simulation lives to see the last of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparklog.executor.coordinators.transactions.machine import ending, initialization, metadata
from sparklog.node.storage.machine import producer_states
from tests.simulation.planted_bug import Replacement, replaced

_LAST_EPOCH: Final = 5
_IN_ONE_SEED_OF: Final = 96
"""A third of those with transactions."""
_SEED: Final = 27


@contextmanager
def few_epochs(seed: int) -> Iterator[None]:
    """Let the epochs of a producer id be used up soon, while inside, if this is such a seed."""
    if seed % _IN_ONE_SEED_OF != _SEED:
        yield
        return
    with replaced(
        [
            Replacement(metadata, "LAST_EPOCH", _LAST_EPOCH),
            Replacement(producer_states, "_LAST_EPOCH", _LAST_EPOCH),
            *(
                Replacement(module, "EXHAUSTED_EPOCH", _LAST_EPOCH - 1)
                for module in (metadata, ending, initialization)
            ),
        ]
    ):
        yield

"""Filter of aborted transactions' batches, for readers of committed records."""

from collections.abc import Iterable

from sparklog.protocol.records.aborted_batches import AbortedBatches
from sparklog.protocol.types import AbortedTransaction


def without_aborted(records: bytes | memoryview, aborted: Iterable[AbortedTransaction]) -> bytes | memoryview:
    """Return `records` without the batches of aborted transactions; a partial last batch is dropped.

    `records` starts where the fetch started, as `aborted` does.
    """
    kept = list(AbortedBatches(aborted).visible(records))
    return kept[0] if len(kept) == 1 else b"".join(kept)

"""Bound on the memory of one request: its items as objects, and everything made of them for the response.

Rule: memory beyond the bytes received (the frame, and its strings and records once more) is at most
`MAX_REQUEST_MEMORY_BYTES` a request, whichever API it asks. So requests of 3.5 MiB and more take no more than
8 times their bytes, and those that claim much in few bytes take what the largest of Kafka's own clients do:
Fetch of 10,000 partitions, each of a topic of its own, fits, which is what a follower asks its leader for.

The guard counts the items before anything is made of them, by what the schema says they take (`layout`); what
an answer takes follows from its items, and how much that is of each API is measured
(`python -m tests.amplification`), stands in its row (`sparklog/node/apis`), and is asserted by the tests.

Answers about what exists (the partitions of a topic, its configs) are bounded by the cluster, not by this.
"""

from typing import Final

MAX_REQUEST_MEMORY_BYTES: Final = 28 << 20

USUAL_TIMES: Final = 5
"""Peak memory of a request of most APIs, in multiples of the memory for which its items are counted."""


def items_allowance_bytes(memory_times: int) -> int:
    """Return the most memory for which the items of a request may be counted.

    >>> items_allowance_bytes(10)
    2936012
    """
    return MAX_REQUEST_MEMORY_BYTES // memory_times

"""What one request may take of memory: its items as objects, and all that is made of them for the answer.

Rule: what lies beyond the bytes received (the frame, and its strings and records once more) is at most
`MAX_REQUEST_MEMORY_BYTES` a request, whichever API it asks. So requests of 3.5 MiB and more take no more than
8 times their bytes, and those that claim much in few bytes take what the largest of Kafka's own clients do:
Fetch of 10,000 partitions, each of a topic of its own, fits, which is what a follower asks its leader for.

The guard counts the items before anything is made of them, by what the schema says they take (`layout`); what
an answer takes follows from its items, and how much that is of each API is measured
(`python -m tests.amplification`), and asserted by the tests.

Answers about what exists (the partitions of a topic, its configs) are bounded by the cluster, not by this.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.wire.apis import ApiKey

MAX_REQUEST_MEMORY_BYTES: Final = 28 << 20

_TIMES: Final[Mapping[int, int]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 6,
    ApiKey.CREATE_TOPICS: 11,
    ApiKey.DESCRIBE_GROUPS: 9,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 10,
    ApiKey.ELECT_LEADERS: 14,
    ApiKey.FETCH: 4,
    ApiKey.FIND_COORDINATOR: 10,
    ApiKey.OFFSET_COMMIT: 7,
    ApiKey.OFFSET_FETCH: 10,
    ApiKey.PRODUCE: 6,
    ApiKey.WRITE_TXN_MARKERS: 9,
}
"""What a request takes at its peak, answer included, in multiples of what its items are counted for."""
_TIMES_OF_OTHERS: Final = 5


def items_allowance_bytes(api_key: int) -> int:
    """Return what the items of one request may be counted for.

    >>> items_allowance_bytes(ApiKey.FIND_COORDINATOR)
    2936012
    """
    return MAX_REQUEST_MEMORY_BYTES // _TIMES.get(api_key, _TIMES_OF_OTHERS)

"""What clients of groups ask for that the machine of groups has no event for."""

from typing import NamedTuple


class OffsetDelete(NamedTuple):
    """A client wants nothing to be committed for a partition."""

    group_id: str
    topic: str
    partition: int

"""What the machine answers: records that take effect together, and the reply for when they have."""

from typing import Any, NamedTuple

from sparklog.node.metadata.schemas import MetadataRecord


class Decision(NamedTuple):
    """Metadata records for one batch, and a response.

    `reply` is a response entity of the newest version; `None` where nobody waits for an answer.
    """

    records: list[MetadataRecord]
    reply: Any
    is_first_part: bool = False
    """Whether the request, once these records are replayed, is to be decided about again."""

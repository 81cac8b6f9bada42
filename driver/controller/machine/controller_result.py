"""The machine's answer: records that take effect together, and the reply for when they have."""

from typing import Any, NamedTuple

from sparklog.node.metadata.schemas import MetadataRecord


class ControllerResult(NamedTuple):
    """Metadata records for one batch, and a response.

    `reply` is a response entity of the newest version; `None` where no request waits for one.
    """

    records: list[MetadataRecord]
    reply: Any
    is_first_part: bool = False
    """Whether the request must be decided again once these records are replayed."""

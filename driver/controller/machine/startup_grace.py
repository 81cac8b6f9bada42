"""The delay of clients' first responses from a driver that has just been elected.

Brokers of one application are started at once, and the last is rarely much later than the first. Metadata
without it costs clients more than the wait: they drop a broker that is not named, and ask again after a
back-off. librdkafka then fails the requests that were on their way to it, and its consumers may even lock up
for good (its issue 5476). The same holds for metadata from a broker that does not know the others yet.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.protocol.types import BrokerId, Offset

STARTUP_GRACE_MS: Final = 2_000
"""The longest time after an election that clients wait for brokers."""


class StartupGrace:
    """The brokers that an elected driver's clients may have to wait for. Pure."""

    def __init__(self, expected: Sequence[BrokerId], inherited: Offset, elected_ms: int) -> None:
        """Everything below the offset `inherited` is from earlier drivers, whose brokers may be gone."""
        self._expected = tuple(expected)
        self._inherited = inherited
        self._late_ms = elected_ms + STARTUP_GRACE_MS
        self._all_back_at: Offset | None = None

    def lasts(self, image: MetadataImage, known_offsets: Mapping[BrokerId, Offset], now_ms: int) -> bool:
        """Whether clients still wait: for the first committed record of this driver, and for brokers.

        `known_offsets` has the high watermark of the metadata that each broker knows.
        """
        if image is EMPTY_IMAGE:
            return True
        if self._all_back_at is None and all(self._is_back(image, each) for each in self._expected):
            self._all_back_at = image.end_offset
        return now_ms < self._late_ms and (
            self._all_back_at is None
            or any(known_offsets.get(each, 0) < self._all_back_at for each in self._expected)
        )

    def _is_back(self, image: MetadataImage, broker_id: BrokerId) -> bool:
        broker = image.brokers.get(broker_id)
        # A broker's epoch is the offset of its registration.
        return broker is not None and not broker.fenced and broker.broker_epoch >= self._inherited

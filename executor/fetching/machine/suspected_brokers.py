"""Suspicions of lost brokers that go beyond the metadata image, for Metadata answers. Pure.

Clients need two corrections for a few moments around the end of a leader:

- Brokers about to be fenced. When a broker's process ends, every peer notices the closed connection at once,
  clients too; the controller fences it some milliseconds later. A client then asks another broker for the
  leader, and after an answer with the old leader it may ask again only a second later (librdkafka). So a
  broker that has lost its own connection to the leader delays such answers until the next image, or until
  that connection works again, or for `SUSPICION_MS`.
- Brokers just fenced. A client that gets new leaders in an answer without the old leader's broker may lose
  both: librdkafka since 2.10 then considers the partitions leaderless for up to a second. So for
  `JUST_FENCED_MS` the broker stays in the first answer about a topic on each connection, which moves the
  topic's partitions, and is left out of the next. Requests to it only fail.

Order for callers: `image_changed` for every image, the others as it happens. Kafka does neither: its brokers
wait for a dead broker's session to time out, compared to which a second is little.
"""

from collections.abc import Hashable, Set
from typing import Final

from sparklog.node.metadata.image import EMPTY_IMAGE, BrokerRegistration, MetadataImage
from sparklog.protocol.types import BrokerId

SUSPICION_MS: Final = 500
"""Some tens of milliseconds are usual; a connection that broke for another reason is back sooner."""
JUST_FENCED_MS: Final = 5_000
"""Clients ask at once when a connection breaks, and refresh all their leaders every second."""


class _Fenced:
    def __init__(self, registration: BrokerRegistration, since_ms: int) -> None:
        self.registration = registration
        """The last one that was live."""
        self.since_ms = since_ms
        self.sent: dict[object, set[Hashable]] = {}
        """The topics whose leaders each connection has got since then."""


class SuspectedBrokers:
    """The brokers that are suspected of being lost, and those that were just fenced."""

    def __init__(self) -> None:
        self._image = EMPTY_IMAGE
        self._lost_ms: dict[BrokerId, int] = {}
        """The time of the loss of the connection, for brokers that are live in the image."""
        self._just_fenced: dict[BrokerId, _Fenced] = {}

    def connection_lost(self, broker_id: BrokerId, now_ms: int) -> None:
        if _is_live(self._image, broker_id):
            self._lost_ms.setdefault(broker_id, now_ms)

    def connection_serves(self, broker_id: BrokerId) -> bool:
        """Note an answer of the broker; return whether that ends a suspicion."""
        return self._lost_ms.pop(broker_id, None) is not None

    def image_changed(self, image: MetadataImage, now_ms: int) -> None:
        for broker_id, before in self._image.brokers.items():
            after = image.brokers.get(broker_id)
            if after is before:
                continue
            if after is None or after.fenced or after.broker_epoch != before.broker_epoch:
                self._lost_ms.pop(broker_id, None)
                if not before.fenced:
                    self._just_fenced[broker_id] = _Fenced(before, now_ms)
                    if after is not None and after.broker_epoch == before.broker_epoch:
                        # Its partitions may get their new leaders some hundreds at a time.
                        self._lost_ms[broker_id] = now_ms
        self._image = image
        self._forget_fenced(now_ms)

    def suspected_until_ms(self, leaders: Set[BrokerId], now_ms: int) -> int | None:
        """Return the end of the suspicions of `leaders`; None if none is suspected now."""
        ends_ms = (
            lost_ms + SUSPICION_MS for broker_id, lost_ms in self._lost_ms.items() if broker_id in leaders
        )
        return max((end_ms for end_ms in ends_ms if end_ms > now_ms), default=None)

    def just_fenced(
        self, asker: object, topics: Set[Hashable], now_ms: int
    ) -> tuple[BrokerRegistration, ...]:
        """Return the fenced brokers to list in an answer to `asker` with these topics' leaders."""
        self._forget_fenced(now_ms)
        listed = []
        for fenced in self._just_fenced.values():
            sent = fenced.sent.get(asker)
            if not topics or sent is None or not topics <= sent:
                listed.append(fenced.registration)
                fenced.sent.setdefault(asker, set()).update(topics)
        return tuple(listed)

    def _forget_fenced(self, now_ms: int) -> None:
        """Forget brokers that are back or were fenced long ago."""
        for broker_id, fenced in list(self._just_fenced.items()):
            if _is_live(self._image, broker_id) or fenced.since_ms + JUST_FENCED_MS <= now_ms:
                del self._just_fenced[broker_id]


def _is_live(image: MetadataImage, broker_id: BrokerId) -> bool:
    registration = image.brokers.get(broker_id)
    return registration is not None and not registration.fenced

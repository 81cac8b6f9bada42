"""What a broker knows of the loss of others beyond its image, for those who ask it for metadata. Pure.

Two things that clients need for a few moments around the end of a leader:

- Who is about to be fenced. When a broker's process ends, everybody connected to it notices at once, its
  clients too; the controller fences it some milliseconds later. A client asks another broker who leads now,
  and if it is told the old leader once more, it may look again only a second later (librdkafka). So a
  broker that has lost its own connection to the leader tells nothing until the next image, or until that
  connection serves again, or for `SUSPICION_MS`.
- Who has just been fenced. A client that is told of new leaders and, in the same answer, no longer of the
  broker that led before may lose both: librdkafka since 2.10 then takes the partitions for leaderless for up
  to a second. So for `JUST_FENCED_MS` the broker stays in the first answer that a connection gets about a
  topic, which moves the topic's partitions, and is left out of the next. All that a client can do with it
  is to be refused.

Order for callers: `image_changed` for every image, the others as it happens. Kafka does neither: its brokers
wait for a dead one's session to time out, beside which a second is little.
"""

from collections.abc import Hashable, Set
from typing import Final

from sparklog.metadata.image import EMPTY_IMAGE, BrokerRegistration, MetadataImage
from sparklog.types import BrokerId

SUSPICION_MS: Final = 500
"""Some tens of milliseconds are usual; a connection that broke for another reason is back sooner."""
JUST_FENCED_MS: Final = 5_000
"""Clients ask at once when a connection breaks, and look after all their leaders every second."""


class _Fenced:
    """A broker that is fenced."""

    def __init__(self, registration: BrokerRegistration, since_ms: int) -> None:
        self.registration = registration
        """The last that was live."""
        self.since_ms = since_ms
        self.told: dict[object, set[Hashable]] = {}
        """Who has been told of which topics' leaders since then."""


class SuspectedBrokers:
    """The brokers that are suspected of being lost, and those that have just gone."""

    def __init__(self) -> None:
        self._image = EMPTY_IMAGE
        self._lost_ms: dict[BrokerId, int] = {}
        """Since when there is no connection to a broker that the image has for live."""
        self._just_fenced: dict[BrokerId, _Fenced] = {}

    def connection_lost(self, broker_id: BrokerId, now_ms: int) -> None:
        """A connection to the broker broke, or one was refused."""
        if _is_live(self._image, broker_id):
            self._lost_ms.setdefault(broker_id, now_ms)

    def connection_serves(self, broker_id: BrokerId) -> bool:
        """The broker has answered; return whether that clears it of a suspicion."""
        return self._lost_ms.pop(broker_id, None) is not None

    def image_changed(self, image: MetadataImage, now_ms: int) -> None:
        """Take in the next image."""
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
        """Return until when one of `leaders` is suspected of being lost; None if none is now."""
        ends_ms = (
            lost_ms + SUSPICION_MS for broker_id, lost_ms in self._lost_ms.items() if broker_id in leaders
        )
        return max((end_ms for end_ms in ends_ms if end_ms > now_ms), default=None)

    def just_fenced(
        self, asker: object, topics: Set[Hashable], now_ms: int
    ) -> tuple[BrokerRegistration, ...]:
        """Return the fenced brokers to list in the answer that tells `asker` of these topics' leaders."""
        self._forget_fenced(now_ms)
        listed = []
        for fenced in self._just_fenced.values():
            told = fenced.told.get(asker)
            if not topics or told is None or not topics <= told:
                listed.append(fenced.registration)
                fenced.told.setdefault(asker, set()).update(topics)
        return tuple(listed)

    def _forget_fenced(self, now_ms: int) -> None:
        """Forget those that are back or have been gone for long."""
        for broker_id, fenced in list(self._just_fenced.items()):
            if _is_live(self._image, broker_id) or fenced.since_ms + JUST_FENCED_MS <= now_ms:
                del self._just_fenced[broker_id]


def _is_live(image: MetadataImage, broker_id: BrokerId) -> bool:
    registration = image.brokers.get(broker_id)
    return registration is not None and not registration.fenced

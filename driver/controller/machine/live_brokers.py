"""The live brokers, and whether each one's metadata has the others. Pure.

A broker answers clients from its own image. If that lacks another live broker, a client that knew it drops it
with the requests in flight to it: librdkafka's admin client then fails requests with _DESTROY_BROKER. So a
wait for brokers is a wait for this, too.
"""

from collections.abc import Collection, Mapping

from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import BrokerEpoch, BrokerId, Offset


class LiveBrokers:
    """The brokers that are not fenced, each with the offset of the image that first had it so."""

    def __init__(self) -> None:
        self._since: dict[BrokerId, tuple[BrokerEpoch, Offset]] = {}

    def committed(self, image: MetadataImage) -> None:
        since = {}
        for broker_id, broker in image.brokers.items():
            if not broker.fenced:
                now = (broker.broker_epoch, image.end_offset)
                before = self._since.get(broker_id, now)
                since[broker_id] = before if before[0] == broker.broker_epoch else now
        self._since = since

    def know_each_other(
        self, broker_ids: Collection[BrokerId], known_offsets: Mapping[BrokerId, Offset]
    ) -> bool:
        """Whether all of these are live, and each one's metadata has all of them.

        `known_offsets` has the high watermark of the metadata that each broker knows.
        """
        if not self._since.keys() >= set(broker_ids):
            return False
        all_live_at = max((self._since[broker_id][1] for broker_id in broker_ids), default=0)
        return all(known_offsets.get(broker_id, 0) >= all_live_at for broker_id in broker_ids)

"""Which brokers are live, and whether they know it of each other. Pure.

A broker answers clients from its own image. One that has not heard yet that another is live tells of a
smaller cluster, and a client that has been told of the larger one drops that other broker, with what it had
asked of it: librdkafka's admin client then fails requests with _DESTROY_BROKER. So whoever waits for brokers
waits for this, too.
"""

from collections.abc import Collection, Mapping

from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import BrokerEpoch, BrokerId, Offset


class LiveBrokers:
    """The brokers that are not fenced, each with the offset by which it was so."""

    def __init__(self) -> None:
        self._since: dict[BrokerId, tuple[BrokerEpoch, Offset]] = {}

    def committed(self, image: MetadataImage) -> None:
        """Take in the next image."""
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
        """Whether all of these are live, and each knows it of all of them.

        `known_offsets` says up to where each broker knows the metadata to be committed.
        """
        if not self._since.keys() >= set(broker_ids):
            return False
        all_live_at = max((self._since[broker_id][1] for broker_id in broker_ids), default=0)
        return all(known_offsets.get(broker_id, 0) >= all_live_at for broker_id in broker_ids)

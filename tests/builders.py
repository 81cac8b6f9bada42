"""Brokers, and images of brokers and topics, as plain as they can be: many tests begin with them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import MetadataImage, TopicImage, TopicsImage
from sparklog.node.metadata.registrations import BrokerRegistration
from sparklog.protocol.types import BrokerId


def broker(broker_id: BrokerId, **changes: Any) -> BrokerRegistration:
    """Return an unfenced broker with one listener, and these changes."""
    plain = BrokerRegistration(
        broker_id=broker_id,
        broker_epoch=broker_id,
        incarnation_id=None,
        listeners=(Endpoint("PLAINTEXT", f"host-{broker_id}", 9092),),
        fenced=False,
    )
    return replace(plain, **changes)


def image(
    brokers: Iterable[BrokerRegistration] = (), topics: Iterable[TopicImage] = (), **others: Any
) -> MetadataImage:
    """Return an image of these brokers and topics."""
    every_topic = list(topics)
    return MetadataImage(
        brokers={each.broker_id: each for each in brokers},
        topics=TopicsImage(
            {each.name: each for each in every_topic}, {each.topic_id: each for each in every_topic}
        ),
        **others,
    )

"""Metrics that clients and brokers push."""

from typing import Final

from sparklog.node.apis.row import ApiRow, Offer
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions

GET_TELEMETRY_SUBSCRIPTIONS: Final = ApiRow(
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, SupportedVersions(0, 0), broker=Offer(), controller=Offer(many=False)
)

PUSH_TELEMETRY: Final = ApiRow(
    ApiKey.PUSH_TELEMETRY,
    SupportedVersions(0, 0),
    broker=Offer(),
    controller=Offer(many=False),
    also_in_envelope=True,
)

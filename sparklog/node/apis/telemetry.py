"""Metrics that clients and brokers push."""

from typing import Final

from sparklog.node.apis.row import ApiRow, Offer
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions

GET_TELEMETRY_SUBSCRIPTIONS: Final = ApiRow(
    api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    versions=SupportedVersions(0, 0),
    broker=Offer(),
    controller=Offer(many=False),
)

PUSH_TELEMETRY: Final = ApiRow(
    api_key=ApiKey.PUSH_TELEMETRY,
    versions=SupportedVersions(0, 0),
    broker=Offer(),
    controller=Offer(many=False),
    also_in_envelope=True,
)

"""Handlers of clients' telemetry (KIP-714), which the broker's monitoring has."""

from collections.abc import Mapping

from sparklog.executor.api.services import BrokerServices
from sparklog.node.serving.requests import Handler
from sparklog.protocol.codec.apis import ApiKey


def handlers(services: BrokerServices) -> Mapping[ApiKey, Handler]:
    telemetry = services.monitoring.telemetry
    return {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: telemetry.get_subscriptions,
        ApiKey.PUSH_TELEMETRY: telemetry.push,
    }

"""Handlers of the transaction coordinator's APIs, which are made with it."""

from collections.abc import Mapping

from sparklog.executor.api.services import PartitionServices
from sparklog.node.serving.requests import Handler
from sparklog.protocol.codec.apis import ApiKey


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    return services.replicas.coordinators.transactions.handlers()

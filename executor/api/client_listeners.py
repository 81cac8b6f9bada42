"""The listeners on which a broker serves clients and followers.

Order for the caller: `start` binds every address, since its port goes into the registration; nobody is
answered before the first `apply`, for a broker without metadata would tell of an empty cluster; `close`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

from executor.api.apis import BrokerServices, broker_apis
from executor.loop.concurrency import end
from sparklog.config import BrokerConfig
from sparklog.endpoints import Endpoint
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.features import SUPPORTED_FEATURES
from sparklog.metadata.image import MetadataImage
from sparklog.quotas.request_quotas import RequestQuotas
from sparklog.types import or_minus_one
from sparklog.wire.admission import Admission
from sparklog.wire.connection_quotas import ConnectionQuotas
from sparklog.wire.descriptors import DescriptorBudget
from sparklog.wire.listener import Listener
from sparklog.wire.requests import Features

__all__ = ["ClientListeners"]


class ClientListeners:
    """The listeners of `listeners`. Made by `start`."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        endpoints: tuple[Endpoint, ...],
        request_quotas: RequestQuotas,
    ) -> None:
        self._listeners = listeners
        self._request_quotas = request_quotas
        self.endpoints = endpoints
        """Where clients are told to connect."""
        self._loading: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, config: BrokerConfig, host_name: str, services: BrokerServices, descriptors: DescriptorBudget
    ) -> Self:
        """Bind the addresses; those on every interface are advertised under `host_name`.

        Raises:
            OSError: an address cannot be listened on; none is.
        """
        listeners: list[Listener] = []
        bound: list[Endpoint] = []
        quotas = ConnectionQuotas(
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            descriptors=descriptors,
        )
        request_quotas = RequestQuotas(config.quota_windows)
        apis = broker_apis(services, request_quotas)
        try:
            for endpoint in config.listeners:
                listener = await Listener.start(
                    endpoint.host,
                    endpoint.port,
                    apis,
                    name=endpoint.name,
                    features=_features(services.image),
                    admission=Admission(meter=request_quotas.meter),
                    settings=config.socket_settings(),
                    quotas=quotas,
                    metrics=services.monitoring.requests,
                    reserved=len(config.listeners) > 1 and endpoint.name == config.inter_broker_listener,
                    accepting=False,
                )
                listeners.append(listener)
                services.monitoring.watch_listener(listener)
                bound.append(replace(endpoint, port=listener.port))
        except BaseException:
            for listener in listeners:
                await listener.close()
            raise
        return cls(listeners, config.advertised_endpoints(tuple(bound), host_name), request_quotas)

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """There is something to tell of the cluster: serve from now on."""
        await self._request_quotas.apply(image, delta)
        for listener in self._listeners:
            listener.accept_connections()
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        for listener in self._listeners:
            await listener.load()

    async def close(self) -> None:
        """Stop serving."""
        if self._loading is not None:
            await end(self._loading)
        for listener in self._listeners:
            await listener.close()


def _features(image: Callable[[], MetadataImage]) -> Callable[[], Features]:
    def features() -> Features:
        now = image()
        return Features(
            supported=SUPPORTED_FEATURES,
            finalized=dict(now.features),
            finalized_epoch=or_minus_one(now.offset),
        )

    return features

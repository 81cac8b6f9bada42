"""The listeners on which a broker serves clients and followers.

Order for the caller: `start` binds every address, since its port goes into the registration; requests
are answered from the first `apply` on, for a broker without metadata would show an empty cluster; `close`.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from sparklog.executor.api.apis import broker_apis
from sparklog.executor.api.services import BrokerServices
from sparklog.executor.loop.concurrency import end
from sparklog.node.apis.listeners import listener_guards
from sparklog.node.apis.row import Side
from sparklog.node.config import BrokerConfig
from sparklog.node.config.client_quotas import CONNECTION_CREATION_RATE
from sparklog.node.config.dynamic import with_dynamic
from sparklog.node.config.listener_security.certificate_renewal import CertificateRenewal
from sparklog.node.config.listener_security.listener_sasl import CredentialOf, listener_authentication
from sparklog.node.config.listener_security.listener_tls import listener_tls
from sparklog.node.endpoints import Endpoint
from sparklog.node.limits.connection_quotas import ConnectionQuotas, ListenerQuota
from sparklog.node.limits.descriptors import DescriptorBudget
from sparklog.node.limits.request_memory import RequestMemory
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.features import advertised_features, finalized_features
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.quotas.machine.applicable_quotas import AddressLimits
from sparklog.node.quotas.request_quotas import RequestQuotas
from sparklog.node.serving.admission import Admission
from sparklog.node.serving.listener import Listener, ListenerBounds, ListenerIdentity, Service
from sparklog.node.serving.requests import Features
from sparklog.node.storage.files import replace_file
from sparklog.protocol.types import or_minus_one, unless_minus_one

if TYPE_CHECKING:
    from sparklog.node.authorization.authorization import Authorization

logger = logging.getLogger(__name__)

PORTS_FILE: Final = ".sparklog_ports"
_MAX_PORT: Final = 65535


def read_ports_file(directory: Path) -> dict[str, int]:
    """Return the port of each listener at the last start by its name; empty without a readable file.

    A port that the system chooses is another one at each start. Clients that know the brokers' addresses
    alone (Kafka's own before 4.0, KIP-899) lose the cluster once all have changed. So a broker returns
    to its former ports, or takes any where another process has one. Nothing rests on the file.
    """
    try:
        content: Mapping[str, Any] = json.loads((directory / PORTS_FILE).read_bytes())
        ports = dict(content["ports"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {name: port for name, port in ports.items() if isinstance(port, int) and 0 < port <= _MAX_PORT}


def write_ports_file(directory: Path, ports: Mapping[str, int]) -> None:
    """Write the listeners' ports.

    Raises:
        OSError: it cannot be written.
    """
    content = {"version": 0, "ports": dict(ports)}
    replace_file(directory / PORTS_FILE, json.dumps(content, separators=(",", ":")).encode(), sync=False)


class ClientListeners:
    def __init__(
        self,
        listeners: Sequence[Listener],
        endpoints: tuple[Endpoint, ...],
        config: BrokerConfig,
        request_quotas: RequestQuotas,
        connection_quotas: ConnectionQuotas,
        authorization: "Authorization | None",
        renewal: CertificateRenewal,
    ) -> None:
        self._listeners = listeners
        self._started_with = config
        self._request_quotas = request_quotas
        self._connection_quotas = connection_quotas
        self._authorization = authorization
        self.endpoints = endpoints
        """The advertised addresses."""
        self._loading: asyncio.Task[None] | None = None
        self._renewing = asyncio.get_running_loop().create_task(renewal.run())

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        host_name: str,
        services: BrokerServices,
        descriptors: DescriptorBudget,
        directory: Path,
    ) -> Self:
        """Bind the addresses; those on every interface are advertised under `host_name`.

        Ports that the system chooses are those of the last start, which lie in `directory`, if they are free.

        Raises:
            OSError: an address cannot be listened on; none is.
            ConfigError: a listener's certificates or its clients' authentication are misconfigured.
        """
        former_ports = await asyncio.to_thread(read_ports_file, directory)
        listeners: list[Listener] = []
        bound: list[Endpoint] = []
        own_addresses: set[str] = set()
        cluster_mechanisms = services.secret.verifications(own_addresses)
        connection_quotas = ConnectionQuotas(
            config.connection_limits, windows=config.quota_windows, descriptors=descriptors
        )
        limit_bytes = unless_minus_one(config.queued_max_request_bytes)
        memory = None if limit_bytes is None else RequestMemory(limit_bytes)
        request_quotas = services.quotas
        services.monitoring.registry.add_source(request_quotas.samples)
        apis = broker_apis(services)
        authorization = _authorization(config, services.image)
        admission = Admission(meter=request_quotas.meter)
        if authorization is not None:
            admission = admission._replace(authorize=authorization.admit)
        renewal = CertificateRenewal(services.secret)
        try:
            for endpoint in config.listeners:
                tls = await asyncio.to_thread(
                    listener_tls, config, endpoint.name, endpoint.security_protocol, services.secret
                )
                start = partial(
                    Listener.start,
                    endpoint.host,
                    service=Service(
                        apis=apis,
                        features=_features(services.image),
                        admission=admission._replace(
                            authentication=listener_authentication(
                                config, endpoint.name, cluster_mechanisms, _credential_of(services.image)
                            )
                        ),
                        metrics=services.monitoring.requests,
                    ),
                    identity=ListenerIdentity(
                        name=endpoint.name, security_protocol=endpoint.security_protocol, tls=tls
                    ),
                    bounds=ListenerBounds(
                        settings=config.socket_settings(),
                        quotas=connection_quotas,
                        own_quota=ListenerQuota(
                            config.listener_limits(endpoint.name), windows=config.quota_windows
                        ),
                        memory=memory,
                        reserved=len(config.listeners) > 1 and endpoint.name == config.inter_broker_listener,
                    ),
                    accepting=False,
                )
                listener = await _at_former_port(start, endpoint.port, former_ports.get(endpoint.name))
                listeners.append(listener)
                services.monitoring.watch_listener(listener)
                await renewal.watch(listener, config)
                bound.append(replace(endpoint, port=listener.port))
        except BaseException:
            for listener in listeners:
                await listener.close()
            raise
        await asyncio.to_thread(_note_ports, directory, former_ports, listeners)
        endpoints = config.advertised_endpoints(tuple(bound), host_name)
        own_addresses.update(endpoint.address for endpoint in endpoints)
        return cls(listeners, endpoints, config, request_quotas, connection_quotas, authorization, renewal)

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Serve from the first image on; apply quotas and dynamic limits."""
        await self._request_quotas.apply(image, delta)
        if delta.changed_client_quotas:
            rates = AddressLimits(CONNECTION_CREATION_RATE, image.client_quotas)
            self._connection_quotas.rate_of = rates.bound
        config = self._started_with
        if config.node_id is not None and delta.reconfigures_broker(config.node_id):
            own = image.broker_configs(config.node_id)
            obeyed = with_dynamic(config, image.broker_configs(None), own)
            self._connection_quotas.limits = obeyed.connection_limits
        for listener in self._listeners:
            listener.accept_connections()
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        for listener in self._listeners:
            await listener.load()

    async def close(self) -> None:
        await end(self._renewing)
        if self._loading is not None:
            await end(self._loading)
        for listener in self._listeners:
            await listener.close()
        if self._authorization is not None:
            self._authorization.close()


def _authorization(config: BrokerConfig, image: Callable[[], MetadataImage]) -> "Authorization | None":
    """Return the configured authorizer, or None without loading any of its modules."""
    if config.authorizer is None:
        return None
    from sparklog.node.authorization.authorization import Authorization

    return Authorization(
        config.authorizer, listener_guards(Side.BROKER, config), image, asyncio.get_running_loop()
    )


def _credential_of(image: Callable[[], MetadataImage]) -> CredentialOf:
    return lambda user, mechanism: image().scram_credentials.get((user, mechanism))


async def _at_former_port(
    start: Callable[..., Awaitable[Listener]], port: int, former_port: int | None
) -> Listener:
    """Start a listener at `port`; if that is 0, at the former port, or at another where that is taken."""
    if port == 0 and former_port is not None:
        try:
            return await start(port=former_port)
        except OSError as error:
            logger.info("Port %d of the last start cannot be had: %s", former_port, error)
    return await start(port=port)


def _note_ports(directory: Path, former_ports: Mapping[str, int], listeners: Sequence[Listener]) -> None:
    ports = {listener.name: listener.port for listener in listeners}
    if ports != former_ports:
        try:
            write_ports_file(directory, ports)
        except OSError as error:
            logger.warning("The next start will be at other ports: %s", error)


def _features(image: Callable[[], MetadataImage]) -> Callable[[], Features]:
    def features() -> Features:
        now = image()
        return Features(
            supported=advertised_features(),
            finalized=finalized_features(now),
            finalized_epoch=or_minus_one(now.offset),
        )

    return features

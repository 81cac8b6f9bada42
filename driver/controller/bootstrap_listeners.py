"""The driver's listeners: one for each address of controller.quorum.bootstrap.servers.

All have the same APIs. Each is for the clients of one of the brokers' listeners: its responses have that
listener's addresses. Brokers connect to the first.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from sparklog.driver.controller.bootstrap_sockets import CannotListenError
from sparklog.node.config import BrokerConfig, HostPort
from sparklog.node.config.listener_security.certificate_renewal import CertificateRenewal
from sparklog.node.config.listener_security.listener_tls import listener_tls
from sparklog.node.endpoints import Endpoint
from sparklog.node.limits.connection_quotas import ConnectionLimits, ConnectionQuotas
from sparklog.node.limits.descriptors import DescriptorBudget
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.security.sasl.mechanism import ServerMechanism
from sparklog.node.serving.admission import Admission
from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.listener import (
    ClusterConnections,
    Listener,
    ListenerBounds,
    ListenerIdentity,
    Service,
)
from sparklog.node.serving.request_metrics import RequestMetrics
from sparklog.node.serving.requests import Api, Features
from sparklog.protocol.codec.apis import ApiKey


class BootstrapListeners:
    """The listeners, on one event loop. Made by `start`."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        endpoints: tuple[Endpoint, ...],
        renewal: CertificateRenewal,
    ) -> None:
        self.listeners = listeners
        self._renewing = asyncio.get_running_loop().create_task(renewal.run())
        self.endpoints = endpoints
        """By the names of the brokers' listeners; brokers connect to the first."""

    @classmethod
    async def start(
        cls,
        addresses: Sequence[HostPort],
        config: BrokerConfig,
        apis: Mapping[ApiKey, Api],
        secret: ApplicationSecret,
        authentication_of: Callable[[str, Mapping[str, Callable[[], ServerMechanism]]], Authentication],
        features: Callable[[], Features],
        descriptors: DescriptorBudget,
        metrics: RequestMetrics,
        sockets: Sequence[socket.socket] = (),
    ) -> Self:
        """Listen at `addresses`, one for each of the configuration's bootstrap servers.

        `sockets` listen there already, if there are any.

        Driver and brokers authenticate each other with TLS by their `secret`. `authentication_of` returns the
        authentication of clients of a listener; it gets the listener's name and the mechanisms by which
        brokers authenticate.

        Raises:
            CannotListenError: one of the addresses cannot be bound; no listener is left open.
            ConfigError: the certificates of a listener cannot be used.
        """
        protocols = {each.name: each.security_protocol for each in config.listeners}
        quotas = ConnectionQuotas(ConnectionLimits(config.max_connections), descriptors=descriptors)
        listeners: list[Listener] = []
        endpoints: list[Endpoint] = []
        own_addresses: set[str] = set()
        cluster_mechanisms = secret.verifications(own_addresses)
        try:
            for number, (server, address) in enumerate(
                zip(config.controller_quorum_bootstrap_servers, addresses, strict=True)
            ):
                name = server.listener_name
                tls = await asyncio.to_thread(listener_tls, config, name, protocols[name], secret)
                try:
                    listener = await Listener.start(
                        address.host,
                        address.port,
                        Service(
                            apis=apis,
                            features=features,
                            admission=Admission(authentication_of(name, cluster_mechanisms)),
                            metrics=metrics,
                        ),
                        ListenerIdentity(
                            name="controller" if not listeners else f"controller-{name}",
                            listener_name=name,
                            security_protocol=protocols[name],
                            tls=tls,
                        ),
                        ListenerBounds(settings=config.socket_settings(), quotas=quotas),
                        listening=sockets[number] if sockets else None,
                        cluster_connections=ClusterConnections.RESERVED,
                    )
                except OSError as error:
                    raise CannotListenError(address, error) from error
                listeners.append(listener)
                endpoints.append(Endpoint(name, address.host, listener.port, protocols[name]))
                own_addresses.add(endpoints[-1].address)
        except BaseException:
            for listener in listeners:
                await listener.close()
            raise
        renewal = CertificateRenewal(secret)
        for listener in listeners:
            await renewal.watch(listener, config)
        return cls(listeners, tuple(endpoints), renewal)

    async def close(self) -> None:
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)
        for listener in self.listeners:
            await listener.close()

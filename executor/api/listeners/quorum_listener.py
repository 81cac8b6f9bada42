"""The CONTROLLER listener of a broker: where candidates and leaders of the metadata quorum reach it.

Its clients belong to the cluster and have to authenticate before any request, over every protocol. A
connection that has not done so in time is closed, and the number of those is bounded, or strangers would
take all connections.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Self

from sparklog.executor.api.quorum import QuorumHandlers
from sparklog.executor.metadata.quorum_member import QuorumMember
from sparklog.executor.monitoring.broker_monitoring import BrokerMonitoring
from sparklog.executor.partitions.log_end import log_end
from sparklog.executor.replicas import Replicas
from sparklog.node.config import BrokerConfig
from sparklog.node.config.listener_security.listener_tls import cluster_listener_tls
from sparklog.node.endpoints import CONTROLLER_LISTENER, Endpoint
from sparklog.node.limits.connection_quotas import ConnectionQuotas
from sparklog.node.limits.descriptors import DescriptorBudget
from sparklog.node.security.application_secret import CLUSTER_MECHANISM, ApplicationSecret
from sparklog.node.serving.admission import Admission
from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.listener import (
    ClusterConnections,
    Listener,
    ListenerBounds,
    ListenerIdentity,
    Service,
)
from sparklog.node.serving.machine.authenticator import Mechanisms


class QuorumListener:
    """The listener that serves a broker's copy of the metadata log. Made by `start`."""

    def __init__(self, listener: Listener, endpoint: Endpoint) -> None:
        self._listener = listener
        self.endpoint = endpoint
        """How to reach it."""

    @classmethod
    async def start(
        cls,
        quorum: QuorumMember,
        replicas: Replicas,
        config: BrokerConfig,
        host_name: str,
        descriptors: DescriptorBudget,
        monitoring: BrokerMonitoring,
        secret: ApplicationSecret,
    ) -> Self:
        """Listen on the inter-broker listener's host, at a free port; serve the log ends of `replicas`, too.

        A connection without proof of the `secret` is closed at its first request.

        Raises:
            OSError: the address cannot be listened on.
        """
        handlers = QuorumHandlers(quorum.replica, partial(log_end, replicas.table))
        bound = next(each for each in config.listeners if each.name == config.inter_broker_listener)
        (advertised,) = config.advertised_endpoints((bound,), host_name)
        own_addresses: set[str] = set()
        verification = secret.verification(own_addresses)
        listener = await Listener.start(
            bound.host,
            0,
            Service(
                apis=handlers.table(),
                admission=Admission(
                    Authentication(Mechanisms({CLUSTER_MECHANISM: verification}), principal=None)
                ),
                metrics=monitoring.requests,
            ),
            ListenerIdentity(
                name=CONTROLLER_LISTENER,
                security_protocol=bound.security_protocol,
                tls=await asyncio.to_thread(cluster_listener_tls, bound.security_protocol, secret),
            ),
            ListenerBounds(
                settings=config.socket_settings(),
                quotas=ConnectionQuotas(descriptors=descriptors),
                reserved=True,
            ),
            cluster_connections=ClusterConnections.ONLY,
        )
        monitoring.watch_listener(listener)
        handlers.endpoint = replace(advertised, name=CONTROLLER_LISTENER, port=listener.port)
        own_addresses.add(handlers.endpoint.address)
        return cls(listener, handlers.endpoint)

    async def close(self) -> None:
        await self._listener.close()

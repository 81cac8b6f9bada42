"""The subscription of each client: the union of the client-metrics resources that select it (KIP-714).

Rules kept, those of Kafka's ClientMetricsManager: a client that several resources select pushes the metrics
of all at the shortest of their intervals; a client that none selects pushes nothing. Unlike in Kafka, clients
push a default set of metrics to the driver while no resource exists at all.

Pure.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.node.config.client_metrics import DEFAULT_INTERVAL_MS, ClientMetrics, client_metrics
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import ResourceType
from sparklog.node.telemetry.machine.client_instances import Subscription

UNASKED: Final = Subscription(("org.apache.kafka.producer.", "org.apache.kafka.consumer."), 60_000)
"""The subscription of clients while no client-metrics resource exists."""
_ALL: Final = "*"


class ClientSubscriptions:
    def __init__(self) -> None:
        self._configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None
        self._resources: tuple[ClientMetrics, ...] = ()

    def of(self, image: MetadataImage, client: Mapping[str, str]) -> Subscription:
        """Return the subscription of a client with these attributes (`client_metrics.MATCHED`)."""
        if image.configs is not self._configs:
            self._configs = image.configs
            self._resources = tuple(
                client_metrics(values)
                for (kind, _), values in sorted(image.configs.items())
                if kind == ResourceType.CLIENT_METRICS
            )
        if not self._resources:
            return UNASKED
        meant = [resource for resource in self._resources if resource.is_for(client)]
        metrics = sorted({prefix for resource in meant for prefix in resource.metrics})
        interval_ms = min((resource.interval_ms for resource in meant), default=DEFAULT_INTERVAL_MS)
        return Subscription((_ALL,) if _ALL in metrics else tuple(metrics), interval_ms)

"""What each client is to push: the client-metrics resources that are meant for it, put together (KIP-714).

Rules kept, those of Kafka's ClientMetricsManager: a client that several resources mean pushes the metrics of
all at the shortest of their intervals; one that none means pushes nothing. But while there is no resource at
all, unlike in Kafka, clients are asked for some figures, which have a place in the driver from the start.

Pure.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.config.client_metrics import DEFAULT_INTERVAL_MS, ClientMetrics, client_metrics
from sparklog.metadata.image import MetadataImage
from sparklog.metadata.schemas import ResourceType
from sparklog.telemetry.machine.client_instances import Subscription

UNASKED: Final = Subscription(("org.apache.kafka.producer.", "org.apache.kafka.consumer."), 60_000)
"""What clients are asked for while nobody has made a client-metrics resource."""
_ALL: Final = "*"


class ClientSubscriptions:
    """The resources of the newest image."""

    def __init__(self) -> None:
        self._configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None
        self._resources: tuple[ClientMetrics, ...] = ()

    def of(self, image: MetadataImage, client: Mapping[str, str]) -> Subscription:
        """Return what a client is to push; what is known of it has the names of `client_metrics.MATCHED`."""
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

"""A cluster with each broker in a zone of its own: broker 0 in zone 1; the controller is in zone 0."""

from collections.abc import Mapping
from typing import Final

from sparklog.protocol.types import BrokerId
from tests.cluster import LocalCluster
from tests.zones.network import Zone, Zones

DRIVER_ZONE: Final = 0


class ZonedCluster(LocalCluster):
    """A `LocalCluster` in zones. The thread that starts it is in the driver's zone, and so the controller."""

    def __init__(self, zones: Zones, brokers: int = 3, config: Mapping[str, str] | None = None) -> None:
        self.zones = zones
        super().__init__(
            brokers,
            {
                "listeners": "PLAINTEXT://0.0.0.0:0",
                "controller.quorum.bootstrap.servers": f"{zones[DRIVER_ZONE].address}:0",
                "sparklog.trusted.network": "true",
                **(config or {}),
            },
        )

    def zone_number(self, broker_id: BrokerId) -> int:
        """Return the number of the broker's zone."""
        return broker_id + 1

    def zone(self, broker_id: BrokerId) -> Zone:
        """Return the broker's zone."""
        return self.zones[self.zone_number(broker_id)]

    def place(self, broker_id: BrokerId) -> dict[str, str]:
        """Return the broker's address and namespace."""
        zone = self.zone(broker_id)
        return {"host_name": zone.address, "namespace": zone.path}

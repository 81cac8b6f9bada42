"""The keys of racks: their names, and the hosts on which their brokers should run. Not keys of Kafka's."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.node.config.definition import ConfigError
from sparklog.node.config.key_table import broker_key
from sparklog.node.metadata.cluster_size import rack_name, rack_number

NAMES_KEY: Final = "sparklog.rack.names"
HOSTS_KEY: Final = "sparklog.rack.hosts"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RackKeys:
    sparklog_rack_names: tuple[str, ...] = broker_key(NAMES_KEY)
    sparklog_rack_hosts: tuple[str, ...] = broker_key(HOSTS_KEY)

    def __post_init__(self) -> None:
        names = self.sparklog_rack_names
        if not all(names) or len(set(names)) < len(names):
            raise ConfigError(NAMES_KEY, ",".join(names), "must name each rack, and no two alike")
        for entry in self.sparklog_rack_hosts:
            host, separator, rack = entry.partition("=")
            if not host.strip() or not separator or not rack.strip():
                raise ConfigError(HOSTS_KEY, entry, "must be a host and the name of its rack, as host=rack")

    def rack_name(self, number: int) -> str:
        return rack_name(number, self.sparklog_rack_names)

    @property
    def hosts_of_racks(self) -> Mapping[str, frozenset[str]]:
        """The hosts of each rack that has any."""
        hosts: dict[str, frozenset[str]] = {}
        for entry in self.sparklog_rack_hosts:
            host, _, rack = (part.strip() for part in entry.partition("="))
            hosts[rack] = hosts.get(rack, frozenset()) | {host}
        return hosts

    def check_racks(self, racks: int) -> None:
        """Check that the names and hosts are those of a cluster of `racks` racks.

        Hosts of racks that a larger cluster would have are kept for it.

        Raises:
            ConfigError: Two racks have one name, or a host is in a rack that the cluster can't have.
        """
        names = [self.rack_name(number) for number in range(racks)]
        if len(set(names)) < racks:
            raise ConfigError(NAMES_KEY, ",".join(names), "two racks of the cluster have the same name")
        for rack, hosts in self.hosts_of_racks.items():
            if rack in names:
                continue
            if rack_number(rack, self.sparklog_rack_names) is not None:
                logger.warning("%s has hosts of %s, a rack that only a larger cluster has", HOSTS_KEY, rack)
            else:
                raise ConfigError(
                    HOSTS_KEY, f"{min(hosts)}={rack}", f"the racks are {', '.join(names)}; set {NAMES_KEY}"
                )

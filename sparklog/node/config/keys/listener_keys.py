"""The broker keys of listeners and their connections.

Brokers listen on loopback only, unless the application names other addresses; the operating system sizes the
buffers of sockets.
"""

from dataclasses import dataclass, field
from ipaddress import ip_address

from sparklog.node.config.definition import ConfigError, Rule
from sparklog.node.config.key_table import broker_key
from sparklog.node.config.listeners import advertised_endpoints, parse_listeners, parse_protocol_map
from sparklog.node.endpoints import CONTROLLER_LISTENER, Endpoint
from sparklog.node.limits.connection_quotas import ConnectionLimits
from sparklog.node.serving.socket_settings import SocketSettings
from sparklog.protocol.types import unless_minus_one


def _overrides(text: str) -> dict[str, int] | None:
    """Return the counts by address, None if the text is malformed.

    >>> _overrides("10.0.0.1:5, ::1:2")
    {'10.0.0.1': 5, '::1': 2}
    """
    counts = {}
    for item in filter(None, map(str.strip, text.split(","))):
        address, _, count = item.rpartition(":")
        try:
            counts[str(ip_address(address.strip().strip("[]")))] = int(count)
        except ValueError:
            return None
    return None if any(count < 0 for count in counts.values()) else counts


@dataclass(frozen=True, kw_only=True)
class ListenerKeys:
    listeners_value: tuple[str, ...] = broker_key("listeners")
    advertised_listeners_value: tuple[str, ...] | None = broker_key("advertised.listeners")
    listener_security_protocol_map: str = broker_key("listener.security.protocol.map")
    sparklog_trusted_network: bool = broker_key("sparklog.trusted.network")
    inter_broker_listener_name: str | None = broker_key("inter.broker.listener.name")
    security_inter_broker_protocol: str | None = broker_key("security.inter.broker.protocol")
    socket_send_buffer_bytes: int = broker_key("socket.send.buffer.bytes")
    socket_receive_buffer_bytes: int = broker_key("socket.receive.buffer.bytes")
    socket_request_max_bytes: int = broker_key("socket.request.max.bytes")
    queued_max_request_bytes: int = broker_key("queued.max.request.bytes")
    message_max_decompressed_bytes: int = broker_key("message.max.decompressed.bytes")
    socket_listen_backlog_size: int = broker_key("socket.listen.backlog.size")
    max_connections: int = broker_key("max.connections")
    max_connections_per_ip: int = broker_key("max.connections.per.ip")
    max_connections_per_ip_overrides: str = broker_key(
        "max.connections.per.ip.overrides",
        Rule("a list of address:count", lambda text: _overrides(text) is not None),
    )
    max_connection_creation_rate: int = broker_key("max.connection.creation.rate")
    connections_max_idle_ms: int = broker_key("connections.max.idle.ms")
    request_timeout_ms: int = broker_key("request.timeout.ms")
    max_request_partition_size_limit: int = broker_key("max.request.partition.size.limit")

    listeners: tuple[Endpoint, ...] = field(init=False)
    advertised_listeners: tuple[Endpoint, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        listeners = parse_listeners("listeners", self.listeners_value, protocols)
        advertised = (
            None
            if self.advertised_listeners_value is None
            else parse_listeners("advertised.listeners", self.advertised_listeners_value, protocols)
        )
        object.__setattr__(self, "listeners", listeners)
        object.__setattr__(self, "advertised_listeners", advertised)
        listener_names = {listener.name for listener in self.listeners}
        if CONTROLLER_LISTENER in listener_names:
            raise ConfigError(
                "listeners",
                CONTROLLER_LISTENER,
                "brokers have a listener of that name for the metadata quorum",
            )
        for endpoint in self.advertised_listeners or ():
            if endpoint.name not in listener_names:
                raise ConfigError("advertised.listeners", endpoint.name, "no listener has this name")
        named, protocol = self.inter_broker_listener_name, self.security_inter_broker_protocol
        if named is not None and protocol is not None:
            raise ConfigError(
                "security.inter.broker.protocol", protocol, "inter.broker.listener.name says it already"
            )
        if self.inter_broker_listener not in listener_names:
            key = "security.inter.broker.protocol" if named is None else "inter.broker.listener.name"
            raise ConfigError(key, named or protocol, "no listener has this name")

    @property
    def inter_broker_listener(self) -> str:
        named = self.inter_broker_listener_name or self.security_inter_broker_protocol
        return self.listeners[0].name if named is None else named.upper()

    def advertised_endpoints(self, bound: tuple[Endpoint, ...], host_name: str) -> tuple[Endpoint, ...]:
        """Return the addresses for clients, given the bound ones.

        A listener without an advertised address is advertised under its own host, or, if it listens on every
        interface, under `host_name`; port 0 becomes the bound port.
        """
        return advertised_endpoints(self.advertised_listeners or (), bound, host_name)

    @property
    def connection_limits(self) -> ConnectionLimits:
        return ConnectionLimits(
            max_connections=self.max_connections,
            max_connections_per_ip=self.max_connections_per_ip,
            max_connections_per_ip_overrides=_overrides(self.max_connections_per_ip_overrides) or {},
            max_connection_creation_rate=self.max_connection_creation_rate,
        )

    def socket_settings(self) -> SocketSettings:
        return SocketSettings(
            send_buffer_bytes=unless_minus_one(self.socket_send_buffer_bytes),
            receive_buffer_bytes=unless_minus_one(self.socket_receive_buffer_bytes),
            listen_backlog_size=self.socket_listen_backlog_size,
            request_max_bytes=self.socket_request_max_bytes,
            connections_max_idle_ms=unless_minus_one(self.connections_max_idle_ms),
        )

"""The broker keys of listeners and their connections.

Brokers listen on loopback only, unless the application names other addresses; the operating system sizes the
buffers of sockets.
"""

from dataclasses import dataclass, field
from ipaddress import ip_address

from sparklog.node.config.definition import (
    BOOLEAN,
    INT,
    INT_MAX,
    LIST,
    LONG,
    STRING,
    ConfigError,
    Rule,
    at_least,
    config_key,
    either,
    one_of,
)
from sparklog.node.config.listeners import advertised_endpoints, parse_listeners, parse_protocol_map
from sparklog.node.endpoints import CONTROLLER_LISTENER, Endpoint, SecurityProtocol
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
    listeners_value: tuple[str, ...] = config_key(
        LIST,
        ("PLAINTEXT://127.0.0.1:0",),
        "Where brokers listen, as name://host:port; port 0 takes a free one. Other hosts than loopback"
        " must be named, 0.0.0.0 being every interface.",
        name="listeners",
    )
    advertised_listeners_value: tuple[str, ...] | None = config_key(
        LIST,
        None,
        "The addresses advertised to clients, if not those that brokers listen on.",
        name="advertised.listeners",
    )
    listener_security_protocol_map: str = config_key(
        STRING,
        "PLAINTEXT:PLAINTEXT",
        "The security protocol of each listener name, as name:protocol; the names of protocols stand for"
        " themselves.",
    )
    sparklog_trusted_network: bool = config_key(
        BOOLEAN,
        False,
        "Whether clients on other hosts may use the application without authentication. If not, listeners"
        " beyond"
        " loopback that authenticate no client are refused, and executors on other hosts"
        " without spark.authenticate. Not a key of Kafka's.",
    )
    inter_broker_listener_name: str | None = config_key(
        STRING, None, "The listener followers fetch from; the first if not set."
    )
    security_inter_broker_protocol: str | None = config_key(
        STRING,
        None,
        "Another way to name that listener: the one that is called like this protocol.",
        one_of(*SecurityProtocol.__members__),
    )
    socket_send_buffer_bytes: int = config_key(
        INT,
        -1,
        "SO_SNDBUF of connections; -1, unlike Kafka's default, leaves it to the system, which sizes it as a"
        " connection needs.",
        either(-1, at_least(1)),
    )
    socket_receive_buffer_bytes: int = config_key(
        INT,
        -1,
        "SO_RCVBUF of connections; -1, unlike Kafka's default, leaves it to the system, which sizes it as a"
        " connection needs.",
        either(-1, at_least(1)),
    )
    socket_request_max_bytes: int = config_key(
        INT, 104857600, "The largest request; a longer one closes the connection.", at_least(1)
    )
    queued_max_request_bytes: int = config_key(
        LONG,
        -1,
        "How many bytes of requests that come in pieces a broker holds at a time; clients that begin with"
        " more are not read from; -1 for any number.",
        either(-1, at_least(1)),
    )
    message_max_decompressed_bytes: int = config_key(
        INT,
        67108864,
        "To how much the records of one compressed batch may expand; a batch beyond it is refused with"
        " MESSAGE_TOO_LARGE, and a log that has one, from elsewhere or from before, is not cleaned. Not a key"
        " of Kafka's, which has no such bound.",
        at_least(1),
    )
    socket_listen_backlog_size: int = config_key(
        INT,
        1024,
        "How many connections may wait to be accepted; more than Kafka's default, because the thread that"
        " accepts them also answers requests. The system may allow fewer.",
        at_least(1),
    )
    max_connections: int = config_key(
        INT,
        INT_MAX,
        "How many connections a broker keeps open on all its listeners; further ones are closed at once. A"
        " listener that the brokers have beside the clients' is excepted.",
        at_least(0),
    )
    max_connections_per_ip: int = config_key(
        INT,
        INT_MAX,
        "How many connections one address may keep open to a broker; further ones are closed at once.",
        at_least(0),
    )
    max_connections_per_ip_overrides: str = config_key(
        STRING,
        "",
        "How many connections single addresses may keep open, as address:count,address:count; hosts are"
        " named by"
        " their addresses.",
        Rule("a list of address:count", lambda text: _overrides(text) is not None),
    )
    max_connection_creation_rate: int = config_key(
        INT,
        INT_MAX,
        "How many connections a second a broker takes on all its listeners; others wait to be accepted. A"
        " listener that the brokers have beside the clients' is excepted.",
        at_least(1),
    )
    connections_max_idle_ms: int = config_key(
        LONG,
        600000,
        "After how much silence a connection is closed, unless it waits for an answer; -1 for never.",
        either(-1, at_least(1)),
    )
    request_timeout_ms: int = config_key(
        INT, 30000, "How long a broker waits for an answer of the controller."
    )
    max_request_partition_size_limit: int = config_key(
        INT, 2000, "The most partitions in one DescribeTopicPartitions answer.", at_least(1)
    )

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
